package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// Offloading, in order (design.md, flow 2): the scheduler of an engine session
// says that blocks went cold; they are pinned, routed, copied to the fabric,
// and their slots are freed once the copy is acknowledged and nobody holds a
// reference. An offload that fails leaves the block where it is: nothing is
// lost by not offloading.
const (
	offloadQueue   = 1024             // batches that wait; above, a batch is refused and counted
	offloadTimeout = 30 * time.Second // a batch, with its retries on other routes
)

type offloadBatch struct {
	ns   wire.Namespace
	keys []wire.Key
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
		o.a.log.Warn("offload refused: the queue is full", "batches", offloadQueue, "blocks", len(keys))
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

func (o *offloader) batch(ctx context.Context, b offloadBatch) {
	ctx, cancel := context.WithTimeout(ctx, offloadTimeout)
	defer cancel()
	views := make([]blocks.View, len(b.keys))
	for i, k := range b.keys {
		views[i] = blocks.View{NS: b.ns, Key: k}
	}
	lease, err := o.a.store.Acquire(o.owner, views, offloadTimeout+time.Second, false)
	if err != nil {
		return
	}
	defer o.a.store.Release(o.owner, lease)
	groups := map[string][]int{}
	choices := map[string]fabric.Choice{}
	for i := range views {
		if views[i].Err != nil || views[i].Where != (blocks.Loc{}) {
			continue // evicted meanwhile, or copied already
		}
		c, err := o.a.routes.Pick(fabric.Query{NS: b.ns, Tier: views[i].Tier, AnyPeer: true, Bytes: uint64(views[i].Head.BodyLen)})
		if err != nil {
			o.a.metrics.failures.WithLabelValues(wire.CodeOf(err).String()).Inc()
			o.a.logLimited("offload.route", "offload has no route", "err", err)
			continue
		}
		if c.Fallback {
			o.a.metrics.fallbacks.WithLabelValues(c.Wanted, c.Name).Inc()
		}
		groups[c.Name], choices[c.Name] = append(groups[c.Name], i), c
	}
	for name, idx := range groups {
		o.push(ctx, choices[name], b.ns, views, idx)
	}
}

// push copies one group to one fabric and tells the store what moved.
func (o *offloader) push(ctx context.Context, c fabric.Choice, ns wire.Namespace, views []blocks.View, idx []int) {
	items := make([]fabric.Item, len(idx))
	for k, i := range idx {
		items[k] = fabric.Item{NS: ns, Key: views[i].Key, Tier: views[i].Tier,
			M: fabric.Mem{B: o.a.store.Payload(views[i]), Seg: views[i].Seg, Off: views[i].Off}}
	}
	h := holder{name: c.Name, Fabric: c.Fabric}
	o.a.transfer(h, dirOut, "push", items, func() { c.Fabric.Push(ctx, items) })
	moved := make([]blocks.Moved, 0, len(items))
	for k, i := range idx {
		err := items[k].Err
		if errors.Is(err, wire.CodeExists) && items[k].H != (fabric.Handle{}) {
			err = nil // the copy is there, whoever made it
		}
		moved = append(moved, blocks.Moved{Slot: views[i].Ref.Slot, Gen: views[i].Ref.Gen,
			Loc: blocks.Loc{Fabric: c.Fabric.Label(), H: items[k].H}, Err: err})
		if err == nil {
			o.blocks.Add(1)
			o.bytes.Add(uint64(views[i].Head.BodyLen))
			o.a.metrics.offloadedBlocks.WithLabelValues(c.Fabric.Label()).Inc()
			o.a.metrics.offloadedBytes.WithLabelValues(c.Fabric.Label()).Add(float64(views[i].Head.BodyLen))
		}
	}
	o.a.store.Step(blocks.Input{Moved: moved})
}

func (o *offloader) varz() OffloadVarz {
	return OffloadVarz{Blocks: o.blocks.Load(), Bytes: o.bytes.Load(), ReclaimedBytes: o.a.store.Stats().OffloadedBytes, Waiting: len(o.queue)}
}
