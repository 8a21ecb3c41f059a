package agent

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/transfer"
	"meridian/conformance/chaos"
	"meridian/wire"
)

// here is the holder that a node's engines name.
func (n *testNode) here() client.Holder {
	return client.Holder{Agent: n.id.agent, Inc: n.id.incarnation}
}

// takeAll reads a load's parts to the end, holds their bytes against what the test puts,
// and returns how many parts came.
func takeAll(t *testing.T, l *client.Load, keys []wire.Key) (parts int) {
	t.Helper()
	defer l.Close()
	next := 0
	for {
		var part client.Lease
		first, err := l.Next(t.Context(), &part)
		if errors.Is(err, io.EOF) {
			if next != len(keys) {
				t.Errorf("%d of %d blocks came", next, len(keys))
			}
			return parts
		}
		if err != nil || first != next {
			t.Errorf("part from block %d, want %d: %v", first, next, err)
			return parts
		}
		for i := range part.Blocks {
			if b := &part.Blocks[i]; b.Err != nil || chaos.CheckBody(b.Body, keys[next+i]) != nil {
				t.Errorf("block %d: %v, or other bytes", next+i, b.Err)
			}
		}
		next, parts = next+len(part.Blocks), parts+1
		part.Release()
	}
}

// A decode engine asks for the blocks of a prompt, and names the prefill daemon, before
// the prefill engine has put the first one. They come part by part, while prefill goes
// on.
func TestDecodeLoadsWhilePrefillGoesOn(t *testing.T) {
	const size = 64 << 10
	prefill, decode := pair(t)
	a, b := prefill.engine(t), decode.loader(t, 1)
	keys := a.keys("prompt", 12)
	for _, how := range []struct {
		name string
		o    client.LoadOptions
	}{
		{"named", client.LoadOptions{Wait: true, Holder: prefill.here(), Deadline: time.Minute}},
		{"any", client.LoadOptions{Wait: true, Fetch: true, Deadline: time.Minute}},
		{"named first", client.LoadOptions{Wait: true, Fetch: true, Holder: prefill.here(), Deadline: time.Minute}},
	} {
		t.Run(how.name, func(t *testing.T) {
			keys := a.keys(how.name, len(keys))
			l, err := b.Load(t.Context(), b.space, keys, how.o)
			if err != nil {
				t.Fatal(err)
			}
			until(t, "it waits", func() bool { st := decode.engines.Stats(); return st.Asking == len(keys) && st.InFlight == 0 })
			var first sync.WaitGroup
			first.Add(1)
			var done sync.WaitGroup
			done.Go(func() {
				var part client.Lease
				_, err := l.Next(t.Context(), &part)
				if err != nil || len(part.Blocks) > 4 || part.Blocks[0].Err != nil { // before the others are put
					t.Errorf("the first part has %d blocks: %v", len(part.Blocks), err)
				}
				n := len(part.Blocks)
				part.Release()
				first.Done()
				for n < len(keys) {
					at, err := l.Next(t.Context(), &part)
					if err != nil || at != n {
						t.Errorf("part from %d, want %d: %v", at, n, err)
						return
					}
					for i := range part.Blocks {
						if k := &part.Blocks[i]; k.Err != nil || chaos.CheckBody(k.Body, keys[n+i]) != nil {
							t.Errorf("block %d: %v, or other bytes", n+i, k.Err)
						}
					}
					n += len(part.Blocks)
					part.Release()
				}
				if _, err := l.Next(t.Context(), &part); !errors.Is(err, io.EOF) {
					t.Errorf("%v", err)
				}
				l.Close()
			})
			a.put(t, keys[:4], size, wire.OutputCritical, 0)
			first.Wait() // before the others are put
			a.put(t, keys[4:8], size, wire.OutputCritical, 0)
			a.put(t, keys[8:], size, wire.OutputCritical, 0)
			done.Wait()
			nothingWaits(t, decode)
		})
	}
	if n := decode.mover.Hinted(transfer.HintServed); n == 0 {
		t.Error("no block came from the holder that was named")
	}
}

// nothingWaits asserts that a daemon's loads have left nothing.
func nothingWaits(t *testing.T, n *testNode) {
	t.Helper()
	until(t, "nothing is in flight", func() bool { return n.engines.Stats().InFlight == 0 })
	if st := n.engines.Stats(); st.ParkedLoads != 0 || st.ParkedItems != 0 || st.Waiting != 0 || st.Asking != 0 {
		t.Errorf("left: %+v", st)
	}
}

// A holder that dies while it is asked, or before, costs a load with FETCH nothing but
// time, and one that waits for it alone ends at its deadline.
func TestALoadOutlivesTheHolderThatItNames(t *testing.T) {
	const size, within = 64 << 10, 2 * time.Second
	prefill, decode := pair(t)
	a, b := prefill.engine(t), decode.loader(t, 1)
	keys := a.keys("k", 4)
	a.put(t, keys[:2], size, wire.OutputCritical, 0)
	load := func(keys []wire.Key, fetch bool, within time.Duration) *client.Load {
		l, err := b.Load(t.Context(), b.space, keys, client.LoadOptions{Wait: true, Fetch: fetch, Holder: prefill.here(), Deadline: within})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	waits := func(items int) bool {
		st := decode.engines.Stats()
		return st.Asking == items && st.InFlight == 0
	}
	l, both := load(keys[:3], false, time.Minute), load(keys, true, time.Minute)
	until(t, "both wait", func() bool { return waits(3) })
	began := time.Now()
	late := load(keys[3:], false, within)
	until(t, "it waits, or its time is over", func() bool { return waits(4) || time.Since(began) > within })
	if err := prefill.Close(); err != nil {
		t.Fatal(err)
	}
	b.put(t, keys[2:3], size, wire.OutputCritical, 0) // by another engine of this node, say
	takeAll(t, l, keys[:3])
	var part client.Lease
	if first, err := late.Next(t.Context(), &part); err != nil || first != 0 || len(part.Blocks) != 1 || wire.CodeOf(part.Blocks[0].Err) != wire.CodeAbsent {
		t.Fatalf("part from %d, %d blocks, %v: want one that is ABSENT", first, len(part.Blocks), err)
	}
	part.Release()
	late.Close()
	b.put(t, keys[3:], size, wire.OutputCritical, 0)
	takeAll(t, both, keys)
	nothingWaits(t, decode)
}

// A holder that starts anew while a load waits for it alone ends the load, and one that
// began later than the daemon knows is waited for.
func TestALoadDoesNotWaitForAHolderThatHasStartedAnew(t *testing.T) {
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("unix://"+dir+"/link", "decode"))
	decode := startNode(t, dir, "decode", dialler("unix://"+dir+"/link", "prefill"))
	decode.ready(t)
	b := decode.loader(t, 1)
	keys := b.keys("k", 2)
	old := prefill.here()
	later := old
	later.Inc += uint64(time.Hour)
	o := client.LoadOptions{Wait: true, Holder: old, Deadline: patience}
	load := func(o client.LoadOptions) *client.Load {
		l, err := b.Load(t.Context(), b.space, keys, o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one := load(o)
	o.Fetch = true
	any := load(o)
	o.Fetch, o.Holder = false, later
	early := load(o)
	until(t, "all wait", func() bool { st := decode.engines.Stats(); return st.Asking == 6 && st.InFlight == 0 })
	if err := prefill.Close(); err != nil {
		t.Fatal(err)
	}
	prefill = startNode(t, dir, "prefill", listener("unix://"+dir+"/link", "decode"))
	if now := prefill.here(); now.Agent != old.Agent || now.Inc <= old.Inc {
		t.Fatalf("it is %+v now, was %+v", now, old)
	}
	absent := func(l *client.Load) {
		t.Helper()
		defer l.Close()
		n := 0
		for {
			var part client.Lease
			_, err := l.Next(t.Context(), &part)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range part.Blocks {
				n++
				if !errors.Is(part.Blocks[i].Err, wire.CodeAbsent) {
					t.Errorf("block %d: %v", n, part.Blocks[i].Err)
				}
			}
			part.Release()
		}
		if n != len(keys) || !strings.Contains(l.Why(), "a later one") {
			t.Errorf("%d blocks, %q", n, l.Why())
		}
	}
	absent(one)
	o.Holder = old
	absent(load(o)) // at once
	until(t, "the others wait", func() bool { st := decode.engines.Stats(); return st.Asking == 4 && st.InFlight == 0 })
	a := prefill.engine(t)
	a.put(t, keys, 64<<10, wire.OutputCritical, 0)
	takeAll(t, any, keys)
	takeAll(t, early, keys) // published here by now
	nothingWaits(t, decode)
}

// A hint that leads nowhere connects to nobody, and tells an engine nothing of a tenant
// that is not its own.
func TestAHintLeadsToConfiguredPeersOnly(t *testing.T) {
	prefill, decode := pair(t)
	b := decode.loader(t, 1)
	keys := b.keys("k", 1)
	before := len(decode.node.Peers())
	for name, at := range map[string]client.Holder{
		"unknown agent":       {Agent: [16]byte{0xee}, Inc: 1},
		"another incarnation": {Agent: prefill.id.agent, Inc: prefill.id.incarnation + 1},
		"this daemon":         decode.here(),
	} {
		all, err := b.LoadAll(t.Context(), b.space, keys, client.LoadOptions{Holder: at})
		if err != nil || !errors.Is(all.Blocks[0].Err, wire.CodeAbsent) || all.Why == "" {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
	if after := len(decode.node.Peers()); after != before {
		t.Errorf("%d peers, %d before", after, before)
	}
}
