package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"meridian/agent/client"
	"meridian/wire"
)

// grouped is an engine of the client library that may load.
func (n *node) grouped(t testing.TB) (*client.Engine, client.NS) {
	t.Helper()
	loaderAgents++
	e := n.dial(t, client.Options{Group: &client.Group{Agent: [16]byte{loaderAgents}, Inc: 1}})
	ns, err := e.Open(ctx, manifest("acme"))
	if err != nil {
		t.Fatal(err)
	}
	return e, ns
}

// Blocks come part by part, while they are put by another engine, with the right bytes.
func TestALoadFollowsAnEngineThatPuts(t *testing.T) {
	n := startNode(t, nil)
	put1, ns1 := n.open(t)
	e, ns := n.grouped(t)
	const blocks = 40
	keys := make([]wire.Key, blocks)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint("follow ", i))
	}
	var wg sync.WaitGroup
	for range 3 {
		l, err := e.Load(ctx, ns, keys, client.LoadOptions{Wait: true})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer l.Close()
			next, parts := 0, 0
			var part client.Lease
			for {
				first, err := l.Next(ctx, &part)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || first != next {
					t.Errorf("part from %d, want %d: %v", first, next, err)
					return
				}
				for i := range part.Blocks {
					if b := &part.Blocks[i]; b.Err != nil || b.Key != keys[next+i] || !bytes.Equal(b.Body, body(byte(next+i), 1000)) {
						t.Errorf("block %d: %v, or other bytes", next+i, b.Err)
					}
				}
				next, parts = next+len(part.Blocks), parts+1
				part.Release()
			}
			if next != blocks || parts < 2 {
				t.Errorf("%d blocks in %d parts", next, parts)
			}
		})
	}
	for i := range keys {
		put(t, put1, client.Block{NS: ns1, Key: keys[i], Body: body(byte(i), 1000)})
		if i == 0 {
			all, err := e.LoadAll(ctx, ns, keys[:1], client.LoadOptions{Wait: true})
			if err != nil || len(all.Blocks) != 1 || all.Blocks[0].Err != nil {
				t.Fatalf("%+v, %v", all, err)
			}
			all.Release()
		}
	}
	wg.Wait()
	n.nothingWaits(t)
}

// A load whose context ends, or that is closed, leaves nothing at the daemon; one whose
// daemon goes ends.
func TestALoadThatIsClosedLeavesNothing(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.grouped(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	for range 20 {
		l, err := e.Load(ctx, ns, []wire.Key{keyOf("a"), keyOf("b")}, client.LoadOptions{Wait: true})
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		l.Close()
	}
	short, cancel := context.WithCancel(ctx)
	l, err := e.Load(short, ns, []wire.Key{keyOf("a"), keyOf("b")}, client.LoadOptions{Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	var part client.Lease
	if _, err := l.Next(short, &part); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := l.Next(short, new(client.Lease)); !errors.Is(err, context.Canceled) || !errors.Is(err, wire.CodeCancelled) {
		t.Errorf("%v", err)
	}
	l.Close()
	part.Release()
	if _, err := e.LoadAll(short, ns, []wire.Key{keyOf("b")}, client.LoadOptions{Wait: true}); !errors.Is(err, wire.CodeCancelled) {
		t.Errorf("%v", err)
	}
	until(t, func() bool { st := n.srv.Stats(); return st.ParkedLoads == 0 && n.store.Stats().Leases == 0 })
	n.nothingWaits(t)
	ended := make(chan error, 1)
	l, err = e.Load(ctx, ns, []wire.Key{keyOf("b")}, client.LoadOptions{Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return n.srv.Stats().ParkedLoads == 1 })
	go func() {
		_, err := l.Next(ctx, new(client.Lease))
		ended <- err
	}()
	n.srv.Close()
	if err := <-ended; !errors.Is(err, wire.CodeLaneLost) {
		t.Errorf("%v", err)
	}
	l.Close()
}

func TestLoadAllocatesNothing(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.grouped(t)
	keys := make([]wire.Key, 16)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint(i))
		put(t, e, client.Block{NS: ns, Key: keys[i], Body: body(1, 16<<10)})
	}
	l, part := new(client.Load), new(client.Lease)
	got := testing.AllocsPerRun(2000, func() {
		if err := e.LoadInto(ctx, l, ns, keys, client.LoadOptions{Wait: true, Fetch: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Next(ctx, part); err != nil {
			t.Fatal(err)
		}
		part.Release()
		if _, err := l.Next(ctx, part); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		l.Close()
	})
	if got >= 1 && !raceEnabled { // the race detector's own are counted too
		t.Errorf("%v allocations for a LOAD, both sides together", got)
	}
}
