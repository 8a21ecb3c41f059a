package transfer

import (
	"context"
	"errors"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// reserveTTL is after how long a reservation that nobody ends is freed.
const reserveTTL = 60 * time.Second

// pull moves one batch from one holder and leaves an item for each block, with
// its error.
func (m *Mover) pull(ctx context.Context, job Job, h *holder, p *pulling) {
	p.items = make([]fabric.Item, len(p.at))
	for k, i := range p.at {
		p.items[k] = fabric.Item{NS: job.NS, Key: job.Keys[i], H: p.from[k].h}
	}
	m.pullInto(ctx, job, h, p.items, p.from)
}

// pullInto reserves, pulls, checks and commits. A batch that gets no room is
// halved, down to single blocks: one of a false length spoils no other, and what
// is refused then carries need and free.
func (m *Mover) pullInto(ctx context.Context, job Job, h *holder, items []fabric.Item, from []source) {
	sizes := make([]uint32, len(items))
	for k := range from {
		sizes[k] = from[k].size
	}
	_, span := m.cfg.Tracer.Start(ctx, "meridian.reserve")
	tier := wire.OutputCritical
	if job.For != 0 {
		tier = wire.ThinkComplete // what it becomes: a peer's question moves nothing above it away
	}
	views, err := m.cfg.Store.ReserveTier(job.Owner, job.NS, tier, sizes, reserveTTL)
	span.End()
	if err != nil {
		if len(items) > 1 {
			half := len(items) / 2
			m.pullInto(ctx, job, h, items[:half], from[:half])
			m.pullInto(ctx, job, h, items[half:], from[half:])
			return
		}
		for k := range items {
			items[k].Err = err
		}
		return
	}
	for k, v := range views {
		items[k].M = fabric.Mem{B: m.cfg.Store.Room(v), Seg: v.Seg, Off: v.Off}
	}
	m.call(ctx, what{h.name, h.fabric, true, OpPull}, items, func(ctx context.Context) {
		h.fabric.Pull(ctx, items)
		check(h.name, items)
	})
	m.hold(h.name, h.fabric, items, func(k int) uint32 { return views[k].Ref.Slot })
	_, span = m.cfg.Tracer.Start(ctx, "meridian.commit")
	m.commit(job, views, items)
	span.End()
	for k := range items {
		items[k].M = fabric.Mem{} // the slot is not this call's any more
	}
}

// check hashes what came without a proof of its bytes. This daemon is then the
// first that vouches for them.
func check(name string, items []fabric.Item) {
	for k := range items {
		it := &items[k]
		if it.Err != nil {
			continue
		}
		head, err := wire.ParseHeader(it.M.B, wire.Strict, wire.MaxBody)
		if n := uint64(len(it.M.B)); err == nil && wire.HeaderLen+uint64(head.BodyLen) > n {
			err = &fabric.Error{Code: wire.CodeTooLarge, Fabric: name, Have: n, Need: wire.HeaderLen + uint64(head.BodyLen)}
		}
		if err == nil {
			if body := it.M.B[wire.HeaderLen:][:head.BodyLen]; !it.Proof.Of(body) {
				it.Proof, it.Att = wire.Hash(body), wire.AttestIngest
			}
			err = head.Match(it.Proof)
		}
		it.Head, it.Err = head, err
	}
}

// commit publishes the items that arrived and aborts the others; loose slots are
// aborted too, and stay out of use by their quarantine. A block that was
// pulled is a copy: the reader's lease protects it for as long as its request
// needs it, and afterwards it is prefix cache like any other. So it is held as
// ThinkComplete, whatever its header says, and never crowds out the blocks of
// requests that run.
func (m *Mover) commit(job Job, views []blocks.View, items []fabric.Item) {
	commits := make([]blocks.Commit, 0, len(items))
	at := make([]int, 0, len(items))
	var gone []uint32
	for k := range items {
		if items[k].Err != nil {
			gone = append(gone, views[k].Ref.Slot)
			continue
		}
		commits = append(commits, blocks.Commit{
			Slot: views[k].Ref.Slot, Gen: views[k].Ref.Gen, NS: job.NS, Key: items[k].Key, Tier: wire.ThinkComplete,
			Head: &items[k].Head, Att: items[k].Att, Transient: job.Transient, Proof: items[k].Proof,
		})
		at = append(at, k)
	}
	m.cfg.Store.Commit(job.Owner, commits)
	for c, k := range at {
		if err := commits[c].Err; err != nil && !errors.Is(err, wire.CodeExists) {
			items[k].Err = err
		}
	}
	m.cfg.Store.Abort(job.Owner, gone)
}
