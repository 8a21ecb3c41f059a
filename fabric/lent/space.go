package lent

import (
	"slices"

	"meridian/wire"
)

// spaceAlign is what each payload's place is a multiple of, from the memory's begin.
const spaceAlign = 64

// Space is memory of which parts are given out. It has no lock.
type Space struct {
	Size, Used uint64
	free       []wire.Span // ascending, none next to another
}

// NewSpace is one of which nothing is given out.
func NewSpace(size uint64) *Space { return &Space{Size: size, free: []wire.Span{{Len: size}}} }

func roundUp(n uint64) uint64 { return (n + spaceAlign - 1) &^ (spaceAlign - 1) }

// Take gives out the first part that is long enough.
func (s *Space) Take(n uint64) (wire.Span, bool) {
	n = roundUp(n)
	for i := range s.free {
		f := &s.free[i]
		if f.Len < n {
			continue
		}
		out := wire.Span{Off: f.Off, Len: n}
		f.Off, f.Len = f.Off+n, f.Len-n
		if f.Len == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		s.Used += n
		return out, true
	}
	return wire.Span{}, false
}

// Give takes a part back.
func (s *Space) Give(p wire.Span) {
	s.Used -= p.Len
	i, _ := slices.BinarySearchFunc(s.free, p.Off, func(f wire.Span, off uint64) int {
		if f.Off < off {
			return -1
		}
		return 1
	})
	s.free = slices.Insert(s.free, i, p)
	if i+1 < len(s.free) && p.Off+p.Len == s.free[i+1].Off {
		s.free[i].Len += s.free[i+1].Len
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].Off+s.free[i-1].Len == s.free[i].Off {
		s.free[i-1].Len += s.free[i].Len
		s.free = slices.Delete(s.free, i, i+1)
	}
}
