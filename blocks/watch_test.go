package blocks_test

import (
	"sync"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/wire"
)

// Every way of publishing tells the watcher, after the block can be found and
// without a lock of the store.
func TestEveryWayOfPublishingTellsTheWatcher(t *testing.T) {
	s, o, ns := openStore(t, false)
	var told []blocks.Published
	s.OnPublish(func(p []blocks.Published) {
		for i := range p {
			v := make([]blocks.View, 1)
			if s.Lookup(p[i].NS, []wire.Key{p[i].Key}, v); v[0].Err != nil {
				t.Errorf("told before it can be found: %v", v[0].Err)
			}
		}
		told = append(told, p...)
	})
	publish := func(name string, ingest bool) {
		v, err := s.Reserve(o, ns, []uint32{64}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		c := []blocks.Commit{{Slot: v[0].Ref.Slot, NS: ns, Key: wire.KeyOf(ns, []byte(name)), Len: 64}}
		if ingest {
			_ = s.Ingest(o, make([]byte, 64), &c[0])
		} else {
			s.Commit(o, c)
		}
		if c[0].Err != nil {
			t.Fatal(c[0].Err)
		}
	}
	publish("unwatched", false)
	s.Watch(true)
	publish("committed", false)
	publish("ingested", true)
	s.Watch(false)
	publish("unwatched again", true)
	if len(told) != 2 || told[0].Key != wire.KeyOf(ns, []byte("committed")) || told[1].Key != wire.KeyOf(ns, []byte("ingested")) || told[0].NS != ns {
		t.Errorf("told %v", told)
	}
}

// Whoever watches first and looks afterwards either finds the block or is told.
func TestWatchThenLookMissesNothing(t *testing.T) {
	s, o, ns := openStore(t, false)
	key := wire.KeyOf(ns, []byte("k"))
	told := make(chan wire.Key, 1)
	s.OnPublish(func(p []blocks.Published) { told <- p[0].Key })
	for range 500 {
		v, err := s.Reserve(o, ns, []uint32{64}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var published sync.WaitGroup
		published.Go(func() {
			c := []blocks.Commit{{Slot: v[0].Ref.Slot, NS: ns, Key: key, Len: 64}}
			s.Commit(o, c)
		})
		s.Watch(true)
		found := make([]blocks.View, 1)
		s.Lookup(ns, []wire.Key{key}, found)
		if found[0].Err != nil && <-told != key {
			t.Fatal("told of another key")
		}
		published.Wait()
		s.Watch(false)
		select { // it was told as well as found
		case <-told:
		default:
		}
		s.Discard(ns, []wire.Key{key})
	}
}
