package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"meridian/adapters/link"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Offloading, in order (design.md, flow 2): the scheduler of an engine session
// says that blocks went cold; they are pinned, routed, copied to the fabric,
// and their slots are freed once the copy is acknowledged and nobody holds a
// reference. What one fabric does not take goes to the next that the routes
// allow. An offload that fails everywhere leaves the block where it is: nothing
// is lost by not offloading.
const (
	offloadQueue   = 1024             // batches that wait; above, a batch is refused and counted
	offloadTimeout = 30 * time.Second // a batch, with its tries on other routes
)

type offloadBatch struct {
	ns   wire.Namespace
	keys []wire.Key
	keep bool // write-through: the block stays here as well
}

type offloader struct {
	a     *Agent
	owner blocks.Owner
	queue chan offloadBatch

	blocks, bytes atomic.Uint64 // copied and acknowledged
}

func newOffloader(a *Agent) *offloader {
	return &offloader{a: a, owner: a.store.NewOwner(0), queue: make(chan offloadBatch, offloadQueue)}
}

// offer queues blocks that went cold and returns at once.
func (o *offloader) offer(ns wire.Namespace, keys []wire.Key) {
	if len(keys) == 0 || !o.a.cfg.Disagg.Enabled {
		return
	}
	select {
	case o.queue <- offloadBatch{ns: ns, keys: keys}:
	default:
		o.a.metrics.refusals.WithLabelValues(wire.CodeBusy.String()).Inc()
		o.a.logLimited(slog.LevelWarn, "offload.full", "offload refused: the queue is full", "batches", offloadQueue, "blocks", len(keys))
	}
}

// storedHook writes prompt blocks through to the routed fabric before their
// PUT is acknowledged, where the config asks for it.
func (a *Agent) storedHook() func(context.Context, wire.Namespace, []wire.Key) {
	if !a.cfg.Disagg.Enabled || !a.cfg.Disagg.WriteThrough {
		return nil
	}
	return func(ctx context.Context, ns wire.Namespace, keys []wire.Key) {
		a.offloader.batch(ctx, offloadBatch{ns: ns, keys: keys, keep: true})
	}
}

// run works the queue off until ctx ends.
func (o *offloader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-o.queue:
			o.batch(ctx, b)
		}
	}
}

// batch copies one batch away. The lease outlives the last push, which ctx ends.
func (o *offloader) batch(ctx context.Context, b offloadBatch) {
	ctx, cancel := context.WithTimeout(ctx, offloadTimeout)
	defer cancel()
	ctx, span := o.a.tracer.Start(ctx, "meridian.offload")
	defer span.End()
	views := make([]blocks.View, len(b.keys))
	for i, k := range b.keys {
		views[i] = blocks.View{NS: b.ns, Key: k}
	}
	lease, err := o.a.store.Acquire(o.owner, views, offloadTimeout+5*time.Second, false)
	if err != nil {
		o.a.metrics.failures.WithLabelValues(wire.CodeOf(err).String()).Inc()
		o.a.logLimited(slog.LevelWarn, "offload.pin", "offload cannot pin its blocks", "err", err)
		return
	}
	defer o.a.store.Release(o.owner, lease)
	var todo []int
	for i := range views { // not those that were evicted meanwhile, or copied already
		if views[i].Err == nil && !o.a.copied(views[i].Where) {
			todo = append(todo, i)
		}
	}
	failed := make([]map[string]error, len(views)) // by fabric: each is tried once
	for len(todo) > 0 && ctx.Err() == nil {
		groups := o.route(b.ns, views, todo, failed)
		todo = todo[:0]
		for c, idx := range groups {
			todo = append(todo, o.push(ctx, c, b, views, idx, failed)...)
		}
	}
}

// copied says whether loc is a copy that may still be there. One at a peer that
// was restarted since, or is not connected, is not.
func (a *Agent) copied(loc blocks.Loc) bool {
	if loc == (blocks.Loc{}) {
		return false
	}
	if loc.Fabric != linkFabric {
		return true
	}
	ref := wire.RefOf(loc.H)
	return slices.ContainsFunc(a.readyPeers(), func(p link.PeerInfo) bool { return p.Agent == ref.Agent && p.Inc == ref.Inc })
}

// destination is where a group of blocks goes.
type destination struct {
	name   string
	fabric fabric.Fabric
}

// route groups blocks by the fabric that the routes choose, failed ones passed
// over.
func (o *offloader) route(ns wire.Namespace, views []blocks.View, todo []int, failed []map[string]error) map[destination][]int {
	groups := map[destination][]int{}
	for _, i := range todo {
		c, err := o.a.routes.Pick(fabric.Query{NS: ns, Tier: views[i].Tier, AnyPeer: true, Bytes: uint64(views[i].Head.BodyLen), Failed: failed[i]})
		if err != nil {
			if len(failed[i]) == 0 { // what failed was counted when it did
				o.a.metrics.failures.WithLabelValues(wire.CodeOf(err).String()).Inc()
			}
			o.a.logLimited(slog.LevelWarn, "offload.route", "offload has no route: the block stays", "err", err)
			continue
		}
		if c.Fallback {
			o.a.metrics.fallbacks.WithLabelValues(c.Wanted, c.Name).Inc()
		}
		d := destination{c.Name, c.Fabric}
		groups[d] = append(groups[d], i)
	}
	return groups
}

// push copies one group to one fabric, tells the store what moved, and returns
// what did not.
func (o *offloader) push(ctx context.Context, d destination, b offloadBatch, views []blocks.View, idx []int, failed []map[string]error) (left []int) {
	items := make([]fabric.Item, len(idx))
	for k, i := range idx {
		items[k] = fabric.Item{NS: b.ns, Key: views[i].Key, Tier: views[i].Tier, Att: views[i].Att,
			M: fabric.Mem{B: o.a.store.Payload(views[i]), Seg: views[i].Seg, Off: views[i].Off}}
	}
	h := holder{name: d.name, Fabric: d.fabric}
	ctx = fabric.WithClass(ctx, fabric.ClassBulk)
	o.a.transfer(ctx, h, dirOut, "push", proto.ClassBulk, items, func(ctx context.Context) { d.fabric.Push(ctx, items) })
	o.a.quiet.hold(d.fabric, items, func(k int) uint32 { return views[idx[k]].Ref.Slot })
	moved := make([]blocks.Moved, 0, len(items))
	for k, i := range idx {
		err := items[k].Err
		if errors.Is(err, wire.CodeExists) && items[k].H != (fabric.Handle{}) {
			err = nil // the copy is there, whoever made it
		}
		moved = append(moved, blocks.Moved{Slot: views[i].Ref.Slot, Gen: views[i].Ref.Gen,
			Loc: blocks.Loc{Fabric: d.fabric.Label(), H: items[k].H}, Err: err})
		if err != nil {
			if failed[i] == nil {
				failed[i] = map[string]error{}
			}
			failed[i][d.name] = err
			left = append(left, i)
			continue
		}
		if b.keep {
			continue
		}
		o.blocks.Add(1)
		o.bytes.Add(uint64(views[i].Head.BodyLen))
		o.a.metrics.offloadedBlocks.WithLabelValues(d.fabric.Label()).Inc()
		o.a.metrics.offloadedBytes.WithLabelValues(d.fabric.Label()).Add(float64(views[i].Head.BodyLen))
	}
	if !b.keep {
		o.a.store.Step(blocks.Input{Moved: moved})
	}
	return left
}

func (o *offloader) varz() OffloadVarz {
	return OffloadVarz{Blocks: o.blocks.Load(), Bytes: o.bytes.Load(), ReclaimedBytes: o.a.store.Stats().OffloadedBytes, Waiting: len(o.queue)}
}
