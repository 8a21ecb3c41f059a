package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// served is a host whose fetches a test serves block by block.
type served struct {
	*host
	calls chan *fetchCall
}

type fetchCall struct {
	ctx  context.Context
	f    engine.Fetch
	mu   sync.Mutex
	errs []error
	over chan struct{} // closed when the call returns
	end  chan struct{} // closed by finish
}

func serve(h *host) *served {
	s := &served{h, make(chan *fetchCall, 64)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onFetch = func(ctx context.Context, f engine.Fetch) []error {
		c := &fetchCall{ctx: ctx, f: f, errs: make([]error, len(f.Keys)), over: make(chan struct{}), end: make(chan struct{})}
		defer close(c.over)
		s.calls <- c
		select {
		case <-c.end:
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			for i := range c.errs {
				c.errs[i] = wire.CodeOf(ctx.Err())
			}
		}
		return c.errs
	}
	return s
}

// give brings block i, or says that it is not there.
func (s *served) give(c *fetchCall, i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs[i] = s.bring(c.f.Owner, c.f.NS, c.f.Keys[i], c.f.Transient)
	c.f.Each(i, c.errs[i])
}

func (s *served) finish(c *fetchCall) {
	close(c.end)
	<-c.over
}

// A part leaves as soon as what leads has arrived, before the fetch is over; a failure
// in the middle is one item's.
func TestPartsLeaveAsBlocksArrive(t *testing.T) {
	n := startNode(t, nil)
	h := serve(n.host)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	for _, k := range "bce" {
		h.elsewhere(string(k), body(byte(k), 100))
	}
	r := n.loader(t)
	r.load(3, r.items("abcde", link.WantFetch)...)
	r.wants("3: 0 OK")
	c := <-h.calls
	h.give(c, 1) // c, behind b
	h.give(c, 0)
	r.wants("3: 1 OK OK")
	h.give(c, 2) // d is nowhere
	r.wants("3: 3 ABSENT")
	h.give(c, 3)
	r.wants("3: 4 OK", "3: END OK")
	h.finish(c)
	n.idle(t)
}

// idle waits until nothing is in flight.
func (n *node) idle(t testing.TB) {
	t.Helper()
	until(t, func() bool { return n.srv.Stats().InFlight == 0 })
	n.nothingWaits(t)
}

// What WAIT waits for is asked for again at other holders, and fetched once one has it.
func TestWhatIsWaitedForIsAskedForAgain(t *testing.T) {
	n := startNode(t, nil)
	r := n.loader(t)
	r.load(3, r.items("ab", link.WantFetch|link.WantWait)...)
	until(t, func() bool { st := n.srv.Stats(); return st.Asking == 2 && st.InFlight == 0 })
	n.host.elsewhere("b", body(2, 100))
	until(t, func() bool { return n.srv.Stats().Asking == 1 })
	n.host.elsewhere("a", body(1, 100))
	r.allOf(3, 2)
	n.idle(t)
	// One that is put here meanwhile is not asked for any more.
	e, ns := n.open(t)
	r.load(3, r.item("c", link.WantFetch|link.WantWait))
	until(t, func() bool { return n.srv.Stats().Asking == 1 })
	put(t, e, client.Block{NS: ns, Key: keyOf("c"), Body: body(3, 100)})
	r.wants("3: 0 OK", "3: END OK")
	n.idle(t)
}

// A thousand items of one namespace, of several LOADs, are one question.
func TestAThousandItemsAreOneQuestion(t *testing.T) {
	n := startNode(t, nil)
	all := make(chan int, 1024)
	n.host.mu.Lock()
	n.host.onFind = func(_ wire.Namespace, at engine.Holder, keys []wire.Key) []link.Have {
		if at != (engine.Holder{}) {
			t.Errorf("asked of %v", at)
		}
		select {
		case all <- len(keys):
		default:
		}
		return slices.Repeat([]link.Have{{Status: wire.CodeAbsent}}, len(keys))
	}
	n.host.mu.Unlock()
	r := n.loader(t)
	for i := range 4 {
		var items []link.LoadItem
		for k := range 250 {
			items = append(items, r.item(fmt.Sprint(i, " ", k), link.WantFetch|link.WantWait))
		}
		r.load(uint64(2*i+11), items...)
	}
	for most := 0; most < 1000; {
		most = max(most, <-all)
	}
	until(t, func() bool { st := n.srv.Stats(); return st.Asking == 1000 && st.InFlight == 0 })
	r.c.Close()
	n.wait(1)
	n.idle(t)
}

// A holder that is named goes with the request; without FETCH nobody else is asked, then
// or later.
func TestAHintGoesToTheHolder(t *testing.T) {
	n := startNode(t, nil)
	h := serve(n.host)
	asked := make(chan engine.Holder, 1024)
	n.host.mu.Lock()
	n.host.onFind = func(_ wire.Namespace, at engine.Holder, keys []wire.Key) []link.Have {
		select {
		case asked <- at:
		default:
		}
		return make([]link.Have, len(keys)) // it has all
	}
	n.host.mu.Unlock()
	r := n.loader(t)
	holders := []link.Holder{{Agent: [16]byte{1}, Inc: 11}, {Agent: [16]byte{2}, Inc: 22}}
	at := func(name string, holder uint16, slot uint32, flags uint16) link.LoadItem {
		it := r.item(name, flags)
		it.Holder, it.Slot, it.Gen = holder, slot, slot
		return it
	}
	ask := link.Load{DeadlineMS: 60_000, Holders: holders, Items: []link.LoadItem{
		at("a", 2, 5, 0), at("b", 2, 0, 0), at("c", 1, 0, link.WantFetch), at("d", 2, 7, link.WantWait),
	}}
	r.write(message(link.TypeLoad, 3, ask))
	for range 2 {
		c := <-h.calls
		switch c.f.Holder {
		case engine.Holder{Agent: [16]byte{2}, Inc: 22}:
			if c.f.Rest || len(c.f.Keys) != 3 || c.f.Refs[0] != (wire.Ref{Slot: 5, Gen: 5}) || c.f.Refs[1].Gen != 0 || c.f.Refs[2].Gen != 7 {
				t.Errorf("%+v", c.f)
			}
		case engine.Holder{Agent: [16]byte{1}, Inc: 11}:
			if !c.f.Rest || len(c.f.Keys) != 1 {
				t.Errorf("%+v", c.f)
			}
		default:
			t.Errorf("asked of %v", c.f.Holder)
		}
		for i := range c.f.Keys {
			h.give(c, i)
		}
		h.finish(c)
	}
	if codes, _, _ := r.parts(3, 3); codes != " ABSENT ABSENT ABSENT" {
		t.Errorf("three items are%s", codes)
	}
	if at := <-asked; at != (engine.Holder{Agent: [16]byte{2}, Inc: 22}) {
		t.Errorf("asked again of %v", at)
	}
	h.elsewhere("d", body(4, 100))
	c := <-h.calls
	if c.f.Rest || c.f.Refs[0].Gen != 0 { // a reference that failed is not tried again
		t.Errorf("%+v", c.f)
	}
	h.give(c, 0)
	h.finish(c)
	r.wants("3: 3 OK", "3: END OK")
	n.idle(t)
}

// A holder that has started anew ends what waits for it alone, and not what others may
// bring.
func TestAHolderThatHasStartedAnewIsNotWaitedFor(t *testing.T) {
	n := startNode(t, nil)
	var gone atomic.Bool
	errGone := fmt.Errorf("started anew: %w: %w", wire.CodeAbsent, wire.CodeIncarnation)
	n.host.mu.Lock()
	n.host.onFind = func(_ wire.Namespace, at engine.Holder, keys []wire.Key) []link.Have {
		code := wire.CodeAbsent
		if gone.Load() && at != (engine.Holder{}) {
			code = wire.CodeIncarnation
		}
		return slices.Repeat([]link.Have{{Status: code}}, len(keys))
	}
	n.host.onFetch = func(_ context.Context, f engine.Fetch) []error {
		if gone.Load() {
			return slices.Repeat([]error{errGone}, len(f.Keys))
		}
		return slices.Repeat([]error{wire.CodeAbsent}, len(f.Keys))
	}
	n.host.mu.Unlock()
	r := n.loader(t)
	holders := []link.Holder{{Agent: [16]byte{1}, Inc: 11}}
	ask := func(req uint64, flags uint16) {
		it := r.item("a", flags|link.WantWait)
		it.Holder = 1
		r.write(message(link.TypeLoad, req, link.Load{DeadlineMS: 60_000, Holders: holders, Items: []link.LoadItem{it}}))
	}
	ask(3, 0)
	ask(5, link.WantFetch)
	until(t, func() bool { st := n.srv.Stats(); return st.Asking == 2 && st.InFlight == 0 })
	gone.Store(true)
	r.wants("3: 0 ABSENT", "3: END OK "+errGone.Error())
	ask(7, 0)
	r.wants("7: 0 ABSENT", "7: END OK "+errGone.Error())
	until(t, func() bool { st := n.srv.Stats(); return st.Asking == 1 && st.InFlight == 0 })
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	r.wants("5: 0 OK", "5: END OK")
	n.idle(t)
}

// A LOAD counts as a request in flight while it fetches, and not while it waits. One
// that finds what it waits for goes on when there is room.
func TestALoadThatWaitsIsNotInFlight(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Reqs = 1 })
	h := serve(n.host)
	r := n.loader(t)
	r.load(3, r.item("a", link.WantFetch|link.WantWait))
	c := <-h.calls
	r.load(5, r.item("b", link.WantFetch))
	r.wants("5: END BUSY 1 requests of this session run, the limit is 1")
	h.give(c, 0)
	h.finish(c)
	until(t, func() bool { st := n.srv.Stats(); return st.Asking == 1 && st.InFlight == 0 })
	r.load(5, r.item("b", link.WantFetch)) // there is room while the first one waits
	c = <-h.calls
	n.host.elsewhere("a", body(1, 100))
	until(t, func() bool { return n.srv.Stats().Asking == 0 }) // found, and without room
	h.give(c, 0)
	h.finish(c)
	r.wants("5: 0 ABSENT", "5: END OK")
	c = <-h.calls
	h.give(c, 0)
	h.finish(c)
	r.wants("3: 0 OK", "3: END OK")
	n.idle(t)
}

// However a LOAD ends while it fetches, the fetch is told and waited for, and what it
// brought for this LOAD alone is gone.
func TestALoadThatFetchesEndsWithItsFetch(t *testing.T) {
	for _, how := range []string{"cancel", "close", "deadline"} {
		t.Run(how, func(t *testing.T) {
			n := startNode(t, nil)
			h := serve(n.host)
			for _, k := range "ab" {
				h.elsewhere(string(k), body(byte(k), 100))
			}
			r := n.loader(t)
			ask := link.Load{DeadlineMS: 60_000, Items: r.items("abc", link.WantFetch|link.WantTransient)}
			if how == "deadline" {
				ask.DeadlineMS = 100
			}
			r.write(message(link.TypeLoad, 3, ask))
			c := <-h.calls
			h.give(c, 1)
			switch how {
			case "cancel":
				r.write(message(link.TypeCancel, 3, link.Empty{}))
				r.wants("3: END CANCELLED")
			case "close":
				r.c.Close()
				n.wait(1)
			case "deadline":
				codes, _, leases := r.parts(3, 3)
				if codes != " DEADLINE OK DEADLINE" {
					t.Errorf("three items are%s", codes)
				}
				r.wants("3: END OK")
				r.release(5, leases...)
			}
			<-c.over
			n.idle(t)
			if st := n.store.Stats(); st.Transient != 0 || st.Leases != 0 {
				t.Errorf("%d transient blocks and %d leases are left", st.Transient, st.Leases)
			}
		})
	}
}

// A daemon that leaves lets a fetch end, and does not wait any more.
func TestADaemonThatLeavesLetsALoadsFetchEnd(t *testing.T) {
	n := startNode(t, nil)
	h := serve(n.host)
	h.elsewhere("a", body(1, 100))
	r := n.loader(t)
	r.load(3, r.items("ab", link.WantFetch|link.WantWait)...)
	c := <-h.calls
	drained := make(chan error, 1)
	go func() { drained <- n.srv.Drain(ctx) }()
	for r.next().f.Type != link.TypeGoAway {
	}
	h.give(c, 0)
	h.give(c, 1)
	h.finish(c)
	r.wants("3: 0 OK", "3: END DRAINING this daemon is leaving")
	if err := <-drained; err != nil {
		t.Error(err)
	}
	n.idle(t)
}

// A host that answers too little, too much, or nothing of what it told before leaves no
// item without a verdict, and none with two.
func TestAHostThatAnswersWrongly(t *testing.T) {
	n := startNode(t, nil)
	n.host.mu.Lock()
	n.host.onFetch = func(_ context.Context, f engine.Fetch) []error {
		f.Each(0, wire.CodeFull)
		f.Each(0, nil)
		f.Each(17, nil)
		return append(make([]error, 1, 9), wire.CodeAbsent, wire.CodeStale, nil, nil)
	}
	n.host.mu.Unlock()
	r := n.loader(t)
	r.load(3, r.items("abc", link.WantFetch)...)
	if codes, _, _ := r.parts(3, 3); codes != " FULL ABSENT STALE" {
		t.Errorf("three items are%s", codes)
	}
	r.wants("3: END OK")
	n.idle(t)
}
