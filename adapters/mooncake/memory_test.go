package mooncake

import (
	"errors"
	"strings"
	"testing"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/wire"
)

// An engine has a segment as soon as it runs, and memory when its application registers
// some, which may be after this daemon looked for the first time.
func TestMemoryThatIsRegisteredLaterIsFound(t *testing.T) {
	l := newLender(t, 1<<20)
	l.set(func() { l.bare = true })
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"app", l.name}}})
	it := []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payloadOf(t, 1000, 1)}}}
	if n.Push(t.Context(), it); !errors.Is(it[0].Err, wire.CodeFull) {
		t.Fatalf("without memory: %v", it[0].Err)
	}
	l.set(func() { l.bare = false })
	if n.Push(t.Context(), it); !errors.Is(it[0].Err, wire.CodeFull) {
		t.Errorf("a peer without memory is asked at each push: %v", it[0].Err)
	}
	n.roster.Load().peers[0].looked = time.Time{} // long ago
	if n.Push(t.Context(), it); it[0].Err != nil {
		t.Errorf("with memory: %v", it[0].Err)
	}
	for _, f := range n.Findings() {
		if f.Bad {
			t.Errorf("%+v", f)
		}
	}
}

// An application registers and unregisters other memory all the time, such as where it
// wants a block to be put.
func TestOtherMemoryOfAPeerChangesNothingForItsBlocks(t *testing.T) {
	l := newLender(t, 1<<20)
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"app", l.name}}})
	it := []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payloadOf(t, 1000, 1)}}}
	if n.Push(t.Context(), it); it[0].Err != nil {
		t.Fatal(it[0].Err)
	}
	for i := range 2 {
		l.set(func() {
			l.more = []segment.Buffer{{Name: "other", Addr: uint64(1+i) << 40, Len: 4096}}
		})
		if err := n.roster.Load().peers[0].give(t.Context(), l.more[0].Addr, make([]byte, 64)); err == nil {
			t.Error("memory that nobody serves was written")
		}
		if n.Pull(t.Context(), it); it[0].Err != nil {
			t.Fatalf("after other memory was registered: %v", it[0].Err)
		}
	}
}

// Memory that no longer holds a block is not said to hold it: the block can be brought
// again.
func TestABlockThatItsPeerOverwroteIsForgotten(t *testing.T) {
	l := newLender(t, 1<<20)
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"app", l.name}}})
	payload := payloadOf(t, 1000, 1)
	it := []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payload}}}
	if n.Push(t.Context(), it); it[0].Err != nil {
		t.Fatal(it[0].Err)
	}
	l.set(func() { clear(l.b) })
	it[0].M.B = make([]byte, len(payload))
	if n.Pull(t.Context(), it); !errors.Is(it[0].Err, wire.CodeChecksum) {
		t.Fatalf("overwritten memory: %v", it[0].Err)
	}
	list := 0
	if err := n.List(t.Context(), func(fabric.Item) bool { list++; return true }); err != nil || list != 0 || n.Keeps(it[0].H) {
		t.Errorf("%v, %d blocks are listed, kept: %v", err, list, n.Keeps(it[0].H))
	}
	if n.Find(t.Context(), it); !errors.Is(it[0].Err, wire.CodeAbsent) {
		t.Errorf("looked for: %v", it[0].Err)
	}
	it = []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payload}}}
	if n.Push(t.Context(), it); it[0].Err != nil {
		t.Errorf("brought again: %v", it[0].Err)
	}
	if blocks, bytes := n.store.Count(); blocks != 1 || bytes != uint64(len(payload)+63)&^63 {
		t.Errorf("%d blocks of %d bytes", blocks, bytes)
	}
}

// A peer whose name has no address does not stop the daemon: it may have one later. The
// finding says which entry it is.
func TestAPeerWithoutAnAddressIsToldAsItsEntry(t *testing.T) {
	h := newHouse(t, []PeerConfig{{"app", "a..b:9"}, {"far", "127.0.0.1:9"}}, nil)
	if f := findingOf(t, h.Node, "source.app"); !f.Bad || !strings.Contains(f.Reason, `"a..b:9" in peers: `) {
		t.Errorf("%+v", f)
	}
	if f := findingOf(t, h.Node, "source.far"); f.Bad {
		t.Errorf("%+v", f)
	}
}
