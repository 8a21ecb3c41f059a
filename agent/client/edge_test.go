package client

import (
	"errors"
	"testing"
	"unsafe"

	"meridian/wire"
	"meridian/wire/link"
)

// A granted place may reach to the last byte of its segment and of its table, and
// no further.
func TestPlacesAtTheEndOfASegment(t *testing.T) {
	const size, table = 4096, 64
	var m mapTable
	gens := make([]uint64, table/8)
	m.table.Store(&map[uint32]*segment{3: {bytes: make([]byte, size), gens: unsafe.Slice((*byte)(unsafe.Pointer(&gens[0])), table)}})
	for _, c := range []struct {
		off    uint64
		n, gen uint32
		want   wire.Code
	}{
		{wire.HeaderLen, size - wire.HeaderLen, table - 8, wire.CodeOK},
		{wire.HeaderLen, size - wire.HeaderLen + 1, 0, wire.CodeLength},
		{wire.HeaderLen - 1, 1, 0, wire.CodeLength},
		{size, 0, 0, wire.CodeOK},
		{size, 1, 0, wire.CodeLength},
		{size + 1, 0, 0, wire.CodeLength},
		{1 << 63, 1, 0, wire.CodeLength},
		{100, 1, table, wire.CodeLength},
		{100, 1, 1<<32 - 8, wire.CodeLength},
		{100, 1, 4, wire.CodeLength},
	} {
		p := link.Place{Seg: 3, Off: c.off, Len: c.n, GenOff: c.gen}
		body, _, _, err := m.place(&p)
		if wire.CodeOf(err) != c.want && !(err == nil && c.want == wire.CodeOK) || err == nil && len(body) != int(c.n) {
			t.Errorf("%+v: %d bytes, %v, want %v", c, len(body), err, c.want)
		}
	}
	if _, _, _, err := m.place(&link.Place{Seg: 4, Off: 100}); !errors.Is(err, wire.CodeState) {
		t.Errorf("a segment that was never announced: %v", err)
	}
}

// The last piece may end where the ring ends.
func TestARingIsFilledToItsEnd(t *testing.T) {
	var r ring
	r.init()
	r.set(make([]byte, 4*ringAlign))
	for range 2 {
		if _, _, _, ok, _ := r.take(2 * ringAlign); !ok {
			t.Fatal("there was room")
		}
	}
	if _, _, _, ok, _ := r.take(1); ok {
		t.Error("more than the ring has was given")
	}
	r.release(0)
	if _, off, _, ok, _ := r.take(2 * ringAlign); !ok || off != 0 {
		t.Errorf("came round to %d, %v", off, ok)
	}
}

func TestARefusedManifestSaysWhy(t *testing.T) {
	for want, e := range map[string]OpenError{
		`client: open: GEOMETRY: head_size is "64" here and "128" at the daemon`: {Code: wire.CodeGeometry, Field: "head_size", Ours: "64", Theirs: "128"},
		"client: open: DENIED: not yours":                                        {Code: wire.CodeDenied, Text: "not yours"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
