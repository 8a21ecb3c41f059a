package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"meridian/adapters/link"
	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/transfer"
	"meridian/conformance/chaos"
	"meridian/fabric"
	"meridian/wire"
)

// findAt asks one peer for one block and returns its verdict.
func findAt(t *testing.T, p *link.Peer, ns wire.Namespace, key wire.Key) error {
	t.Helper()
	it := []fabric.Item{{NS: ns, Key: key}}
	p.Find(t.Context(), it)
	return it[0].Err
}

// pulls counts the pulls that the daemon asked for.
func (n *testNode) pulls() (count int) {
	for _, x := range n.mover.Log.List(1<<20, "", false) {
		if x.Op == transfer.OpPull && x.In {
			count++
		}
	}
	return count
}

// rearm puts a plan in force: a proxy's plan is for connections to come, so the
// lanes are cut and waited for.
func rearm(t *testing.T, n *testNode, proxy *chaos.Proxy, plan ...chaos.Action) {
	t.Helper()
	if err := proxy.Arm(plan...); err != nil {
		t.Fatal(err)
	}
	before := proxy.Stats().Conns
	proxy.CutAll()
	until(t, "the lanes are back", func() bool {
		p := n.node.Peers()[0]
		return p.State == link.StateReady && p.Lanes == testLanes && proxy.Stats().Conns >= before+uint64(p.Lanes)+1
	})
}

// While one load runs, all who ask for the same wait for it: one pull.
func TestManyEnginesCauseOnePull(t *testing.T) {
	far := waitingHolder(t)
	decode := startNode(t, shortDir(t), "decode", "", far)
	keys := decode.engine(t).keys("shared", 8)
	far.give(t, testManifest("acme").Namespace(), keys, 64<<10)
	const engines = 5
	var wg sync.WaitGroup
	for range engines {
		e := decode.engine(t)
		wg.Go(func() {
			for i, err := range e.fetch(t, keys) {
				if err != nil {
					t.Errorf("block %d: %v", i, err)
				}
			}
		})
	}
	until(t, "all have asked", func() bool { return decode.engines.Stats().InFlight == engines })
	far.let()
	wg.Wait()
	if n := decode.pulls(); n != 1 {
		t.Errorf("%d pulls for one set of keys, want 1", n)
	}
	decode.quietNow(t)
}

// The engine that asked first gives up in the middle: the second gets its blocks.
func TestACancelledFirstAskerDoesNotFailTheSecond(t *testing.T) {
	far := waitingHolder(t)
	decode := startNode(t, shortDir(t), "decode", "", far)
	first, second := decode.engine(t), decode.engine(t)
	keys := first.keys("shared", 8)
	far.give(t, first.ns, keys, 64<<10)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := first.Acquire(ctx, first.space, keys, client.AcquireOptions{Fetch: true})
		gone <- err
	}()
	until(t, "the first has claimed them", func() bool {
		return decode.mover.Flying() == len(keys)
	})
	fetched := make(chan []error, 1)
	go func() { fetched <- second.fetch(t, keys) }()
	until(t, "the second waits", func() bool { return decode.engines.Stats().InFlight == 2 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) && !errors.Is(err, wire.CodeCancelled) {
		t.Errorf("the first ends with %v", err)
	}
	far.let()
	for i, err := range <-fetched {
		if err != nil {
			t.Errorf("block %d of the second: %v", i, err)
		}
	}
	decode.quietNow(t)
}

// A key twice in one request is loaded once and given twice.
func TestAKeyTwiceInOneRequest(t *testing.T) {
	prefill, decode := pair(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("k", 2)
	a.put(t, keys, 4<<10, wire.OutputCritical, 0)
	b.mustFetch(t, []wire.Key{keys[0], keys[1], keys[0]})
	decode.quietNow(t)
}

// Every DATA frame of every connection is hit: the block is refused as
// CHECKSUM, counted, named in the log and in the transfer, and never stored.
func TestABlockWhoseEveryCopyArrivesWrongIsRefusedAsChecksum(t *testing.T) {
	prefill, decode, proxy := proxied(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("spoilt", 1)
	a.put(t, keys, 64<<10, wire.OutputCritical, 0)
	var plan []chaos.Action
	for k := range 16 {
		plan = append(plan, chaos.Action{Kind: chaos.Flip, Dir: chaos.ToFront, Frame: k + 1, Body: 100, Repeat: true})
	}
	rearm(t, decode, proxy, plan...)
	if err := b.fetch(t, keys)[0]; !errors.Is(err, wire.CodeChecksum) {
		t.Errorf("the engine is told %v, want CHECKSUM", err)
	}
	if n := len(proxy.Flips()); n != 3 {
		t.Errorf("%d copies were spoilt, want 3", n)
	}
	if v, _ := decode.series(t, `meridian_checksum_failures_total{where="link"}`); v != "3" {
		t.Errorf("meridian_checksum_failures_total is %q, want 3", v)
	}
	if log := decode.log.String(); !strings.Contains(log, "key="+keys[0].String()) || !strings.Contains(log, "number=104") {
		t.Error("the log does not name code and key")
	}
	res, err := decode.adminClient(t).ListTransfers(t.Context(), &adminpb.ListTransfersRequest{})
	if err != nil || len(res.Transfers) == 0 || wire.Code(res.Transfers[0].Code) != wire.CodeChecksum || res.Transfers[0].FailedItems != 1 {
		t.Errorf("the last transfer: %+v, %v", res.GetTransfers(), err)
	}
	if _, err := decode.store.Stat(keys[0]); !errors.Is(err, wire.CodeAbsent) {
		t.Errorf("the spoilt block is in the store: %v", err)
	}
	decode.quietNow(t)
	rearm(t, decode, proxy) // the path is repaired
	b.mustFetch(t, keys)
}

// What is fetched for one reader only is not published, and gone at its release.
func TestTransientFetchesAreFreedAtRelease(t *testing.T) {
	prefill, decode := pair(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("hand-off", 6)
	a.put(t, keys, 64<<10, wire.OutputCritical, 0)
	l, err := b.Acquire(t.Context(), b.space, keys, client.AcquireOptions{Fetch: true, Transient: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.Blocks {
		if err := errors.Join(l.Blocks[i].Err, chaos.CheckBody(l.Blocks[i].Body, keys[i])); err != nil {
			t.Errorf("block %d: %v", i, err)
		}
	}
	if n := decode.store.Stats().Transient; n != len(keys) {
		t.Errorf("%d transient blocks, want %d", n, len(keys))
	}
	other := decode.engine(t)
	have, err := other.Has(t.Context(), other.space, keys, false)
	if err != nil || have[0].Err == nil {
		t.Errorf("another engine sees a transient block: %+v, %v", have, err)
	}
	l.Release()
	decode.quietNow(t)
	if _, err := decode.store.Stat(keys[0]); !errors.Is(err, wire.CodeAbsent) {
		t.Errorf("after its release: %v", err)
	}
}

// A chain that does not fit together with what is held is loaded in parts; what finds
// no room is refused by its own code, and nothing leaks.
func TestAFetchIntoAnAlmostFullArenaIsSplit(t *testing.T) {
	prefill, decode := pair(t)
	a, b := prefill.engine(t), decode.engine(t)
	holder := decode.engine(t)
	const size = 250 << 10
	var leases []*client.Lease
	for i, k := range holder.keys("held", 64) {
		if err := holder.Put(t.Context(), holder.blocks([]wire.Key{k}, size, wire.OutputCritical, 0))[0]; err != nil {
			if errors.Is(err, wire.CodeFull) && i > 4 {
				break
			}
			t.Fatal(err)
		}
		l, err := holder.Acquire(t.Context(), holder.space, []wire.Key{k}, client.AcquireOptions{})
		if err != nil || l.Blocks[0].Err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	keys := a.keys("chain", 20)
	a.put(t, keys, size, wire.OutputCritical, 0)
	if err := b.fetch(t, keys)[0]; !errors.Is(err, wire.CodeFull) {
		t.Errorf("into a full arena: %v, want FULL", err)
	}
	for _, l := range leases[:6] {
		l.Release()
	}
	if err := holder.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	served := 0
	for i, err := range b.fetch(t, keys) {
		switch {
		case err == nil:
			served++
		case !errors.Is(err, wire.CodeFull) && !errors.Is(err, wire.CodeAbsent):
			t.Errorf("block %d: %v, want FULL or ABSENT", i, err)
		}
	}
	if served == 0 || served == len(keys) {
		t.Errorf("%d of %d blocks were served beside what is held, want some", served, len(keys))
	}
	for _, l := range leases[6:] {
		l.Release()
	}
	decode.quietNow(t)
}
