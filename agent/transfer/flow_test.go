package transfer

import (
	"context"
	"sync"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// flow is a fabric that takes blocks while they come, as the link does: it has a block once
// that was proved.
type flow struct {
	*bent
	stream func(ctx context.Context, it *fabric.Item, g *fabric.Growing) // nil: takes all

	mu      sync.Mutex
	streams int
	took    int // blocks that were streamed to the end
}

func (f *flow) Stream(ctx context.Context, it *fabric.Item, g *fabric.Growing) {
	f.mu.Lock()
	f.streams++
	f.mu.Unlock()
	it.Via = "mem"
	if f.stream != nil {
		f.stream(ctx, it, g)
		return
	}
	f.takes(ctx, it, g)
}

// takes waits for the end of the body, and has the block if that is proved.
func (f *flow) takes(ctx context.Context, it *fabric.Item, g *fabric.Growing) {
	for {
		st := g.State()
		switch {
		case st.Over && st.Err != nil:
			it.Err = wire.CodeCancelled
			return
		case st.Over:
			if !st.Proof.Of(it.M.B) || it.Head.Match(st.Proof) != nil {
				it.Err = wire.CodeChecksum
				return
			}
			p := append(it.Head.Append(nil), it.M.B...)
			whole := []fabric.Item{{NS: it.NS, Key: it.Key, Tier: it.Tier, Att: it.Att, M: fabric.Mem{B: p}}}
			f.Fabric.Push(ctx, whole)
			if it.H, it.Err = whole[0].H, whole[0].Err; it.Err == nil {
				f.mu.Lock()
				f.took++
				f.mu.Unlock()
			}
			return
		}
		select {
		case <-g.Changed():
		case <-ctx.Done():
			it.Err = fabric.ContextError(ctx, "flow")
			return
		}
	}
}

const flowBody = 1 << 20

// comes is a block that a peer brings, and whose bytes a test lets come.
type comes struct {
	r    *rig
	pass fabric.Passage
	grow *fabric.Growing
	v    blocks.View
	head wire.Header
	body []byte
	key  wire.Key
}

// begins has a peer begin to bring a block.
func (r *rig) begins(from fabric.Hop, key wire.Key) (*comes, error) {
	r.t.Helper()
	want := bodyOf(key, flowBody)
	head := wire.Header{BodyLen: flowBody, Tier: wire.ThinkActive, Sum: wire.SumOf(want)}
	pass, err := r.Bring(from, fabric.Brought{NS: r.ns, Key: key, Tier: wire.ThinkActive, Bytes: flowBody})
	if err != nil {
		return nil, err
	}
	v, err := r.store.Reserve(r.owner, r.ns, []uint32{flowBody}, time.Hour)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &comes{r: r, pass: pass, v: v[0], head: head, key: key, body: r.store.Room(v[0])[wire.HeaderLen:][:flowBody]}
	c.grow = pass.Through(fabric.Coming{Head: head, Att: wire.AttestProducer, Body: c.body, Slot: c.v.Ref.Slot})
	return c, nil
}

// next says that the block's bytes are next.
func (c *comes) next() {
	if c.grow != nil {
		c.grow.Came(0)
	}
}

// fills lets all bytes come; other ones where it is spoilt.
func (c *comes) fills(spoilt bool) {
	copy(c.body, bodyOf(c.key, flowBody))
	if spoilt {
		c.body[99] ^= 1
	}
	if c.grow != nil {
		c.grow.Came(flowBody)
	}
}

// ends publishes the block if it is right, and says how that went.
func (c *comes) ends() error {
	proof := wire.Hash(c.body)
	if c.head.Match(proof) != nil {
		c.r.store.Abort(c.r.owner, []uint32{c.v.Ref.Slot})
		c.pass.End(wire.CodeChecksum)
		return wire.CodeChecksum
	}
	if c.grow != nil {
		c.grow.Prove(proof)
	}
	x := []blocks.Commit{{Slot: c.v.Ref.Slot, Gen: c.v.Ref.Gen, NS: c.r.ns, Key: c.key, Tier: wire.ThinkActive, Head: &c.head, Proof: proof, Att: wire.AttestProducer}}
	c.r.store.Commit(c.r.owner, x)
	c.pass.End(x[0].Err)
	return x[0].Err
}

func (c *comes) aborts() {
	c.r.store.Abort(c.r.owner, []uint32{c.v.Ref.Slot})
	c.pass.End(wire.CodeCancelled)
}

// flowRig is a rig with a fabric that takes blocks while they come, and one that does not.
func flowRig(t *testing.T, rules []fabric.Route) (r *rig, a *flow, b *bent) {
	t.Helper()
	a, b = &flow{bent: world(t, 1)[0]}, world(t, 1)[0]
	r = newRig(t, rules, map[string]fabric.Fabric{"a": a, "b": b})
	r.cfg.CutBytes = flowBody
	return r, a, b
}

func (r *rig) must(c *comes, err error) *comes {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}
