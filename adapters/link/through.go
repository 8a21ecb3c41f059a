package link

import (
	"context"
	"fmt"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

var (
	_ fabric.Streamer = (*Peer)(nil)
	_ fabric.Streamer = Group{}
)

// Stream implements fabric.Streamer for the peer that the block's key chooses.
func (g Group) Stream(ctx context.Context, it *fabric.Item, grow *fabric.Growing) {
	p := g.choose(it.NS, it.Key)
	if p == nil {
		it.Via, it.Loose, it.Err = "", false, &fabric.Error{Code: wire.CodeUnreachable, Fabric: label, Text: "no ready peer for this block"}
		return
	}
	p.Stream(ctx, it, grow)
}

// Stream implements fabric.Streamer. It is one push, without another try: who asked for it
// has the block, and can push all of it then.
func (p *Peer) Stream(ctx context.Context, it *fabric.Item, grow *fabric.Growing) {
	one := []fabric.Item{*it}
	defer func() { *it = one[0] }()
	s, err := p.usable(ctx)
	if err != nil {
		failAll(one, err)
		return
	}
	one[0].H = fabric.Handle{}
	b := p.batch(ctx, s, one)
	b.check(func(x *fabric.Item) error {
		most := b.granted().BytesInFlight
		switch {
		case int(x.Head.BodyLen) != len(x.M.B):
			return &fabric.Error{Code: wire.CodeInvalid, Fabric: label, Have: uint64(len(x.M.B)), Need: uint64(x.Head.BodyLen), Text: "a body of another length than its header says"}
		case x.Head.BodyLen > most:
			return b.tooLarge(int(x.Head.BodyLen), "")
		}
		return nil
	})
	if len(b.at) == 0 {
		return
	}
	x := &one[0]
	item := core.Item{NS: b.num[0], Key: x.Key, Tier: x.Head.Tier, Att: x.Att, Room: x.M.B}
	x.Head.Put(item.Head[:])
	c := &core.Call{Type: proto.TypePush, Class: b.class, Hops: b.hops, Grows: true, Items: []core.Item{item}}
	start := s.now()
	s.callGrowing(ctx, c, grow)
	b.found(c, b.at)
	if c.Starved {
		x.Err = &fabric.Error{Code: c.Code, Fabric: label, Text: fmt.Sprintf("%d of %d bytes had come", grow.State().N, len(x.M.B)), Cause: fabric.ErrStarved}
	}
	t := Transfer{Peer: p.cfg.Name, Class: b.class, Via: s.via, Took: s.now() - start, Code: c.Code}
	if c.Items[0].Code == wire.CodeOK {
		t.Items, t.Bytes = 1, uint64(len(item.Room))
	}
	p.node.cfg.Observer.Transfer(t)
}

// callGrowing runs a push whose body grows, until it is over, or ctx or the body ends it.
func (s *session) callGrowing(ctx context.Context, c *core.Call, grow *fabric.Growing) {
	c.Done, c.Timeout = make(chan struct{}), timeout(ctx)
	visit := func(f func()) {
		var buf [4]*lane
		s.mu.Lock()
		f()
		s.flush(s.endVisit(buf[:0]), callFrames)
	}
	visit(func() { s.core.Start(s.now(), c) })
	for {
		select {
		case <-c.Done:
			return
		case <-ctx.Done():
			code := wire.CodeOf(fabric.ContextError(ctx, label))
			visit(func() { s.core.Cancel(s.now(), c, code) })
			<-c.Done
			return
		case <-grow.Changed():
			visit(func() { s.grown(c, grow.State()) })
		}
	}
}

// grown tells the core how a body stands. One that was not published is taken back, and so
// is one without its proof.
func (s *session) grown(c *core.Call, st fabric.GrowingState) {
	switch {
	case !st.Over:
		s.core.Grow(s.now(), c, st.N)
	case st.Err != nil || !s.core.Agree(s.now(), c, st.Proof):
		s.core.Cancel(s.now(), c, wire.CodeCancelled)
	}
}
