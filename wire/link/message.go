package link

import (
	"hash/crc32"
	"slices"
)

// Message is what a control payload can be made from.
type Message interface {
	Append(b []byte) []byte // the payload, without the crc32c trailer
	Length() int            // the bytes that Append adds
}

// AppendMessage appends a whole control frame: f's header with Len filled, m's
// payload, the crc32c trailer. It does not allocate when b has room.
func AppendMessage[M Message](b []byte, f Frame, m M) []byte {
	n := m.Length()
	b = slices.Grow(b, FrameLen+n+TrailerLen)
	at := len(b)
	b = m.Append(b[:at+FrameLen])
	f.Len = uint32(n + TrailerLen)
	f.put(b[at:])
	return le.AppendUint32(b, crc32.Checksum(b[at+FrameLen:], castagnoli))
}

// AppendLocal is AppendMessage for the engine's socket: plain says that both
// HELLOs have FeaturePlain, and that the frame's two checksums are 0.
func AppendLocal[M Message](b []byte, plain bool, f Frame, m M) []byte {
	if !plain {
		return AppendMessage(b, f, m)
	}
	n := m.Length()
	b = slices.Grow(b, FrameLen+n+TrailerLen)
	at := len(b)
	b = m.Append(b[:at+FrameLen])
	f.Len = uint32(n + TrailerLen)
	f.putFields(b[at:])
	return append(b, 0, 0, 0, 0)
}

// Parse makes a message from a payload. What the Parse of its type says of memory
// holds.
func Parse[T any, P interface {
	*T
	Parse([]byte) error
}](b []byte) (x T, err error) {
	err = P(&x).Parse(b)
	return x, err
}

// payload checks the trailer of f's control payload b, which must be f.Len
// bytes, and returns what comes before it. The result aliases b.
func payload(f Frame, b []byte, plain bool) ([]byte, *FrameError) {
	if uint64(len(b)) != uint64(f.Len) || len(b) < TrailerLen {
		return nil, errShort("payload", min(len(b), int(f.Len)), uint64(len(b)), uint64(max(f.Len, TrailerLen)))
	}
	n := len(b) - TrailerLen
	if got, want := le.Uint32(b[n:]), checksum(b[:n], plain); got != want {
		return nil, errCRC("payload", n, got, want)
	}
	return b[:n], nil
}

// Empty is the payload of COMMIT, PING, CANCEL, ABORT and PROCESS, of a MAP request and
// of any other message without fields: nothing.
type Empty struct{}

// Length is 0.
func (Empty) Length() int { return 0 }

// Append returns b.
func (Empty) Append(b []byte) []byte { return b }

// Parse refuses any byte.
func (*Empty) Parse(b []byte) error {
	c := cursor{b: b}
	return c.end()
}

// extend grows b by n bytes, which the caller writes in full through p.
func extend(b []byte, n int) (all, p []byte) {
	at := len(b)
	all = slices.Grow(b, n)[:at+n]
	return all, all[at:]
}

// sized is s with n elements, in s's memory where that is enough.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
