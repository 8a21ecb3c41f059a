package link

import (
	"context"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/wire"
)

// bridge hands what one peer brings, and what it asks for, to the daemon's gateway.
type bridge struct {
	n   *Node
	hop fabric.Hop
}

var _ core.Looker = (*bridge)(nil)

// lookWait is how long a HAS waits for a block from elsewhere: less than a load waits for
// a holder. What comes later is here for the next question.
const lookWait = 150 * time.Millisecond

// source is by what a gateway knows a peer: its entry, else where it comes from.
func (id *identity) source() string {
	if id.listed {
		return id.name
	}
	return id.who
}

// bring asks before a block is published. Without a bridge nothing goes on, and the block
// of a probe never does.
func (g *bridge) bring(b *core.Block, probe bool) (end func(error), err error) {
	if g == nil || probe {
		return fabric.NoGateway{}.Bring(fabric.Hop{}, fabric.Brought{})
	}
	hop := g.hop
	hop.Hops = int(min(b.Hops, 1<<16))
	return g.n.cfg.Gateway.Bring(hop, fabric.Brought{NS: b.NS, Key: b.Key, Tier: b.Head.Tier, Bytes: uint64(b.Head.BodyLen)})
}

// Looks implements core.Looker.
func (g *bridge) Looks() bool { return g.n.cfg.Gateway.Looks(g.hop) }

// Look implements core.Looker. The gateway goes on when the question is answered.
func (g *bridge) Look(b []core.Block) {
	absent := map[wire.Namespace][]wire.Key{}
	for i := range b {
		if b[i].Code == wire.CodeAbsent && b[i].Gen == 0 {
			absent[b[i].NS] = append(absent[b[i].NS], b[i].Key)
		}
	}
	ctx, cancel := context.WithTimeout(g.n.ctx, lookWait)
	defer cancel()
	for ns, keys := range absent {
		done := make(chan struct{})
		g.n.running.Go(func() {
			defer close(done)
			g.n.cfg.Gateway.Look(g.n.ctx, g.hop, ns, keys)
		})
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}
