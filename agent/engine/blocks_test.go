package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

func TestPutBytesAreAcquired(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	sizes := []int{0, 1, 63, 64, 4096, 16 << 10, 200 << 10, 1 << 20}
	var in []client.Block
	var keys []wire.Key
	for i, size := range sizes {
		in = append(in, client.Block{NS: ns, Key: keyOf(fmt.Sprint(i)), Tier: wire.Tier(i % 3), Body: body(byte(i), size)})
		keys = append(keys, in[i].Key)
	}
	for i, err := range e.Put(ctx, in) {
		if err != nil {
			t.Fatalf("%d bytes: %v", sizes[i], err)
		}
	}
	l, err := e.Acquire(ctx, ns, append(keys, keyOf("none")), client.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range sizes {
		b := &l.Blocks[i]
		if b.Err != nil || !bytes.Equal(b.Body, in[i].Body) || b.Tier != in[i].Tier || b.Att != wire.AttestProducer {
			t.Errorf("%d bytes: %v, other bytes or tier", sizes[i], b.Err)
		}
		if err := b.Head.Check(b.Body); err != nil {
			t.Errorf("%d bytes: %v", sizes[i], err)
		}
		dst := make([]byte, sizes[i])
		if err := b.CopyTo(dst); err != nil || !bytes.Equal(dst, in[i].Body) {
			t.Errorf("%d bytes: copy: %v", sizes[i], err)
		}
		if len(dst) > 0 {
			is(t, b.CopyTo(dst[1:]), wire.CodeTooLarge)
		}
	}
	is(t, l.Blocks[len(sizes)].Err, wire.CodeAbsent)
	is(t, l.Blocks[len(sizes)].Check(), wire.CodeAbsent)
	if got := n.store.Stats().Leases; got != 1 {
		t.Errorf("%d leases, want 1", got)
	}
	l.Release()
	l.Release()
	if err := e.Ping(ctx); err != nil { // RELEASE travels in front of it
		t.Fatal(err)
	}
	if got := n.store.Stats().Leases; got != 0 {
		t.Errorf("%d leases after release", got)
	}
}

func TestPutTwiceIsExists(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	errs := e.Put(ctx, []client.Block{
		{NS: ns, Key: keyOf("a"), Body: body(2, 100)},
		{NS: ns, Key: keyOf("b"), Body: body(3, 100)},
		{NS: ns, Key: keyOf("b"), Body: body(4, 100)},
	})
	is(t, errs[0], wire.CodeExists)
	if errs[1] != nil {
		t.Error(errs[1])
	}
	is(t, errs[2], wire.CodeExists)
	l := acquire(t, e, ns, client.AcquireOptions{}, "a", "b")
	if !bytes.Equal(l.Blocks[0].Body, body(1, 100)) || !bytes.Equal(l.Blocks[1].Body, body(3, 100)) {
		t.Error("a second put changed a block")
	}
	l.Release()
}

func TestFullSaysNeedAndFree(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.Capacity = 1 << 20 })
	e, ns := n.open(t)
	var held []*client.Lease
	for i := 0; ; i++ {
		err := e.Put(ctx, []client.Block{{NS: ns, Key: keyOf(fmt.Sprint(i)), Tier: wire.OutputCritical, Body: body(1, 100<<10)}})[0]
		if err == nil {
			held = append(held, acquire(t, e, ns, client.AcquireOptions{}, fmt.Sprint(i)))
			continue
		}
		is(t, err, wire.CodeFull)
		if !strings.Contains(err.Error(), "FULL: arena full: need 1") || !strings.Contains(err.Error(), " bytes, have ") {
			t.Fatalf("error %v, want the bytes needed and free", err)
		}
		break
	}
	if len(held) == 0 {
		t.Fatal("nothing fitted")
	}
	for _, l := range held {
		l.Release()
	}
}

func TestBatchThatDoesNotFitStoresWhatFits(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.Capacity = 1 << 20 })
	e, ns := n.open(t)
	const size = 30 << 10 // eight of them are one request: see ringParts
	var held []*client.Lease
	for i := 0; ; i++ {
		name := fmt.Sprint("held", i)
		if e.Put(ctx, []client.Block{{NS: ns, Key: keyOf(name), Tier: wire.OutputCritical, Body: body(1, size)}})[0] != nil {
			break
		}
		held = append(held, acquire(t, e, ns, client.AcquireOptions{}, name))
	}
	for range 3 {
		held[0].Release()
		held = held[1:]
	}
	var in []client.Block
	for i := range 8 {
		in = append(in, client.Block{NS: ns, Key: keyOf(fmt.Sprint(i)), Tier: wire.OutputCritical, Body: body(byte(i), size)})
	}
	stored := 0
	for i, err := range e.Put(ctx, in) {
		if err == nil {
			stored++
			held = append(held, acquire(t, e, ns, client.AcquireOptions{}, fmt.Sprint(i)))
		} else {
			is(t, err, wire.CodeFull)
		}
	}
	if stored != 3 {
		t.Errorf("%d of 8 were stored, there was room for 3", stored)
	}
	for _, l := range held {
		l.Release()
	}
}

func TestBodyAboveTheManifestsBlockIsTooLarge(t *testing.T) {
	n := startNode(t, nil)
	e := n.dial(t, client.Options{})
	m := manifest("acme")
	m.BlockBytes = 1000
	ns, err := e.Open(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	errs := e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("a"), Body: body(1, 1000)}, {NS: ns, Key: keyOf("b"), Body: body(1, 1001)}})
	if errs[0] != nil {
		t.Error(errs[0])
	}
	is(t, errs[1], wire.CodeTooLarge)
}

func TestLapsedLeaseIsCaughtByTheGeneration(t *testing.T) {
	var mu sync.Mutex
	now := time.Duration(0)
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) {
		b.Capacity = 1 << 20
		b.Clock = func() time.Duration { mu.Lock(); defer mu.Unlock(); return now }
	})
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100<<10)})
	l := acquire(t, e, ns, client.AcquireOptions{TTL: time.Second}, "a")
	if err := l.Renew(ctx, 2*time.Second); err != nil {
		t.Error(err)
	}
	mu.Lock()
	now = 3 * time.Second
	mu.Unlock()
	is(t, l.Renew(ctx, time.Second), wire.CodeLeaseLost)
	for i := range 30 { // more than the arena, and used as well: every idle slot is used again
		put(t, e, client.Block{NS: ns, Key: keyOf(fmt.Sprint(i)), Body: body(2, 100<<10)})
		acquire(t, e, ns, client.AcquireOptions{}, fmt.Sprint(i)).Release()
	}
	is(t, l.Blocks[0].Check(), wire.CodeStale)
	is(t, l.Blocks[0].CopyTo(make([]byte, 100<<10)), wire.CodeStale)
	l.Release()
}

func TestHeldBlocksAreNotEvicted(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.Capacity, b.HoldBytes = 1<<20, 150<<10 })
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100<<10)})
	l := acquire(t, e, ns, client.AcquireOptions{Hold: true}, "a")
	_, err := e.Acquire(ctx, ns, []wire.Key{keyOf("a")}, client.AcquireOptions{Hold: true})
	is(t, err, wire.CodeBusy) // above the cap
	for i := range 30 {
		put(t, e, client.Block{NS: ns, Key: keyOf(fmt.Sprint(i)), Body: body(2, 100<<10)})
	}
	if err := l.Blocks[0].Check(); err != nil || !bytes.Equal(l.Blocks[0].Body, body(1, 100<<10)) {
		t.Errorf("a held block changed: %v", err)
	}
	l.Release()
}

// The store's time moves on by a third of the lease's with each renewal that the test
// has seen, and stands still otherwise.
func TestRenewalKeepsATimedLease(t *testing.T) {
	const ttl, rounds = 300 * time.Millisecond, 7
	var now atomic.Int64
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) {
		b.Clock = func() time.Duration { return time.Duration(now.Load()) }
	})
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	renewed := make(chan struct{})
	n.onRequest(func(typ link.Type) {
		if typ == link.TypeRenew {
			select {
			case renewed <- struct{}{}:
			default: // the test has not seen the last one yet
			}
		}
	})
	l := acquire(t, e, ns, client.AcquireOptions{Renew: true, TTL: ttl}, "a")
	for range rounds {
		<-renewed
		now.Add(int64(ttl / 3))
		n.store.Step(blocks.Input{})
	}
	if l.Lost() {
		t.Error("the lease was lost")
	}
	if err := l.Renew(ctx, time.Second); err != nil {
		t.Error(err)
	}
	l.Release()
}

// scribble overwrites bytes of the ring behind the library's back.
// An engine that changes its ring while the daemon copies gets whatever was
// copied: what is published matches its own checksum.
// Whatever descriptor an engine got, it cannot make one of it that writes.
func TestAnotherTenantsBlocksCannotBeNamed(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})

	// Another tenant's session sees no segment of acme's, and finds no key of it.
	r, segs := n.opened(t, "other")
	for _, s := range segs {
		if s.Kind != link.SegStaging {
			t.Errorf("segment %d of kind %d was announced", s.ID, s.Kind)
		}
	}
	r.write(message(link.TypeAcquire, 3, link.Acquire{DeadlineMS: 1000, Items: []link.Want{{Key: keyOf("a")}, {NS: 1, Key: keyOf("a")}}}))
	got := r.next()
	if got.f.Type != link.TypeAcquired {
		t.Fatalf("%s instead of ACQUIRED", got.f.Type)
	}
	a, err := link.Parse[link.Acquired](got.p)
	if err != nil {
		t.Fatal(err)
	}
	if a.Items[0].Status != wire.CodeAbsent || a.Items[1].Status != wire.CodeNSUnknown || a.Lease != ([16]byte{}) {
		t.Errorf("answered %s and %s", a.Items[0].Status, a.Items[1].Status)
	}
	r.end(r.next(), 3)

	// A tenant that is not allowed learns nothing else, whether its namespace exists
	// or not.
	forbidden := n.dial(t, client.Options{})
	_, err = forbidden.Open(ctx, manifest("stranger"))
	is(t, err, wire.CodeNSUnknown)
	if want := "tenant is not in security.tenants"; !strings.Contains(err.Error(), want) {
		t.Errorf("the refusal is %q, want %q in it", err, want)
	}
	l, err := forbidden.Acquire(ctx, 0, []wire.Key{keyOf("a")}, client.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	is(t, l.Blocks[0].Err, wire.CodeNSUnknown)
	l.Release()
}

func TestLeaseOfAnotherSessionIsNotReleased(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	r, _ := n.opened(t, "acme")
	r.write(message(link.TypeAcquire, 3, link.Acquire{DeadlineMS: 1000, Items: []link.Want{{Key: keyOf("a")}}}))
	a, err := link.Parse[link.Acquired](r.next().p)
	if err != nil {
		t.Fatal(err)
	}
	r.end(r.next(), 3)
	thief, _ := n.opened(t, "acme")
	thief.write(message(link.TypeRelease, 3, link.Release{Leases: [][16]byte{a.Lease}}))
	thief.end(thief.next(), 3)
	thief.write(message(link.TypeRenew, 5, link.Renew{Lease: a.Lease, MS: 1000}))
	if e := thief.end(thief.next(), 5); e.Code != wire.CodeLeaseLost {
		t.Errorf("RENEW of another's lease: %s", e.Code)
	}
	if got := n.store.Stats().Leases; got != 1 {
		t.Errorf("%d leases, want 1", got)
	}
}

func TestGeometryNamesTheField(t *testing.T) {
	n := startNode(t, nil)
	n.host.refuse = &wire.GeometryError{Field: "block_tokens", Ours: "16", Theirs: "32"}
	e := n.dial(t, client.Options{})
	_, err := e.Open(ctx, manifest("acme"))
	is(t, err, wire.CodeGeometry)
	var oe *client.OpenError
	if !errors.As(err, &oe) || oe.Field != "block_tokens" || oe.Ours != "32" || oe.Theirs != "16" {
		t.Errorf("%v", err)
	}
	if !strings.Contains(err.Error(), "block_tokens") {
		t.Errorf("the message does not name the field: %v", err)
	}
}

func TestOpenTwiceIsOneNumber(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Namespaces = 2 })
	e, ns := n.open(t)
	again, err := e.Open(ctx, manifest("acme"))
	if err != nil || again != ns {
		t.Errorf("number %d (%v), want %d", again, err, ns)
	}
	m := manifest("acme")
	m.Revision = "r2"
	if second, err := e.Open(ctx, m); err != nil || second == ns {
		t.Errorf("number %d (%v) for another namespace", second, err)
	}
	m.Revision = "r3"
	_, err = e.Open(ctx, m)
	is(t, err, wire.CodeTooMany)
}

func TestManyGoroutinesShareAnEngine(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, c *engine.Config) {
		b.Capacity, b.ExtentBytes, c.Limits.Reqs = 64<<20, 256<<10, 4
	})
	e, ns := n.open(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprint(g%3, "/", i%20)
				size := 100 + 5000*(i%20)
				if err := e.Put(ctx, []client.Block{{NS: ns, Key: keyOf(name), Tier: wire.Tier(i % 3), Body: body(byte(i%20), size)}})[0]; err != nil && !errors.Is(err, wire.CodeExists) {
					t.Error(err)
				}
				l, err := e.Acquire(ctx, ns, []wire.Key{keyOf(name)}, client.AcquireOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if b := &l.Blocks[0]; b.Err != nil || !bytes.Equal(b.Body, body(byte(i%20), size)) {
					t.Errorf("%s: %v, or other bytes", name, b.Err)
				}
				l.Release()
			}
		})
	}
	wg.Wait()
}

// PUTs that are too large for the reader are copied side by side. They name the same
// keys, and some are given up on the way: each block is whole all the same, and
// nothing is left of the others (startNode looks).
func TestAcquireAllocatesNothing(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	keys := make([]wire.Key, 16)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint(i))
		put(t, e, client.Block{NS: ns, Key: keys[i], Body: body(1, 16<<10)})
	}
	l := new(client.Lease)
	got := testing.AllocsPerRun(2000, func() {
		if err := e.AcquireInto(ctx, l, ns, keys, client.AcquireOptions{}); err != nil {
			t.Fatal(err)
		}
		l.Release()
	})
	if got >= 1 && !raceEnabled { // the race detector's own are counted too
		t.Errorf("%v allocations for an ACQUIRE, both sides together", got)
	}
}
