package engine_test

import (
	"testing"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// numbered is a raw engine with a namespace of acme open, and its number.
func (n *node) numbered(t *testing.T) (*raw, uint16) {
	t.Helper()
	r := n.greeted(t)
	r.write(message(link.TypeOpen, 1, link.Open{Manifest: manifest("acme").Append(nil)}))
	var num uint16
	for {
		got := r.next()
		switch got.f.Type {
		case link.TypeOpened:
			m, err := link.Parse[link.Opened](got.p)
			if err != nil || m.Status != wire.CodeOK {
				t.Fatalf("OPENED %+v, %v", m, err)
			}
			num = m.NS
		case link.TypeEnd:
			return r, num
		}
	}
}

// A PUT that brings one key many times needs room once: the first is stored, the
// others are EXISTS. Where the first is refused, so are they.
func TestAPutOfOneKeyManyTimesNeedsRoomOnce(t *testing.T) {
	const size = 4000 // 4,096 of them are twice the store
	n := startNode(t, nil)
	r, num := n.numbered(t)
	put := func(req uint64, first link.PutItem) []wire.Code {
		t.Helper()
		items := make([]link.PutItem, 4096)
		items[0] = first
		for i := range items[1:] {
			items[i+1] = link.PutItem{NS: num, Len: size, Key: first.Key}
		}
		r.write(message(link.TypePut, req, link.Put{DeadlineMS: 30_000, Items: items}))
		for {
			if got := r.next(); got.f.Type == link.TypeEnd {
				return r.end(got, req).Status
			}
		}
	}
	check := func(got []wire.Code, want ...wire.Code) { // the last one is that of all that follow
		t.Helper()
		for i, code := range got {
			if w := want[min(i, len(want)-1)]; code != w {
				t.Fatalf("item %d: %v, want %v", i, code, w)
			}
		}
	}
	check(put(3, link.PutItem{NS: num, Len: size, Key: keyOf("same")}), wire.CodeOK, wire.CodeExists)
	check(put(5, link.PutItem{NS: num, Len: size, Key: keyOf("same")}), wire.CodeExists)
	// What is wrong with one item is not wrong with the next of that key.
	check(put(7, link.PutItem{NS: num, Len: size, Off: 1 << 40, Key: keyOf("other")}), wire.CodeInvalid, wire.CodeOK, wire.CodeExists)
	st := n.store.Stats()
	if got := st.Blocks[0] + st.Blocks[1] + st.Blocks[2]; got != 2 || st.Evictions != [3]uint64{} {
		t.Errorf("%d blocks, %v evictions; want two and none", got, st.Evictions)
	}
}

// The zero key names no block: refused with the items that are wrong by themselves,
// before anything is copied.
func TestAPutOfTheZeroKeyIsInvalid(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	errs := e.Put(ctx, []client.Block{{NS: ns, Body: body(1, 100)}, {NS: ns, Key: keyOf("a"), Body: body(2, 100)}})
	is(t, errs[0], wire.CodeInvalid)
	if errs[1] != nil {
		t.Error(errs[1])
	}
}
