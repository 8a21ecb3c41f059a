package wire

import "unsafe"

// Verified is proof that a body was hashed where it lies: the checksum, the
// length, and the memory that was hashed. Only this package makes one, by
// hashing: Hash, CopySum and Hasher.Verified. The zero value proves nothing.
//
// It says what the bytes were when they were hashed. Its holder must be the only
// one that can write to them from then on.
type Verified struct {
	sum Sum
	n   int
	at  *byte // the first byte that was hashed; nil for an empty body
	ok  bool
}

// Hash hashes body, without allocating.
func Hash(body []byte) Verified { return verified(body, SumOf(body)) }

func verified(body []byte, s Sum) Verified {
	v := Verified{sum: s, n: len(body), ok: true}
	if len(body) > 0 {
		v.at = unsafe.SliceData(body)
	}
	return v
}

// OK reports whether v proves anything.
func (v Verified) OK() bool { return v.ok }

// Sum is the checksum of the bytes; zero where v proves nothing.
func (v Verified) Sum() Sum { return v.sum }

// Len is their number.
func (v Verified) Len() int { return v.n }

// Of reports whether v is the proof of exactly this memory: the same first byte
// and the same length. Equal bytes elsewhere are not enough.
func (v Verified) Of(body []byte) bool {
	return v.ok && v.n == len(body) && (v.n == 0 || v.at == unsafe.SliceData(body))
}

// Match says whether the bytes that v is proof of are the body of h: a
// *TruncatedError or *TrailingError for another length, else a *ChecksumError.
// Where v proves nothing the error is CodeChecksum.
func (h Header) Match(v Verified) error {
	switch {
	case !v.ok:
		return CodeChecksum
	case uint64(v.n) < uint64(h.BodyLen):
		return h.truncated(uint64(v.n))
	case uint64(v.n) > uint64(h.BodyLen):
		return &TrailingError{N: uint64(v.n) - uint64(h.BodyLen)}
	case v.sum != h.Sum:
		return &ChecksumError{Want: h.Sum, Got: v.sum}
	}
	return nil
}

// span is the memory that a Hasher was given, while the pieces lie one behind
// another.
type span struct {
	at   *byte
	n    int
	torn bool // a piece lay elsewhere
}

func (s *span) add(p []byte) {
	if len(p) == 0 {
		return
	}
	first := unsafe.SliceData(p)
	switch {
	case s.n == 0:
		s.at = first
	case uintptr(unsafe.Pointer(first)) != uintptr(unsafe.Pointer(s.at))+uintptr(s.n): // as numbers: no pointer past its object
		s.torn = true
	}
	s.n += len(p)
}
