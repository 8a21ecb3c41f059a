package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// elsewhere gives another holder a block.
func (h *host) elsewhere(name string, b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remote[keyOf(name)] = b
}

func TestMissingBlocksAreFetched(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("here"), Body: body(1, 100)})
	n.host.elsewhere("there", body(2, 100))
	keys := []wire.Key{keyOf("here"), keyOf("there"), keyOf("nowhere")}

	l, err := e.Acquire(ctx, ns, keys, client.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	is(t, l.Blocks[1].Err, wire.CodeAbsent)
	l.Release()
	for _, hold := range []bool{false, true} {
		if l, err = e.Acquire(ctx, ns, keys, client.AcquireOptions{Fetch: true, Hold: hold}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(l.Blocks[0].Body, body(1, 100)) || !bytes.Equal(l.Blocks[1].Body, body(2, 100)) {
			t.Error("other bytes")
		}
		is(t, l.Blocks[2].Err, wire.CodeAbsent)
		if st := n.store.Stats(); st.Leases != 1 || (st.Holds == 1) != hold {
			t.Errorf("%d leases, %d holds", st.Leases, st.Holds)
		}
		l.Release()
	}
	// Published: the next one finds it without asking anybody.
	before := n.host.fetches
	acquire(t, e, ns, client.AcquireOptions{Fetch: true}, "there").Release()
	if n.host.fetches != before {
		t.Error("what is here was fetched")
	}
}

func TestTransientBlocksGoAtRelease(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	n.host.elsewhere("there", body(2, 100))
	l := acquire(t, e, ns, client.AcquireOptions{Fetch: true, Transient: true}, "there")
	if !bytes.Equal(l.Blocks[0].Body, body(2, 100)) {
		t.Error("other bytes")
	}
	found, err := e.Has(ctx, ns, []wire.Key{keyOf("there")}, false)
	if err != nil {
		t.Fatal(err)
	}
	is(t, found[0].Err, wire.CodeAbsent) // not published
	l.Release()
	if err := e.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if got := n.store.Stats().Transient; got != 0 {
		t.Errorf("%d transient blocks after release", got)
	}
}

// stuck is a node whose Fetch waits, with one ACQUIRE in it.
func stuck(t *testing.T, reqs int) (n *node, e *client.Engine, ns client.NS) {
	t.Helper()
	n = startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Reqs = reqs })
	n.host.gate = make(chan struct{})
	e, ns = n.open(t)
	return n, e, ns
}

func TestOtherRequestsGoOnWhileOneFetches(t *testing.T) {
	n, e, ns := stuck(t, 8)
	n.host.elsewhere("there", body(2, 100))
	got := make(chan error, 1)
	go func() {
		l, err := e.Acquire(ctx, ns, []wire.Key{keyOf("there")}, client.AcquireOptions{Fetch: true})
		if err == nil {
			err = l.Blocks[0].Err
			l.Release()
		}
		got <- err
	}()
	<-n.host.fetching
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	acquire(t, e, ns, client.AcquireOptions{}, "a").Release()
	if n.srv.Stats().InFlight != 1 {
		t.Error("the fetch is not in flight")
	}
	close(n.host.gate)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestFetchStopsAtItsDeadline(t *testing.T) {
	n, e, ns := stuck(t, 8)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	for d := 20 * time.Millisecond; len(n.host.fetching) == 0; d *= 2 { // it may be over before the fetch begins
		l, err := e.Acquire(ctx, ns, []wire.Key{keyOf("a"), keyOf("there")}, client.AcquireOptions{Fetch: true, Deadline: d})
		if err != nil {
			t.Fatal(err)
		}
		if l.Blocks[0].Err != nil { // what is here is granted all the same
			t.Error(l.Blocks[0].Err)
		}
		is(t, l.Blocks[1].Err, wire.CodeDeadline)
		l.Release()
	}
}

func TestContextCancelsTheFetch(t *testing.T) {
	n, e, ns := stuck(t, 8)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	for _, fetch := range []func(context.Context) error{
		func(c context.Context) error {
			_, err := e.Acquire(c, ns, []wire.Key{keyOf("a"), keyOf("there")}, client.AcquireOptions{Fetch: true})
			return err
		},
	} {
		c, cancel := context.WithCancel(ctx)
		got := make(chan error, 1)
		go func() { got <- fetch(c) }()
		<-n.host.fetching
		cancel()
		err := <-got
		is(t, err, wire.CodeCancelled)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not match the context's error", err)
		}
	}
	// The daemon has let go too, of the pin on what was here as well.
	dctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := n.srv.Drain(dctx); err != nil {
		t.Fatal(err)
	}
	if got := n.store.Stats().Leases; got != 0 {
		t.Errorf("%d leases", got)
	}
}

// An answer that comes when nobody waits for it any more is given back.
func TestLeaseOfAnAbandonedAcquireIsReleased(t *testing.T) {
	n, e, ns := stuck(t, 8)
	for i := range 20 {
		name := fmt.Sprint(i)
		n.host.elsewhere(name, body(2, 100))
		c, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if l, err := e.Acquire(c, ns, []wire.Key{keyOf(name)}, client.AcquireOptions{Fetch: true, Transient: true}); err == nil {
				l.Release()
			}
		}()
		<-n.host.fetching
		go cancel() // races with the answer
		select {
		case n.host.gate <- struct{}{}:
		case <-done:
		}
		<-done
	}
	e.Close()
	n.wait(1)
	n.nothingHeld(t)
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	n, _, _ := stuck(t, 2)
	r, _ := n.opened(t, "acme")
	ask := func(req uint64) {
		r.write(message(link.TypeAcquire, req, link.Acquire{DeadlineMS: 60000, Items: []link.Want{{Flags: link.WantFetch, Key: keyOf("there")}}}))
	}
	ask(3)
	ask(5)
	ask(7)
	e := r.end(r.next(), 7)
	if e.Code != wire.CodeBusy || e.RetryMS == 0 {
		t.Errorf("the third of two: %s, retry after %d ms", e.Code, e.RetryMS)
	}
	r.write(message(link.TypeCancel, 3, link.Empty{}))
	if e := r.end(r.next(), 3); e.Code != wire.CodeCancelled {
		t.Errorf("cancelled request ended %s", e.Code)
	}
	r.write(message(link.TypeCancel, 3, link.Empty{})) // again, and for nothing
	r.write(message(link.TypeCancel, 99, link.Empty{}))
	r.write(message(link.TypePing, 9, link.Empty{}))
	if e := r.end(r.next(), 9); e.Code != wire.CodeOK {
		t.Errorf("PING: %s", e.Code)
	}
	ask(5)
	r.refusedWith(wire.CodeState) // the number is in flight
}

func TestHasLooksElsewhere(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("here"), Tier: wire.ThinkActive, Body: body(1, 100)})
	n.host.elsewhere("there", body(2, 200))
	keys := []wire.Key{keyOf("here"), keyOf("there"), keyOf("nowhere")}
	for _, remote := range []bool{false, true} {
		f, err := e.Has(ctx, ns, keys, remote)
		if err != nil {
			t.Fatal(err)
		}
		if f[0].Err != nil || !f[0].Here || f[0].Tier != wire.ThinkActive || f[0].Head.Check(body(1, 100)) != nil {
			t.Errorf("here: %+v", f[0])
		}
		if remote {
			if f[1].Err != nil || f[1].Here || f[1].Head.Check(body(2, 200)) != nil {
				t.Errorf("there: %+v", f[1])
			}
		} else {
			is(t, f[1].Err, wire.CodeAbsent)
		}
		is(t, f[2].Err, wire.CodeAbsent)
	}
	f, err := e.Has(ctx, 77, keys[:1], true)
	if err != nil {
		t.Fatal(err)
	}
	is(t, f[0].Err, wire.CodeNSUnknown)
}

func TestDrainSaysGoodbyeAndWaitsForWhatRuns(t *testing.T) {
	n, e, ns := stuck(t, 8)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	held := acquire(t, e, ns, client.AcquireOptions{}, "a")
	n.host.elsewhere("there", body(2, 100))
	got := make(chan error, 1)
	go func() {
		l, err := e.Acquire(ctx, ns, []wire.Key{keyOf("there")}, client.AcquireOptions{Fetch: true})
		if err == nil {
			l.Release()
		}
		got <- err
	}()
	<-n.host.fetching
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := n.srv.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain with a request in flight returned %v", err)
	}
	if err := e.Ping(ctx); err != nil { // comes after GOAWAY
		t.Fatal(err)
	}
	if !e.Draining() {
		t.Error("no GOAWAY came")
	}
	_, err := e.Acquire(ctx, ns, []wire.Key{keyOf("a")}, client.AcquireOptions{})
	is(t, err, wire.CodeDraining)
	is(t, e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("b"), Body: body(1, 10)}})[0], wire.CodeDraining)
	_, err = e.Begin(ctx, client.Begin{Model: "m"})
	is(t, err, wire.CodeDraining)
	_, err = client.DialEngine(ctx, n.path, client.Options{})
	is(t, err, wire.CodeDraining)
	if err := held.Renew(ctx, time.Second); err != nil { // what is held stays held
		t.Error(err)
	}
	close(n.host.gate)
	if err := n.srv.Drain(ctx); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Errorf("the request that ran: %v", err)
	}
	held.Release()
}

func TestCloseEndsCallsWithAClearError(t *testing.T) {
	n, e, ns := stuck(t, 8)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	l := acquire(t, e, ns, client.AcquireOptions{Renew: true, TTL: time.Second}, "a")
	got := make(chan error, 1)
	go func() {
		_, err := e.Acquire(ctx, ns, []wire.Key{keyOf("there")}, client.AcquireOptions{Fetch: true})
		got <- err
	}()
	<-n.host.fetching
	n.srv.Close()
	err := <-got
	var closed *client.ClosedError
	if !errors.As(err, &closed) || !errors.Is(err, wire.CodeLaneLost) {
		t.Errorf("the call ended with %v", err)
	}
	<-e.Gone()
	for i, err := range []error{
		e.Err(), e.Ping(ctx), e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("b"), Body: body(1, 10)}})[0],
		e.Tokens([]uint32{1}, []uint8{1}, []int32{1}), e.Finish(ctx, 1, true),
	} {
		if !errors.Is(err, wire.CodeLaneLost) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if !bytes.Equal(l.Blocks[0].Body, body(1, 100)) { // still mapped
		t.Error("other bytes")
	}
	l.Release()
	e.Close()
	e.Close()
	if got := fmt.Sprint(n.srv.Stats().Sessions); got != "0" {
		t.Errorf("%s sessions", got)
	}
}
