package transfer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// Offloading, in order (design.md, flow 2): the scheduler of an engine session
// says that blocks went cold; they are routed, and wait in the queue of their
// destination; there they are pinned, copied to the fabric, and their slots are
// freed once the copy is acknowledged and nobody holds a reference. What one
// destination does not take goes to the next that the routes allow. An offload
// that fails everywhere leaves the block where it is: nothing is lost by not
// offloading.
//
// Each destination has a queue and one goroutine of its own, so one that hangs
// holds up nobody else.
const (
	offloadQueue   = 1024             // batches that wait for a destination; above, a batch is refused
	offloadShare   = offloadQueue / 2 // of them, those of one namespace
	offloadTimeout = 30 * time.Second // a push of one batch
	pinTTL         = offloadTimeout + 5*time.Second
)

// coldBatch are blocks of one namespace on their way to one destination.
type coldBatch struct {
	ns     wire.Namespace
	keys   []wire.Key
	failed []map[string]error // by key, then by registry name: each fabric is tried once
}

// destination is where blocks go: a fabric or, where that chooses a peer by the
// key, that peer.
type destination struct {
	name   string // registry name
	route  string // registry name that the route chose: what failed, and where the copy is
	fabric fabric.Fabric
}

// queue is what waits for one destination.
type queue struct {
	to    destination
	wait  []coldBatch
	share map[wire.Namespace]int
}

// offloads are the queues by destination. One exists while something waits in it
// or is pushed.
type offloads struct {
	mu sync.Mutex
	by map[string]*queue

	blocks, bytes atomic.Uint64 // copied and acknowledged
	rerouted      atomic.Uint64 // blocks
}

// OffloadStats counts what was copied away because it went cold.
type OffloadStats struct {
	Blocks, Bytes uint64
	Rerouted      uint64 // blocks whose destination was removed before it took them
	Waiting       int    // batches
}

// OffloadStats counts.
func (m *Mover) OffloadStats() OffloadStats {
	st := OffloadStats{Blocks: m.offloads.blocks.Load(), Bytes: m.offloads.bytes.Load(), Rerouted: m.offloads.rerouted.Load()}
	m.offloads.mu.Lock()
	defer m.offloads.mu.Unlock()
	for _, q := range m.offloads.by {
		st.Waiting += len(q.wait)
	}
	return st
}

// Offer queues blocks that went cold and returns at once.
func (m *Mover) Offer(ns wire.Namespace, keys []wire.Key) {
	if len(keys) > 0 {
		m.send(coldBatch{ns: ns, keys: keys, failed: make([]map[string]error, len(keys))})
	}
}

// send routes a batch and puts its parts into the queues.
func (m *Mover) send(b coldBatch) {
	if len(b.keys) == 0 {
		return
	}
	views := make([]blocks.View, len(b.keys))
	m.cfg.Store.Peek(b.ns, b.keys, views)
	for to, idx := range m.route(b, views) {
		part := coldBatch{ns: b.ns}
		for _, i := range idx {
			part.keys, part.failed = append(part.keys, b.keys[i]), append(part.failed, b.failed[i])
		}
		m.enqueue(to, part)
	}
}

// route groups blocks by the destination that the routes choose, failed ones
// passed over. What is not here any more, or has a copy, goes nowhere.
func (m *Mover) route(b coldBatch, views []blocks.View) map[destination][]int {
	groups := map[destination][]int{}
	for i := range views {
		v := &views[i]
		if v.Err != nil || v.Seg == 0 || m.Copied(v.Where) {
			continue
		}
		c, err := m.cfg.Routes.Pick(fabric.Query{NS: b.ns, Tier: v.Tier, AnyPeer: true, Bytes: uint64(v.Head.BodyLen), Failed: b.failed[i]})
		if err != nil {
			if len(b.failed[i]) == 0 { // what failed was counted when it did
				m.cfg.Observer.Failed(wire.CodeOf(err))
			}
			m.cfg.Log(slog.LevelWarn, "offload.route", "offload has no route: the block stays", "err", err)
			continue
		}
		if c.Fallback {
			m.cfg.Observer.FellBack(c.Wanted, c.Name)
		}
		to := m.home(c, b.ns, b.keys[i])
		groups[to] = append(groups[to], i)
	}
	return groups
}

// home is the destination of a block: of a fabric that chooses a peer by the key,
// that peer.
func (m *Mover) home(c fabric.Choice, ns wire.Namespace, key wire.Key) destination {
	to := destination{name: c.Name, route: c.Name, fabric: c.Fabric}
	chooser, ok := c.Fabric.(fabric.Chooser)
	if !ok {
		return to
	}
	name := fabric.PeerName(c.Name, chooser.Choose(ns, key))
	if f, ok := m.cfg.Fabrics.Get(name); ok {
		to.name, to.fabric = name, f
	}
	return to
}

// enqueue lets a batch wait for its destination, whose goroutine it starts where
// none runs.
func (m *Mover) enqueue(to destination, b coldBatch) {
	o := &m.offloads
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.ctx.Err() != nil {
		return
	}
	if o.by == nil {
		o.by = map[string]*queue{}
	}
	q := o.by[to.name]
	if q == nil {
		q = &queue{to: to, share: map[wire.Namespace]int{}}
		o.by[to.name] = q
		m.wg.Go(func() { m.work(q) })
	}
	if len(q.wait) >= offloadQueue || q.share[b.ns] >= offloadShare {
		m.cfg.Observer.Refused(wire.CodeBusy)
		m.cfg.Log(slog.LevelWarn, "offload.full."+to.name, "offload refused: too many batches wait for the destination", "destination", to.name,
			"waiting", len(q.wait), "limit", offloadQueue, "waiting_of_namespace", q.share[b.ns], "limit_of_namespace", offloadShare, "blocks", len(b.keys))
		return
	}
	q.wait = append(q.wait, b)
	q.share[b.ns]++
}

// work pushes what waits for one destination, and ends when nothing does.
func (m *Mover) work(q *queue) {
	o := &m.offloads
	for {
		o.mu.Lock()
		if len(q.wait) == 0 || m.ctx.Err() != nil {
			delete(o.by, q.to.name)
			o.mu.Unlock()
			return
		}
		b := q.wait[0]
		q.wait[0] = coldBatch{}
		q.wait = q.wait[1:]
		if q.share[b.ns]--; q.share[b.ns] == 0 {
			delete(q.share, b.ns)
		}
		o.mu.Unlock()
		left := b
		if m.refresh(q) {
			left = m.copyAway(m.ctx, q.to, b, OpOffload)
		}
		if len(left.keys) > 0 && !m.refresh(q) {
			m.reroute(q.to, left)
		}
		m.send(left)
	}
}

// refresh looks whether a queue's destination is still there, which may be another
// fabric by now under the same name.
func (m *Mover) refresh(q *queue) bool {
	f, ok := m.cfg.Fabrics.Get(q.to.name)
	if ok {
		q.to.fabric = f
	}
	return ok
}

// reroute makes ready for other ways what a destination did not take that was removed
// meanwhile: that says nothing about the other peers of the fabric that the route chose.
func (m *Mover) reroute(to destination, left coldBatch) {
	for _, failed := range left.failed {
		delete(failed, to.route)
	}
	m.offloads.rerouted.Add(uint64(len(left.keys)))
	m.cfg.Log(slog.LevelInfo, "offload.removed."+to.name, "offload: its destination was removed, so its blocks go where the routes send them next",
		"destination", to.name, "blocks", len(left.keys))
}

// Store copies blocks to where the routes send them, before it returns: they stay
// here as well. What a destination does not take goes to the next.
func (m *Mover) Store(ctx context.Context, ns wire.Namespace, keys []wire.Key) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	b := coldBatch{ns: ns, keys: keys, failed: make([]map[string]error, len(keys))}
	for len(b.keys) > 0 && ctx.Err() == nil {
		views := make([]blocks.View, len(b.keys))
		m.cfg.Store.Peek(ns, b.keys, views)
		var mu sync.Mutex
		var side sync.WaitGroup
		next := coldBatch{ns: ns}
		for to, idx := range m.route(b, views) {
			part := coldBatch{ns: ns}
			for _, i := range idx {
				part.keys, part.failed = append(part.keys, b.keys[i]), append(part.failed, b.failed[i])
			}
			side.Go(func() {
				left := m.copyAway(ctx, to, part, OpStore)
				mu.Lock()
				defer mu.Unlock()
				next.keys, next.failed = append(next.keys, left.keys...), append(next.failed, left.failed...)
			})
		}
		side.Wait()
		b = next
	}
}

// copyAway pushes one batch to one destination, tells the store what moved, and
// returns what the destination did not take.
func (m *Mover) copyAway(ctx context.Context, to destination, b coldBatch, op Op) (left coldBatch) {
	ctx, cancel := context.WithTimeout(fabric.WithClass(ctx, fabric.ClassBulk), offloadTimeout)
	defer cancel()
	ctx, span := m.cfg.Tracer.Start(ctx, "meridian."+string(op))
	defer span.End()
	left.ns = b.ns
	views := make([]blocks.View, len(b.keys))
	for i, k := range b.keys {
		views[i] = blocks.View{NS: b.ns, Key: k}
	}
	lease, err := m.cfg.Store.Acquire(m.owner, views, pinTTL, false)
	if err != nil {
		m.cfg.Observer.Failed(wire.CodeOf(err))
		m.cfg.Log(slog.LevelWarn, "offload.pin", "offload cannot pin its blocks", "err", err)
		return left
	}
	defer m.cfg.Store.Release(m.owner, lease)
	items, at := m.pushItems(views)
	n := to.fabric.Caps().MaxBatch
	if n <= 0 {
		n = len(items)
	}
	for from := 0; from < len(items); from += n {
		part := items[from:min(from+n, len(items))]
		m.call(ctx, what{to.name, to.fabric, false, op}, part, func(ctx context.Context) { to.fabric.Push(ctx, part) })
		m.hold(to.name, to.fabric, part, func(k int) uint32 { return views[at[from+k]].Ref.Slot })
	}
	moved := make([]blocks.Moved, 0, len(items))
	for k, i := range at {
		err := arrived(&items[k])
		moved = append(moved, blocks.Moved{Slot: views[i].Ref.Slot, Gen: views[i].Ref.Gen,
			Loc: blocks.Loc{Fabric: to.route, H: items[k].H}, Err: err})
		if err != nil {
			left.keys, left.failed = append(left.keys, b.keys[i]), append(left.failed, alsoFailed(b.failed[i], to.route, err))
			continue
		}
		if op == OpOffload {
			size := uint64(views[i].Head.BodyLen)
			m.offloads.blocks.Add(1)
			m.offloads.bytes.Add(size)
			m.cfg.Observer.Offloaded(family(to.name), size)
		}
	}
	if op == OpOffload {
		m.cfg.Store.Moved(moved)
	}
	return left
}

// pushItems makes an item of each view that was pinned and has no copy yet; at
// says of which.
func (m *Mover) pushItems(views []blocks.View) (items []fabric.Item, at []int) {
	for i := range views {
		v := &views[i]
		if v.Err != nil || m.Copied(v.Where) { // evicted meanwhile, or copied
			continue
		}
		items = append(items, fabric.Item{NS: v.NS, Key: v.Key, Tier: v.Tier, Att: v.Att,
			M: fabric.Mem{B: m.cfg.Store.Payload(*v), Seg: v.Seg, Off: v.Off}})
		at = append(at, i)
	}
	return items, at
}

// arrived is why a pushed block has no copy. One that was there already is a
// copy, no matter who made it.
func arrived(it *fabric.Item) error {
	if errors.Is(it.Err, wire.CodeExists) && it.H != (fabric.Handle{}) {
		return nil
	}
	return it.Err
}

// alsoFailed is a copy: the parts of a batch go different ways.
func alsoFailed(failed map[string]error, name string, err error) map[string]error {
	out := map[string]error{name: err}
	for k, v := range failed {
		out[k] = v
	}
	return out
}

// Copied says whether loc is a copy that may still be there.
func (m *Mover) Copied(loc blocks.Loc) bool {
	if loc == (blocks.Loc{}) {
		return false
	}
	f, ok := m.cfg.Fabrics.Get(loc.Fabric)
	if k, asks := f.(fabric.Keeper); ok && asks {
		return k.Keeps(loc.H)
	}
	return true
}
