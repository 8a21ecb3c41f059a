package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/internal/socketfile"
	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// The first number that was not given out is unknown, by key and by reference.
func TestANumberThatWasNotGivenOutIsUnknown(t *testing.T) {
	n := startNode(t, nil)
	r, num := n.numbered(t)
	ns := num + 1
	for req, w := range map[uint64]link.Want{3: {NS: ns, Key: keyOf("x")}, 5: {NS: ns, Slot: 1, Gen: 2}} {
		r.write(message(link.TypeHas, req, link.Has{DeadlineMS: 1000, Items: []link.Want{w}}))
		table, err := link.Parse[link.Table](r.next().p)
		if err != nil || len(table.Items) != 1 || table.Items[0].Status != wire.CodeNSUnknown {
			t.Errorf("HAS of namespace %d: %+v, %v", ns, table, err)
		}
		r.end(r.next(), req)
		r.write(message(link.TypeAcquire, req, link.Acquire{DeadlineMS: 1000, Items: []link.Want{w}}))
		got, err := link.Parse[link.Acquired](r.next().p)
		if err != nil || len(got.Items) != 1 || got.Items[0].Status != wire.CodeNSUnknown {
			t.Errorf("ACQUIRE in namespace %d: %+v, %v", ns, got, err)
		}
		r.end(r.next(), req)
		r.write(message(link.TypePut, req, link.Put{DeadlineMS: 1000, Items: []link.PutItem{{NS: ns, Key: keyOf("x")}}}))
		if e := r.end(r.next(), req); len(e.Status) != 1 || e.Status[0] != wire.CodeNSUnknown {
			t.Errorf("PUT into namespace %d: %+v", ns, e)
		}
	}
}

// MAP from an engine that lost what it had brings all of it once more: the ring and
// the segments of every namespace.
func TestMapBringsEverythingAgain(t *testing.T) {
	n := startNode(t, nil)
	r, first := n.opened(t, "acme")
	r.write(message(link.TypeMap, 9, link.Map{}))
	var again []link.Seg
	for {
		got := r.next()
		if got.f.Type == link.TypeEnd {
			if e := r.end(got, 9); e.Code != wire.CodeOK {
				t.Fatalf("MAP: %s", e.Code)
			}
			break
		}
		m, err := link.Parse[link.Map](got.p)
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, m.Segs...)
	}
	if len(first) == 0 || fmt.Sprint(first) != fmt.Sprint(again) {
		t.Errorf("first %v, again %v", first, again)
	}
}

// A batch of exactly two with one key is one block.
func TestTwoOfOneKeyAreOne(t *testing.T) {
	n := startNode(t, nil)
	r, num := n.numbered(t)
	it := link.PutItem{NS: num, Len: 100, Key: keyOf("x")}
	r.write(message(link.TypePut, 3, link.Put{DeadlineMS: 30_000, Items: []link.PutItem{it, it}}))
	for {
		if got := r.next(); got.f.Type == link.TypeEnd {
			if e := r.end(got, 3); fmt.Sprint(e.Status) != fmt.Sprint([]wire.Code{wire.CodeOK, wire.CodeExists}) {
				t.Errorf("%v", e.Status)
			}
			break
		}
	}
	if st := n.store.Stats(); st.Commits != 1 {
		t.Errorf("%d commits", st.Commits)
	}
}

// One PUT of more blocks than may be followed: those beyond go to ThinkComplete,
// unless they were there already; and what a request followed is free with it.
func TestABatchBeyondTheFollowedBlocks(t *testing.T) {
	models, err := scheduler.NewModels([]scheduler.Model{{Name: "thinker", Start: []int32{thinkStart}, End: []int32{thinkEnd}}})
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) {
		c.Limits.Blocks = 4
		c.Scheduler = scheduler.Config{Models: models, OffloadAfter: scheduler.Time(time.Hour)}
	})
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("there"), Tier: wire.OutputCritical, Body: body(1, 100)})
	for round := range 3 {
		id, err := e.Begin(ctx, client.Begin{Model: "thinker"})
		if err != nil {
			t.Fatal(err)
		}
		var batch []client.Block
		for i, tier := range []wire.Tier{wire.ThinkActive, wire.ThinkActive, wire.OutputCritical, wire.OutputCritical, wire.OutputCritical} {
			batch = append(batch, client.Block{NS: ns, Key: keyOf(fmt.Sprint(round, i)), Tier: tier, Body: body(byte(i), 100), Req: id})
		}
		batch = append(batch, client.Block{NS: ns, Key: keyOf("there"), Tier: wire.OutputCritical, Body: body(1, 100), Req: id})
		e.Put(ctx, batch)
		for i, want := range []wire.Tier{wire.ThinkActive, wire.ThinkActive, wire.OutputCritical, wire.OutputCritical, wire.ThinkComplete, wire.OutputCritical} {
			if v, err := n.store.Stat(batch[i].Key); err != nil || v.Tier != want {
				t.Errorf("round %d, block %d: %s (%v), want %s", round, i, v.Tier, err, want)
			}
		}
		if err := e.Finish(ctx, id, false); err != nil {
			t.Fatal(err)
		}
	}
	n.watch.mu.Lock()
	defer n.watch.mu.Unlock()
	if len(n.watch.events) == 0 {
		t.Error("the observer heard of no phase")
	}
}

// The socket's mode is the user's own, unless another user is on the list.
func TestTheSocketIsOpenToOthersOnlyWhereOneIsListed(t *testing.T) {
	for uid, want := range map[uint32]os.FileMode{uint32(os.Geteuid()): 0o600, uint32(os.Geteuid()) + 1: 0o666} {
		n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.UIDs = []uint32{uid} })
		if st, err := os.Stat(n.path); err != nil || st.Mode().Perm() != want {
			t.Errorf("uid %d listed: mode %v (%v), want %o", uid, st.Mode(), err, want)
		}
	}
}

// The longest path that a Unix socket may have is taken.
func TestTheLongestPath(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, strings.Repeat("s", socketfile.MaxPath-len(dir)-1))
	startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Path = path })
}

// Of many that put one block at the same time, one is told that it is stored, and all
// others that it is there.
func TestOfManyThatPutOneBlockOneStoresIt(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.StagingBytes = 4 << 20 })
	const engines, many, size = 4, 24, 60_000
	var es [engines]*client.Engine
	var ns [engines]client.NS
	for i := range es {
		es[i], ns[i] = n.open(t)
	}
	for round := range 8 {
		stored := make([]atomic.Int32, many)
		var wg sync.WaitGroup
		for i := range es {
			wg.Go(func() {
				batch := make([]client.Block, many)
				for k := range batch {
					batch[k] = client.Block{NS: ns[i], Key: keyOf(fmt.Sprint(round, k)), Body: body(byte(k), size)}
				}
				for k, err := range es[i].Put(ctx, batch) {
					switch {
					case err == nil:
						stored[k].Add(1)
					case !errors.Is(err, wire.CodeExists):
						t.Errorf("round %d, block %d: %v", round, k, err)
					}
				}
			})
		}
		wg.Wait()
		for k := range stored {
			if got := stored[k].Load(); got != 1 {
				t.Errorf("round %d, block %d: %d were told that it was stored by them", round, k, got)
			}
		}
	}
}
