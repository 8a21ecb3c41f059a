package link

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"meridian/wire"
)

var le = binary.LittleEndian

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Frame is the 24-byte frame header.
type Frame struct {
	Len   uint32 // bytes of payload, the crc32c trailer of control payloads included
	Type  Type
	Flags uint8
	Class Class
	Req   uint64 // odd from the dialler, even from the acceptor; 0: no request
	Arg   uint32 // DATA: index of the first item; 0 elsewhere
}

// FlagCritical marks a frame that may not be skipped by a side that does not
// know its type. The other seven flag bits are zero in version 1.
const FlagCritical = 1

// Class orders DATA frames: 0 urgent .. 3 bulk.
type Class uint8

// The urgency classes.
const (
	ClassUrgent Class = 0 // a user waits for it
	ClassSoon   Class = 1 // the next step needs it
	ClassNormal Class = 2 // prefetch, hand-off ahead of time
	ClassBulk   Class = 3 // offload and rebalancing
)

const maxClass = ClassBulk

// Length is FrameLen.
func (f Frame) Length() int { return FrameLen }

// Append appends the header as it stands, with its crc32c.
func (f Frame) Append(b []byte) []byte {
	b, p := extend(b, FrameLen)
	f.put(p)
	return b
}

func (f Frame) put(p []byte) {
	f.putFields(p)
	le.PutUint32(p[20:], crc32.Checksum(p[:20], castagnoli))
}

// putFields writes the header with a checksum of 0.
func (f Frame) putFields(p []byte) {
	_ = p[FrameLen-1]
	le.PutUint32(p, f.Len)
	p[4] = byte(f.Type)
	p[5] = f.Flags
	p[6] = byte(f.Class)
	p[7] = 0
	le.PutUint64(p[8:], f.Req)
	le.PutUint32(p[16:], f.Arg)
	le.PutUint32(p[20:], 0)
}

// checksum is what a header or trailer says of b.
func checksum(b []byte, plain bool) uint32 {
	if plain {
		return 0
	}
	return crc32.Checksum(b, castagnoli)
}

// ParseFrame parses the header in the first FrameLen bytes of b. It refuses a
// wrong crc32c (CRC) before it looks at any field, then a length that the type
// does not allow (LENGTH) and values that version 1 does not define (INVALID).
// An unknown type is no error here: see [Type.Known].
func ParseFrame(b []byte) (Frame, error) {
	f, fail := parseFrame(b, false)
	if fail != nil {
		return Frame{}, fail
	}
	return f, nil
}

// parseFrame is ParseFrame; of a plain frame the checksum is 0.
func parseFrame(b []byte, plain bool) (Frame, *FrameError) {
	if len(b) < FrameLen {
		return Frame{}, errShort("header", len(b), uint64(len(b)), FrameLen)
	}
	b = b[:FrameLen]
	if got, want := le.Uint32(b[20:]), checksum(b[:20], plain); got != want {
		return Frame{}, errCRC("header", 20, got, want)
	}
	f := Frame{
		Len:   le.Uint32(b),
		Type:  Type(b[4]),
		Flags: b[5],
		Class: Class(b[6]),
		Req:   le.Uint64(b[8:]),
		Arg:   le.Uint32(b[16:]),
	}
	switch {
	case f.Flags > FlagCritical:
		return Frame{}, errValue("flags", 5, uint64(f.Flags), FlagCritical)
	case f.Class > maxClass:
		return Frame{}, errValue("class", 6, uint64(f.Class), uint64(maxClass))
	case b[7] != 0:
		return Frame{}, errValue("reserved", 7, uint64(b[7]), 0)
	}
	if lo, hi := f.Type.bounds(); f.Len < lo || f.Len > hi {
		return Frame{}, &FrameError{Code: wire.CodeLength, Field: "len", Got: uint64(f.Len), Limit: uint64(hi),
			Text: fmt.Sprintf("%s of %d bytes, allowed %d to %d", f.Type, f.Len, lo, hi)}
	}
	return f, nil
}
