package engine_test

import (
	"context"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// drains starts a drain without a bound of its own.
func (n *node) drains() (ended chan error) {
	ended = make(chan error, 1)
	go func() { ended <- n.srv.Drain(context.Background()) }()
	return ended
}

// fetches starts an ACQUIRE that waits for a block from elsewhere, which comes when
// the host's gate opens.
func (n *node) fetches(t *testing.T, ctx context.Context, e *client.Engine, ns client.NS, deadline time.Duration) (got chan error) {
	t.Helper()
	n.host.elsewhere("there", body(2, 100))
	got = make(chan error, 1)
	go func() {
		l, err := e.Acquire(ctx, ns, []wire.Key{keyOf("there")}, client.AcquireOptions{Fetch: true, Deadline: deadline})
		if err == nil {
			err = l.Blocks[0].Err
			l.Release()
		}
		got <- err
	}()
	select {
	case <-n.host.fetching:
	case <-time.After(time.Minute):
		t.Fatal("nothing is fetched")
	}
	return got
}

func still(t *testing.T, ended chan error) {
	t.Helper()
	select {
	case err := <-ended:
		t.Errorf("the drain has ended, with %v", err)
		ended <- err
	default:
	}
}

// Leases and generation requests end when their engine says so, which may be in an
// hour: a drain waits for neither, and both are served until the server is closed.
func TestADrainWaitsForNoLeaseAndNoGeneration(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	held := acquire(t, e, ns, client.AcquireOptions{}, "a")
	req, err := e.Begin(ctx, client.Begin{ID: "r", Model: "m", Prompt: []int32{1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-n.drains(); err != nil {
		t.Errorf("drain: %v", err)
	}
	if err := e.Tokens([]uint32{req}, []uint8{1}, []int32{7}); err != nil {
		t.Errorf("a token of a request that runs: %v", err)
	}
	if err := held.Renew(ctx, time.Minute); err != nil {
		t.Errorf("a lease that is held: %v", err)
	}
	if err := e.Finish(ctx, req, false); err != nil {
		t.Errorf("the end of a request that runs: %v", err)
	}
	held.Release()
	if err := e.Ping(ctx); err != nil { // RELEASE has no answer
		t.Fatal(err)
	}
	if st := n.store.Stats(); st.Leases != 0 {
		t.Errorf("%d leases are left", st.Leases)
	}
}

// A PUT whose bytes are being copied ends well, and the drain with it.
func TestADrainWaitsForAPutThatRuns(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	copied, let := make(chan struct{}), make(chan struct{})
	hold := func(ty link.Type) {
		if ty == link.TypePut {
			close(copied)
			<-let
		}
	}
	n.watch.request.Store(&hold)
	stored := make(chan error, 1)
	go func() {
		stored <- e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("a"), Body: body(1, 300_000)}})[0]
	}()
	<-copied
	ended := n.drains()
	eventually(t, "the engine is told", func() bool { return e.Draining() })
	still(t, ended)
	close(let)
	if err := <-stored; err != nil {
		t.Errorf("the PUT: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("drain: %v", err)
	}
}

// What its asker has given up, by CANCEL or by going away, is not waited for.
func TestADrainWaitsForNothingThatWasGivenUp(t *testing.T) {
	for name, giveUp := range map[string]func(cancel context.CancelFunc, e *client.Engine){
		"cancelled": func(cancel context.CancelFunc, _ *client.Engine) { cancel() },
		"gone":      func(_ context.CancelFunc, e *client.Engine) { _ = e.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			n, e, ns := stuck(t, 8) // its gate never opens
			asks, cancel := context.WithCancel(ctx)
			defer cancel()
			got := n.fetches(t, asks, e, ns, link.MaxDeadline)
			ended := n.drains()
			eventually(t, "the engine is told", func() bool { return e.Draining() })
			still(t, ended)
			giveUp(cancel, e)
			if err := <-got; err == nil {
				t.Error("the request that was given up ended well")
			}
			if err := <-ended; err != nil {
				t.Errorf("drain: %v", err)
			}
		})
	}
}

// Its own deadline ends a request whose blocks never come, and so the drain.
func TestARequestsDeadlineEndsADrain(t *testing.T) {
	n, e, ns := stuck(t, 8)
	got := n.fetches(t, ctx, e, ns, time.Second)
	if err := <-n.drains(); err != nil {
		t.Errorf("drain: %v", err)
	}
	if err := <-got; err == nil {
		t.Error("a block came that nobody sent")
	}
}

// The last of several requests is what is waited for.
func TestADrainWaitsForTheLastRequest(t *testing.T) {
	n, e, ns := stuck(t, 8)
	first := n.fetches(t, ctx, e, ns, link.MaxDeadline)
	other, oth := n.open(t)
	second := n.fetches(t, ctx, other, oth, link.MaxDeadline)
	ended := n.drains()
	eventually(t, "both engines are told", func() bool { return e.Draining() && other.Draining() })
	if err := e.Close(); err != nil { // the first one's request has nobody left
		t.Error(err)
	}
	<-first
	eventually(t, "one request is in flight", func() bool { return n.srv.Stats().InFlight == 1 })
	still(t, ended)
	close(n.host.gate)
	if err := <-second; err != nil {
		t.Errorf("the request that ran: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("drain: %v", err)
	}
}

// eventually waits for cond.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
