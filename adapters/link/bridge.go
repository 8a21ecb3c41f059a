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

// room is what the gateway gave for a block that is reserved.
type room struct {
	pass fabric.Passage
	grow *fabric.Growing // it goes on while it comes; nil: it does not
}

// reservation names a reserved slot. The number alone may be given to somebody else once
// the reservation has lapsed.
type reservation struct{ slot, gen uint32 }

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
func (g *bridge) bring(b *core.Block, probe bool) (fabric.Passage, error) {
	if g == nil || probe {
		return fabric.NoGateway{}.Bring(fabric.Hop{}, fabric.Brought{})
	}
	hop := g.hop
	hop.Hops = int(min(b.Hops, 1<<16))
	return g.n.cfg.Gateway.Bring(hop, fabric.Brought{NS: b.NS, Key: b.Key, Tier: b.Head.Tier, Bytes: uint64(b.Head.BodyLen)})
}

// admit asks for each block that is to be pushed, before any byte of it comes, whether it
// may go on. What may not is refused.
func (s *sessionStore) admit(b []core.Block) []fabric.Passage {
	if s.bridge == nil || !s.bridge.Looks() {
		return nil
	}
	m, _ := s.spaces.n.Manifest(b[0].NS)
	passes := make([]fabric.Passage, len(b))
	for i := range b {
		if b[i].Code != wire.CodeOK {
			continue
		}
		pass, err := s.bridge.bring(&b[i], m.Role == probeRole)
		if err != nil {
			b[i].Code = wire.CodeOf(err)
			continue
		}
		passes[i] = pass
	}
	return passes
}

// keep keeps what admit gave for the blocks that have a slot, and gives back the rest.
func (s *sessionStore) keep(b []core.Block, passes []fabric.Passage) {
	for i, pass := range passes {
		switch {
		case pass == nil:
		case b[i].Code != wire.CodeOK:
			pass.End(b[i].Code)
		case !s.keepOne(&b[i], pass):
			pass.End(wire.CodeCancelled) // the session ended meanwhile
		}
	}
}

func (s *sessionStore) keepOne(b *core.Block, pass fabric.Passage) bool {
	grow := pass.Through(fabric.Coming{Head: b.Head, Att: b.Att, Body: b.Body, Slot: b.Slot})
	s.rooming.Lock()
	defer s.rooming.Unlock()
	if s.dropped {
		return false
	}
	if s.rooms == nil {
		s.rooms = map[reservation]room{}
	}
	s.rooms[reservation{b.Slot, b.Gen}] = room{pass, grow}
	if grow != nil {
		b.Came = grow.Came
	}
	return true
}

// admitted takes what keep kept for a block; nil: there is nothing.
func (s *sessionStore) admitted(b *core.Block) fabric.Passage {
	s.rooming.Lock()
	defer s.rooming.Unlock()
	r := reservation{b.Slot, b.Gen}
	kept := s.rooms[r]
	delete(s.rooms, r)
	if kept.grow != nil {
		kept.grow.Prove(b.Proof)
	}
	return kept.pass
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
