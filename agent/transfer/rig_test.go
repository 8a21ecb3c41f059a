package transfer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// rig is the room over fabrics in memory, with a fake clock where a test runs it
// in a synctest bubble.
type rig struct {
	*Mover
	t     testing.TB
	store *blocks.Store
	reg   *fabric.Registry
	seen  *watcher
	ns    wire.Namespace
	owner blocks.Owner
}

// newRig makes a room of an arena of 64 MiB over fabrics by their names.
func newRig(t testing.TB, rules []fabric.Route, fabrics map[string]fabric.Fabric) *rig {
	t.Helper()
	st, err := blocks.Open(blocks.Config{Capacity: 64 << 20, Agent: [16]byte{1}, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: st, reg: &fabric.Registry{}, seen: &watcher{}}
	m := wire.Manifest{Tenant: "acme", Model: "m", Role: "kv", BlockBytes: 1 << 20}
	r.ns = m.Namespace()
	if err := st.AddNamespace(r.ns, m.TenantID()); err != nil {
		t.Fatal(err)
	}
	r.owner = st.NewOwner(0)
	for name, f := range fabrics {
		if err := r.reg.Add(name, f); err != nil {
			t.Fatal(err)
		}
	}
	routes, err := fabric.NewRoutes(r.reg, rules)
	if err != nil {
		t.Fatal(err)
	}
	r.Mover = New(Config{Store: st, Fabrics: r.reg, Routes: routes, Observer: r.seen})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
		r.nothingLeft()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// nothingLeft holds the counts against zero: what failed gave everything back.
func (r *rig) nothingLeft() {
	r.t.Helper()
	if s := r.store.Stats(); s.Reserved != 0 || s.Quarantined != 0 || s.Leaked != 0 || s.Leases != 0 {
		r.t.Errorf("left: %d reserved, %d quarantined, %d leaked, %d leases", s.Reserved, s.Quarantined, s.Leaked, s.Leases)
	}
	if n := r.reserved.Load(); n != 0 {
		r.t.Errorf("%d bytes of loads are still counted", n)
	}
}

func (r *rig) keys(name string, n int) []wire.Key {
	keys := make([]wire.Key, n)
	for i := range keys {
		keys[i] = wire.KeyOf(r.ns, fmt.Appendf(nil, "%s %d", name, i))
	}
	return keys
}

// bodyOf is a body that follows from its key.
func bodyOf(k wire.Key, size int) []byte {
	b := make([]byte, size)
	for at := 0; at < size; at += 1024 { // each piece is another
		piece := b[at:min(at+1024, size)]
		k[0]++
		for n := copy(piece, k[:]); n < len(piece); n *= 2 {
			copy(piece[n:], piece[:n])
		}
	}
	return b
}

// give puts blocks into a fabric.
func (r *rig) give(f fabric.Fabric, keys []wire.Key, size int) {
	r.t.Helper()
	for _, k := range keys {
		p, err := wire.AppendPayload(nil, wire.OutputCritical, bodyOf(k, size))
		if err != nil {
			r.t.Fatal(err)
		}
		it := []fabric.Item{{NS: r.ns, Key: k, Tier: wire.OutputCritical, Att: wire.AttestProducer, M: fabric.Mem{B: p}}}
		if f.Push(context.Background(), it); it[0].Err != nil {
			r.t.Fatal(it[0].Err)
		}
	}
}

// fetch loads keys for all to see.
func (r *rig) fetch(ctx context.Context, keys []wire.Key) []error {
	return r.Fetch(fabric.WithClass(ctx, fabric.ClassUrgent), Job{NS: r.ns, Keys: keys})
}

// holds demands that blocks are in the arena, with the bytes that follow from
// their keys.
func (r *rig) holds(keys []wire.Key, size int) {
	r.t.Helper()
	views := make([]blocks.View, len(keys))
	for i, k := range keys {
		views[i] = blocks.View{NS: r.ns, Key: k}
	}
	lease, err := r.store.Acquire(r.owner, views, time.Hour, false)
	if err != nil {
		r.t.Fatal(err)
	}
	defer r.store.Release(r.owner, lease)
	for i := range views {
		if views[i].Err != nil {
			r.t.Errorf("block %d: %v", i, views[i].Err)
		} else if !slices.Equal(r.store.Payload(views[i])[wire.HeaderLen:], bodyOf(keys[i], size)) {
			r.t.Errorf("block %d has other bytes than its holder gave", i)
		}
	}
}

// view is what the store knows of a block.
func (r *rig) view(key wire.Key) blocks.View {
	v := make([]blocks.View, 1)
	r.store.Peek(r.ns, []wire.Key{key}, v)
	return v[0]
}

// put stores blocks as an engine would.
func (r *rig) put(keys []wire.Key, size int, tier wire.Tier) {
	r.t.Helper()
	for _, k := range keys {
		v, err := r.store.Reserve(r.owner, r.ns, []uint32{uint32(size)}, time.Hour)
		if err != nil {
			r.t.Fatal(err)
		}
		c := blocks.Commit{Slot: v[0].Ref.Slot, NS: r.ns, Key: k, Tier: tier, Att: wire.AttestProducer}
		if err := r.store.Ingest(r.owner, bodyOf(k, size), &c); err != nil {
			r.t.Fatal(err)
		}
	}
}

// allAre demands one outcome of all of them.
func allAre(t testing.TB, errs []error, code wire.Code) {
	t.Helper()
	for i, err := range errs {
		if wire.CodeOf(err) != code {
			t.Errorf("block %d: %v, want %v", i, err, code)
		}
	}
}

// watcher is the observer of a rig.
type watcher struct {
	mu       sync.Mutex
	records  []Record
	failed   map[wire.Code]int
	checksum int
	refused  int
	fellBack int
	slow     []string
	events   map[string]int
}

func (w *watcher) Transferred(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
}

func (w *watcher) Moved(string, string, bool, uint64) {}

func (w *watcher) Failed(code wire.Code) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = map[wire.Code]int{}
	}
	w.failed[code]++
}

func (w *watcher) ChecksumFailed(string)    { w.count(&w.checksum) }
func (w *watcher) Refused(wire.Code)        { w.count(&w.refused) }
func (w *watcher) FellBack(string, string)  { w.count(&w.fellBack) }
func (w *watcher) Offloaded(string, uint64) {}

func (w *watcher) Attempted(from, to string, code wire.Code) {
	w.note(fmt.Sprintf("attempt %s %s %v", from, to, code))
}

func (w *watcher) Bridged(from, to string, what BridgeOutcome, bytes uint64) {
	w.note(fmt.Sprintf("%s %s %s %d", what, from, to, bytes))
}

func (w *watcher) CutThrough(from, to string, what CutOutcome) {
	w.note(fmt.Sprintf("cut %s %s %s", what, from, to))
}

func (w *watcher) Looked(by string, code wire.Code) { w.note(fmt.Sprintf("look %s %v", by, code)) }

// note counts an event by its text.
func (w *watcher) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events == nil {
		w.events = map[string]int{}
	}
	w.events[text]++
}

func (w *watcher) event(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[text]
}

func (w *watcher) Slow(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow = append(w.slow, name)
}

func (w *watcher) count(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

func (w *watcher) read(n *int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *n
}

// bent is a synthetic fabric some of whose calls a test replaces.
type bent struct {
	*synthetic.Fabric
	find, pull, push func(ctx context.Context, it []fabric.Item)
	lanes, batch     int
	bare             bool // gives no proof
}

func (b *bent) Caps() fabric.Caps {
	c := b.Fabric.Caps()
	c.Lanes, c.Verified = b.lanes, !b.bare
	if b.batch > 0 {
		c.MaxBatch = b.batch
	}
	return c
}

func (b *bent) Find(ctx context.Context, it []fabric.Item) {
	if b.find != nil {
		b.find(ctx, it)
		return
	}
	b.Fabric.Find(ctx, it)
}

func (b *bent) Pull(ctx context.Context, it []fabric.Item) {
	if b.pull != nil {
		b.pull(ctx, it)
		return
	}
	b.Fabric.Pull(ctx, it)
}

func (b *bent) Push(ctx context.Context, it []fabric.Item) {
	if b.push != nil {
		b.push(ctx, it)
		return
	}
	b.Fabric.Push(ctx, it)
}

// world makes n endpoints that see the same blocks, each its own fabric.
func world(t testing.TB, n int) []*bent {
	t.Helper()
	first := synthetic.New(synthetic.Options{Name: "0"})
	out := []*bent{{Fabric: first}}
	for i := 1; i < n; i++ {
		f, err := first.Join(fmt.Sprint(i), uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &bent{Fabric: f})
	}
	t.Cleanup(func() {
		for _, f := range out {
			_ = f.Fabric.Close()
		}
	})
	return out
}

// named gives fabrics the names a, b, c.
func named(list []*bent) map[string]fabric.Fabric {
	out := map[string]fabric.Fabric{}
	for i, f := range list {
		out[string(rune('a'+i))] = f
	}
	return out
}

// frozen is a call that answers nothing until its context ends.
func frozen(ctx context.Context, it []fabric.Item) {
	<-ctx.Done()
	for i := range it {
		it[i].Err = fabric.ContextError(ctx, "frozen")
	}
}
