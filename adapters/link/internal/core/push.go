package core

import (
	"slices"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

func (l *Lane) servePush(now time.Duration, f proto.Frame, m *proto.Push) error {
	s := l.s
	var total uint64
	for i := range m.Items {
		total += uint64(m.Items[i].Have.Len)
	}
	r, err := l.admit(now, f, m.DeadlineMS, len(m.Items), total)
	if r == nil {
		return err
	}
	b := make([]Block, len(m.Items))
	for i := range m.Items {
		b[i] = s.offered(&m.Items[i])
		if f.Class == proto.ClassBulk {
			b[i].Tier = wire.ThinkComplete // nobody waits for it: a copy, like any other
		}
		b[i].Hops = f.Arg
	}
	r.blocks, r.twin = b, twins(b)
	r.refs++
	l.rx.jobs = append(l.rx.jobs, Job{
		lane: l, r: r, room: &roomJob{s.cfg.Store, slices.Clone(b), r.deadline - now + pinSlack},
	})
	return nil
}

// offered checks an item of PUSH by itself, as a PUT of an engine is checked.
func (s *Session) offered(p *proto.PushItem) Block {
	b := Block{Key: p.Key, Tier: p.Have.Tier, Att: p.Have.Att}
	if p.NS == 0 || int(p.NS) > len(s.nsIn) {
		b.Code = wire.CodeNSUnknown
		return b
	}
	ns := s.nsIn[p.NS-1]
	b.NS = ns.ns
	h, err := wire.ParseHeader(p.Have.Head[:], wire.Strict, wire.MaxBody)
	switch {
	case err != nil, h.BodyLen != p.Have.Len, p.Key == wire.Key{}, p.Have.Tier != h.Tier:
		b.Code = wire.CodeInvalid
	case h.BodyLen > ns.blockBytes:
		b.Code = wire.CodeTooLarge
	}
	b.Head = h
	return b
}

// twins finds the items that bring a key a second time. They are EXISTS, without
// room of their own; what becomes of them is what becomes of the first.
func twins(b []Block) []int32 {
	type name struct {
		ns  wire.Namespace
		key wire.Key
	}
	var first map[name]int32 // of a long batch; a short one is compared in place
	if len(b) > fewItems {
		first = make(map[name]int32, len(b))
	}
	var twin []int32
	for i := range b {
		if b[i].Code != wire.CodeOK {
			continue
		}
		k, again := sameBefore(b, i, first == nil)
		if n := (name{b[i].NS, b[i].Key}); first != nil {
			if k, again = first[n]; !again {
				first[n] = int32(i)
			}
		}
		if !again {
			continue
		}
		if twin == nil {
			twin = make([]int32, len(b))
			for j := range twin {
				twin[j] = -1
			}
		}
		twin[i], b[i].Code = k, wire.CodeExists
	}
	return twin
}

// sameBefore finds item i of a short batch among those before it.
func sameBefore(b []Block, i int, short bool) (k int32, found bool) {
	for ; short && int(k) < i; k++ {
		if b[k].Code == wire.CodeOK && b[k].Key == b[i].Key && b[k].NS == b[i].NS {
			return k, true
		}
	}
	return 0, false
}

// follow gives each item with a twin before it what became of that one.
func (r *request) follow() {
	for i, k := range r.twin {
		if k < 0 {
			continue
		}
		b, first := &r.blocks[i], &r.blocks[k]
		if b.Code = first.Code; b.Code == wire.CodeOK {
			b.Code = wire.CodeExists
		}
		b.Slot, b.Gen = first.Slot, first.Gen
	}
}

// granted answers a push for which room was made, or was not.
func (l *Lane) granted(now time.Duration, j *Job) {
	r, b := j.r, j.room.blocks
	r.blocks = b
	if r.dead {
		l.s.unref(now, r)
		return
	}
	r.follow()
	r.in.items = make([]inItem, len(b))
	g := proto.Grant{Status: make([]wire.Code, len(b))}
	for i := range b {
		g.Status[i] = b[i].Code
		it := &r.in.items[i]
		*it = inItem{skip: b[i].Code != wire.CodeOK, code: b[i].Code, sum: b[i].Head.Sum}
		if !it.skip {
			it.body, it.size, it.came = b[i].Body, len(b[i].Body), b[i].Came
			r.in.left += uint64(it.size)
		}
	}
	r.in.active, r.serve.state = true, serveMoving
	r.progress(now)
	r.in.settleCursor()
	for i := range r.in.items {
		if it := &r.in.items[i]; !it.skip && it.size == 0 {
			l.giveHash(r, i)
		}
	}
	l.send(proto.Frame{Type: proto.TypeGrant, Req: r.id}, g)
	r.tellNext()
	l.s.unref(now, r)
}

func (l *Lane) serveCommit(now time.Duration, f proto.Frame) error {
	r := l.s.served[f.Req]
	switch {
	case r == nil || r.lane != l || r.typ != proto.TypePush || r.quit || r.serve.state == serveBegun && !r.dead:
		return refuse(wire.CodeState, "COMMIT of no open push")
	case !r.dead && r.in.left > 0:
		return refuse(wire.CodeState, "COMMIT before all bytes came")
	}
	r.serve.state, r.quit = serveCommitted, true
	l.s.settle(now, r)
	return nil
}

// settlePush publishes what was committed and verified, and frees the rest.
func (s *Session) settlePush(now time.Duration, r *request) {
	switch {
	case r.freed:
	case r.dead:
		r.freed = true
		s.cfg.Store.Abort(r.blocks)
	case r.serve.state == serveCommitted:
		r.freed = true
		s.publish(r)
		r.follow()
		r.lane.send(proto.Frame{Type: proto.TypeTable, Req: r.id}, proto.Table{Items: s.haves(r.blocks)})
		s.sendEnd(r)
		s.restock(now, r.lane, r.blocks)
	}
}

func (s *Session) publish(r *request) {
	for i := range r.blocks {
		b, it := &r.blocks[i], &r.in.items[i]
		switch {
		case b.Code != wire.CodeOK:
		case it.proof.OK():
			b.Proof = it.proof
			s.totals.BytesIn += uint64(it.size)
		default:
			s.cfg.Store.Abort(r.blocks[i : i+1])
			b.Code = wire.CodeChecksum
			s.totals.ChecksumFailures++
			s.events = append(s.events, Event{Kind: EventChecksum, Lane: r.lane.idx, Code: wire.CodeChecksum, Push: true, Items: 1})
		}
	}
	s.cfg.Store.Publish(r.blocks)
	for i := range r.blocks {
		r.blocks[i].Body = nil
	}
}
