package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

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

func TestStagedBodiesAreNotCopiedAndComeBack(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	for round := range 20 { // 20 x 900 KiB through a ring of 1 MiB
		b, err := e.Stage(ctx, 900<<10)
		if err != nil {
			t.Fatal(err)
		}
		copy(b, body(byte(round), len(b)))
		name := fmt.Sprint(round)
		put(t, e, client.Block{NS: ns, Key: keyOf(name), Body: b[:1000+round]})
		l := acquire(t, e, ns, client.AcquireOptions{}, name)
		if !bytes.Equal(l.Blocks[0].Body, body(byte(round), 1000+round)) {
			t.Error("other bytes")
		}
		l.Release()
	}
	b, err := e.Stage(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	e.Unstage(b)
	_, err = e.Stage(ctx, 2<<20)
	is(t, err, wire.CodeTooLarge)
	is(t, e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("big"), Body: make([]byte, 2<<20)}})[0], wire.CodeTooLarge)
}

func TestStageNeedsAnOpenNamespace(t *testing.T) {
	n := startNode(t, nil)
	e := n.dial(t, client.Options{})
	_, err := e.Stage(ctx, 1)
	is(t, err, wire.CodeState)
	is(t, e.Put(ctx, []client.Block{{Body: []byte{1}}})[0], wire.CodeState)
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
		var full *client.FullError
		if !errors.As(err, &full) || full.Need < 100<<10 || full.Free >= 1<<20 {
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

func TestPlacesOutsideTheRingAreRefused(t *testing.T) {
	n := startNode(t, nil)
	r, _ := n.opened(t, "acme")
	const ring = 1 << 20
	items := []link.PutItem{
		{Off: ring, Len: 1, Key: keyOf("a")},
		{Off: ring - 1, Len: 2, Key: keyOf("b")},
		{Off: 1<<64 - 1, Len: 2, Key: keyOf("c")},
		{Off: 0, Len: 1<<32 - 1, Key: keyOf("d")},
		{Off: ring, Len: 0, Key: keyOf("e")},
		{Off: ring - 5, Len: 5, Key: keyOf("f")},
		{NS: 9, Len: 1, Key: keyOf("g")},
	}
	r.write(message(link.TypePut, 3, link.Put{DeadlineMS: 1000, Items: items}))
	e := r.end(r.next(), 3)
	want := []wire.Code{wire.CodeInvalid, wire.CodeInvalid, wire.CodeInvalid, wire.CodeInvalid, wire.CodeOK, wire.CodeOK, wire.CodeNSUnknown}
	if fmt.Sprint(e.Status) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", e.Status, want)
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
	for i := range 30 { // more than the arena: every idle slot is used again
		put(t, e, client.Block{NS: ns, Key: keyOf(fmt.Sprint(i)), Body: body(2, 100<<10)})
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
func scribble(ring []byte, n int, v byte) {
	b := unsafe.Slice(&ring[0], n)
	for i := 0; i < len(b); i += 61 {
		b[i] = v
	}
}

// An engine that changes its ring while the daemon copies gets whatever was
// copied: what is published matches its own checksum.
func TestScribblingOnTheRingNeverPublishesAWrongBlock(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	const size = 200 << 10
	for round := range 40 {
		b, err := e.Stage(ctx, size)
		if err != nil {
			t.Fatal(err)
		}
		ring := b[:1]
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for v := byte(0); ; v++ {
				select {
				case <-stop:
					return
				default:
				}
				scribble(ring, size, v)
			}
		}()
		name := fmt.Sprint(round)
		put(t, e, client.Block{NS: ns, Key: keyOf(name), Body: b})
		close(stop)
		<-stopped
		l := acquire(t, e, ns, client.AcquireOptions{}, name)
		if err := l.Blocks[0].Head.Check(l.Blocks[0].Body); err != nil {
			t.Fatal(err)
		}
		if err := n.store.Verify(blocks.View{NS: manifest("acme").Namespace(), Key: keyOf(name)}); err != nil {
			t.Fatal(err)
		}
		l.Release()
	}
}

// Whatever descriptor an engine got, it cannot make one of it that writes.
func TestDescriptorsCannotBeReopenedForWriting(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	seg := n.store.Segments(manifest("acme").TenantID())[0]
	for _, gen := range []bool{false, true} {
		fd, size, err := n.store.FD(seg, gen)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if _, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("the descriptor itself maps for writing")
		}
		f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0)
		if err != nil {
			continue // refused already
		}
		defer f.Close()
		if _, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("a descriptor opened again maps for writing")
		}
		if _, err := f.WriteAt([]byte{1}, 0); err == nil {
			t.Error("a descriptor opened again writes")
		}
		if err := f.Truncate(0); err == nil {
			t.Error("a descriptor opened again truncates")
		}
	}
}

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

	// A tenant that is not allowed learns nothing, whether its namespace exists or
	// not.
	forbidden := n.dial(t, client.Options{})
	_, err = forbidden.Open(ctx, manifest("stranger"))
	is(t, err, wire.CodeNSUnknown)
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
func TestPutsOfOneEngineAreCopiedSideBySide(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, c *engine.Config) {
		b.Capacity, c.Limits.StagingBytes = 64<<20, 16<<20
	})
	e, ns := n.open(t)
	const size, batch = 96 << 10, 8 // a batch is more than the reader copies itself
	name := func(k int) string { return fmt.Sprint("side by side ", k) }
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := range 8 {
				in := make([]client.Block, batch)
				for j := range in {
					k := (3*g + i + j) % 24
					in[j] = client.Block{NS: ns, Key: keyOf(name(k)), Tier: wire.OutputCritical, Body: body(byte(k), size)}
				}
				ctx, cancel := context.WithCancel(ctx)
				if given := g == 0; given {
					time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
				}
				for _, err := range e.Put(ctx, in) {
					if err != nil && !errors.Is(err, wire.CodeExists) && !(g == 0 && errors.Is(err, wire.CodeCancelled)) {
						t.Error(err)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	keys := make([]wire.Key, 24)
	for k := range keys {
		keys[k] = keyOf(name(k))
	}
	l, err := e.Acquire(ctx, ns, keys, client.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	for k := range keys {
		b := &l.Blocks[k]
		if b.Err != nil || !bytes.Equal(b.Body, body(byte(k), size)) {
			t.Errorf("block %d: %v, or other bytes", k, b.Err)
			continue
		}
		if err := b.Head.Check(b.Body); err != nil {
			t.Errorf("block %d: %v", k, err)
		}
	}
}

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
