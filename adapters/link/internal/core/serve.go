package core

import (
	"slices"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// serve handles a request of the peer. An error is a malformed payload.
func (l *Lane) serve(now time.Duration, f proto.Frame, p []byte) error {
	s := l.s
	switch f.Type {
	case proto.TypePing:
		l.end(now, f.Req, proto.End{})
	case proto.TypeOpen:
		m, err := proto.ParseOpen(p)
		if err != nil {
			return err
		}
		if s.draining {
			l.end(now, f.Req, proto.End{Code: wire.CodeDraining})
			return nil
		}
		l.answered(now)
		l.send(proto.Frame{Type: proto.TypeOpened, Req: f.Req}, s.open(m.Manifest))
	case proto.TypeHas, proto.TypeStat:
		m := &s.scratch.has
		if err := m.Parse(p); err != nil {
			return err
		}
		l.serveHas(now, f, m)
	case proto.TypePull:
		m := &s.scratch.pull
		if err := m.Parse(p); err != nil {
			return err
		}
		l.servePull(now, f, m)
	case proto.TypePush:
		m, err := proto.ParsePush(p)
		if err != nil {
			return err
		}
		l.servePush(now, f, m)
	case proto.TypeCommit:
		l.serveCommit(now, f)
	case proto.TypeCancel, proto.TypeAbort:
		l.serveCancel(now, f)
	case proto.TypeRenew:
		m, err := proto.ParseRenew(p)
		if err != nil {
			return err
		}
		ttl := min(time.Duration(m.MS)*time.Millisecond, proto.MaxLease)
		l.end(now, f.Req, proto.End{Code: s.cfg.Holder.Renew(m.Lease, ttl)})
	case proto.TypeRelease:
		m, err := proto.ParseRelease(p)
		if err != nil {
			return err
		}
		for _, lease := range m.Leases {
			s.cfg.Holder.Unpin(lease)
		}
		l.end(now, f.Req, proto.End{})
	default:
		l.fail(now, l.rx.at, wire.CodeState, f.Type.String()+" may not come now")
	}
	return nil
}

// end queues an END.
func (l *Lane) end(now time.Duration, req uint64, m proto.End) {
	l.answered(now)
	l.send(proto.Frame{Type: proto.TypeEnd, Req: req}, m)
}

// answered holds the peer to its limits by the answers that it has not taken:
// it had at least as many requests open.
func (l *Lane) answered(now time.Duration) {
	if l.tx.unans++; l.tx.unans > 2*int(l.s.cfg.Mine.Reqs) {
		l.fail(now, l.rx.at, wire.CodeFlowViolation, "twice the agreed requests")
	}
}

// open answers OPEN. A tenant that the peer has not proved is answered as a
// namespace that does not exist.
func (s *Session) open(manifest []byte) proto.Opened {
	m, err := wire.ParseManifest(manifest)
	if err != nil {
		return proto.Opened{Status: wire.CodeManifest}
	}
	if !s.cfg.Tenants.Has(m.Tenant) {
		return proto.Opened{Status: wire.CodeNSUnknown}
	}
	ns, code, field, ours, theirs := s.cfg.Registry.Open(m)
	if code != wire.CodeOK {
		return proto.Opened{Status: code, Field: field, Ours: ours, Theirs: theirs}
	}
	num := s.nsNum[ns]
	if num == 0 {
		if len(s.nsIn) >= proto.MaxNamespaces {
			return proto.Opened{Status: wire.CodeTooMany}
		}
		s.nsIn = append(s.nsIn, ns)
		num = uint16(len(s.nsIn))
		s.nsNum[ns] = num
	}
	return proto.Opened{NS: num}
}

// admit registers a request of the peer, or ends it: DRAINING, BUSY above the
// agreed counts, FLOW_VIOLATION above twice.
func (l *Lane) admit(now time.Duration, f proto.Frame, deadlineMS uint32, items int, bytes uint64) *request {
	s := l.s
	mine := s.cfg.Mine
	at := l.rx.at
	if s.served[f.Req] != nil {
		l.fail(now, at, wire.CodeState, "a request id that is in use")
		return nil
	}
	reqs, total := s.servedReqs+1, s.servedBytes+bytes
	switch {
	case reqs+l.tx.unans > 2*int(mine.Reqs):
		l.fail(now, at, wire.CodeFlowViolation, "twice the agreed requests")
		return nil
	case items > 2*int(mine.Items):
		l.fail(now, at, wire.CodeFlowViolation, "twice the agreed items")
		return nil
	case total > 2*uint64(mine.BytesInFlight):
		l.fail(now, at, wire.CodeFlowViolation, "twice the agreed bytes in flight")
		return nil
	case s.draining:
		l.end(now, f.Req, proto.End{Code: wire.CodeDraining})
		return nil
	case deadlineMS == 0:
		l.end(now, f.Req, proto.End{Code: wire.CodeDeadline})
		return nil
	case reqs > int(mine.Reqs), items > int(mine.Items), total > uint64(mine.BytesInFlight), len(l.tx.ctl) > busyQueue:
		s.totals.Busy++
		l.end(now, f.Req, proto.End{Code: wire.CodeBusy, RetryMS: uint32(busyRetry / time.Millisecond)})
		return nil
	}
	d := min(max(time.Duration(deadlineMS)*time.Millisecond, proto.MinDeadline), proto.MaxDeadline)
	r := &request{
		id: f.Req, typ: f.Type, class: f.Class, lane: l, began: now, deadline: now + d, bytes: bytes,
	}
	s.served[f.Req] = r
	s.servedReqs++
	s.servedBytes += bytes
	s.totals.RequestsIn++
	return r
}

// wanted turns wants into blocks to look for. A reference is looked for in the
// namespace that goes with it.
func (s *Session) wanted(items []proto.Want) []Block {
	b := make([]Block, len(items))
	for i := range items {
		w := &items[i]
		b[i] = Block{Key: w.Key, Slot: w.Slot, Gen: w.Gen}
		if w.NS == 0 || int(w.NS) > len(s.nsIn) {
			b[i].Code = wire.CodeNSUnknown
			continue
		}
		b[i].NS = s.nsIn[w.NS-1]
	}
	return b
}

// hide makes all that the peer may not see answer as what is not there: by
// reference STALE, by key ABSENT. A block that a reference names must have the
// key that came with it, if one came.
func hide(items []proto.Want, b []Block) {
	var noKey wire.Key
	for i := range b {
		w := &items[i]
		switch {
		case b[i].Code == wire.CodeDenied:
			b[i].Code = wire.CodeAbsent
		case w.Gen == 0:
		case b[i].Code == wire.CodeAbsent, b[i].Code == wire.CodeOK && w.Key != noKey && w.Key != b[i].Key:
			b[i].Code = wire.CodeStale
		}
	}
}

func (b *Block) have() proto.Have {
	switch b.Code {
	case wire.CodeOK:
	case wire.CodeExists: // a pusher learns the reference of what is there
		return proto.Have{Status: b.Code, Slot: b.Slot, Gen: b.Gen}
	default:
		return proto.Have{Status: b.Code}
	}
	h := proto.Have{Tier: b.Tier, Att: b.Att, Len: b.Head.BodyLen, Slot: b.Slot, Gen: b.Gen}
	b.Head.Put(h.Head[:])
	return h
}

// haves is good until the next call.
func (s *Session) haves(b []Block) []proto.Have {
	h := s.scratch.have[:0]
	for i := range b {
		h = append(h, b[i].have())
	}
	s.scratch.have = h
	return h
}

func (l *Lane) serveHas(now time.Duration, f proto.Frame, m *proto.Has) {
	r := l.admit(now, f, m.DeadlineMS, len(m.Items), 0)
	if r == nil {
		return
	}
	s := l.s
	b := s.wanted(m.Items)
	s.cfg.Holder.Stat(b)
	hide(m.Items, b)
	l.send(proto.Frame{Type: proto.TypeTable, Req: r.id}, proto.Table{Items: s.haves(b)})
	r.blocks = b
	r.dead, r.freed, r.terminal = true, true, true
	s.sendEnd(now, r)
	s.settle(now, r)
}

func (l *Lane) servePull(now time.Duration, f proto.Frame, m *proto.Pull) {
	s := l.s
	var room uint64
	var keep bool
	for i := range m.Items {
		keep = keep || m.Items[i].Flags&proto.WantKeepLease != 0
		if w := &m.Items[i]; w.Max > w.Off {
			room += uint64(w.Max - w.Off)
		}
	}
	r := l.admit(now, f, m.DeadlineMS, len(m.Items), room)
	if r == nil {
		return
	}
	if keep {
		r.keep = min(time.Duration(m.LeaseMS)*time.Millisecond, proto.MaxLease)
	}
	b := s.wanted(m.Items)
	r.lease = s.cfg.Holder.Pin(b, max(r.deadline-now+pinSlack, r.keep))
	hide(m.Items, b)
	r.out.items = make([]outItem, len(b))
	for i := range b {
		w, o := &m.Items[i], &r.out.items[i]
		switch {
		case b[i].Code != wire.CodeOK:
			o.skip = true
		case w.Max == 0 && w.Flags&proto.WantKeepLease != 0:
			o.skip = true // the lease alone is wanted
		case b[i].Head.BodyLen > w.Max:
			b[i].Code, o.skip = wire.CodeTooLarge, true
		case w.Off > b[i].Head.BodyLen:
			b[i].Code, o.skip = wire.CodeInvalid, true
		default:
			o.body, o.off = b[i].Body, int(w.Off)
			r.out.left += uint64(len(o.body) - o.off)
		}
	}
	r.blocks = b
	t := proto.Table{Items: s.haves(b)}
	if r.keep > 0 {
		t.Lease = r.lease
	}
	l.send(proto.Frame{Type: proto.TypeTable, Req: r.id}, t)
	r.announced = true
	if r.out.left == 0 {
		r.dead = true
		s.sendEnd(now, r)
		s.settle(now, r)
		return
	}
	r.out.settleCursor()
	l.enqueue(r)
}

func (l *Lane) servePush(now time.Duration, f proto.Frame, m proto.Push) {
	s := l.s
	var total uint64
	for i := range m.Items {
		total += uint64(m.Items[i].Have.Len)
	}
	r := l.admit(now, f, m.DeadlineMS, len(m.Items), total)
	if r == nil {
		return
	}
	b := make([]Block, len(m.Items))
	for i := range m.Items {
		b[i] = s.offered(&m.Items[i])
	}
	r.blocks = b
	r.refs++
	l.rx.jobs = append(l.rx.jobs, Job{
		r: r, room: &roomJob{s.cfg.Holder, slices.Clone(b), r.deadline - now + pinSlack},
	})
}

// granted answers a push for which room was made, or was not.
func (l *Lane) granted(now time.Duration, j *Job) {
	r, b := j.r, j.room.blocks
	r.blocks = b
	if r.dead {
		l.s.unref(now, r)
		return
	}
	r.in.items = make([]inItem, len(b))
	g := proto.Grant{Status: make([]wire.Code, len(b))}
	for i := range b {
		g.Status[i] = b[i].Code
		it := &r.in.items[i]
		*it = inItem{skip: b[i].Code != wire.CodeOK, code: b[i].Code, sum: b[i].Head.Sum}
		if !it.skip {
			it.body, it.size = b[i].Body, len(b[i].Body)
			r.in.left += uint64(it.size)
		}
	}
	r.in.active, r.announced = true, true
	r.in.settleCursor()
	for i := range r.in.items {
		if it := &r.in.items[i]; !it.skip && it.size == 0 {
			l.giveHash(r, i)
		}
	}
	l.send(proto.Frame{Type: proto.TypeGrant, Req: r.id}, g)
	l.s.unref(now, r)
}

// offered checks an item of PUSH by itself.
func (s *Session) offered(p *proto.PushItem) Block {
	b := Block{Key: p.Key, Tier: p.Have.Tier, Att: p.Have.Att}
	if p.NS == 0 || int(p.NS) > len(s.nsIn) {
		b.Code = wire.CodeNSUnknown
		return b
	}
	b.NS = s.nsIn[p.NS-1]
	h, err := wire.ParseHeader(p.Have.Head[:], wire.Strict, wire.MaxBody)
	if err != nil || h.BodyLen != p.Have.Len || p.Have.Tier > wire.OutputCritical || p.Have.Att > wire.AttestProducer {
		b.Code = wire.CodeInvalid
	}
	b.Head = h
	return b
}

func (l *Lane) serveCommit(now time.Duration, f proto.Frame) {
	r := l.s.served[f.Req]
	switch {
	case r == nil || r.lane != l || r.typ != proto.TypePush || r.terminal || !r.announced && !r.dead:
		l.fail(now, l.rx.at, wire.CodeState, "COMMIT of no open push")
		return
	case !r.dead && r.in.left > 0:
		l.fail(now, l.rx.at, wire.CodeState, "COMMIT before all bytes came")
		return
	}
	r.committed, r.terminal = true, true
	l.s.settle(now, r)
}

// serveCancel ends a request for its asker. What has ended already, or never
// was, is answered all the same.
func (l *Lane) serveCancel(now time.Duration, f proto.Frame) {
	r := l.s.served[f.Req]
	if r == nil || r.lane != l {
		l.end(now, f.Req, proto.End{Code: wire.CodeCancelled})
		return
	}
	if r.committed && !r.dead {
		return // the push is being checked and published; its END follows
	}
	r.terminal = true
	l.s.endServed(now, r, wire.CodeCancelled, "")
}

// endServed ends a request of the peer before it is through. Idempotent.
func (s *Session) endServed(now time.Duration, r *request, code wire.Code, text string) {
	if r.laneGone {
		r.terminal = true
	}
	if !r.dead && (r.typ != proto.TypePush || !r.endSent) {
		r.dead, r.code, r.text = true, code, text
	}
	if through := r.lane.dequeue(r); (through || r.laneGone) && !r.endSent {
		s.sendEnd(now, r)
	}
	s.settle(now, r)
}

// endOf is a request's END: a status an item, for what became of each.
func (s *Session) endOf(r *request) proto.End {
	e := proto.End{Code: r.code, Text: r.text, RetryMS: uint32(r.retry / time.Millisecond)}
	if r.blocks != nil {
		e.Status = make([]wire.Code, len(r.blocks))
	}
	for i := range r.blocks {
		e.Status[i] = r.blocks[i].Code
		unsent := r.typ == proto.TypePull && i < len(r.out.items) && !r.out.items[i].skip && r.out.items[i].off < len(r.out.items[i].body)
		if r.code != wire.CodeOK && e.Status[i] == wire.CodeOK && (unsent || r.typ == proto.TypePush) {
			e.Status[i] = r.code
		}
	}
	return e
}

func (s *Session) sendEnd(now time.Duration, r *request) {
	r.endSent = true
	r.lane.end(now, r.id, s.endOf(r))
}

// settleServed frees what a request of the peer held, once nothing is in use.
func (s *Session) settleServed(now time.Duration, r *request) {
	if r.typ == proto.TypePush {
		s.settlePush(now, r)
	} else if r.dead && !r.freed && (r.lane.tx.cur != r || r.laneGone) {
		r.freed, r.terminal = true, true
		s.unpin(r)
	}
	if !r.endSent || !r.freed || !r.terminal || s.served[r.id] != r {
		return
	}
	delete(s.served, r.id)
	s.servedReqs--
	s.servedBytes -= r.bytes
	s.servedEvent(now, r)
	s.release()
}

func (s *Session) unpin(r *request) {
	switch {
	case r.lease == (Lease{}):
	case r.keep > 0 && r.code == wire.CodeOK && !s.dead:
		_ = s.cfg.Holder.Renew(r.lease, r.keep) // a lease that has lapsed is told by its next RENEW
	default:
		s.cfg.Holder.Unpin(r.lease)
	}
}

// settlePush publishes what was committed and verified, and frees the rest.
func (s *Session) settlePush(now time.Duration, r *request) {
	switch {
	case r.freed:
	case r.dead:
		r.freed = true
		s.cfg.Holder.Abort(r.blocks)
	case r.committed:
		r.freed = true
		s.publish(r)
		r.lane.send(proto.Frame{Type: proto.TypeTable, Req: r.id}, proto.Table{Items: s.haves(r.blocks)})
		s.sendEnd(now, r)
	}
}

func (s *Session) publish(r *request) {
	good := make([]Block, 0, len(r.blocks))
	bad := make([]Block, 0)
	for i := range r.blocks {
		b, it := &r.blocks[i], &r.in.items[i]
		switch {
		case b.Code != wire.CodeOK:
		case it.proof.OK():
			b.Proof = it.proof
			good = append(good, *b)
			s.totals.BytesIn += uint64(it.size)
		default:
			bad = append(bad, *b)
			b.Code = wire.CodeChecksum
			s.totals.ChecksumFailures++
			s.events = append(s.events, Event{Kind: EventChecksum, Lane: r.lane.idx, Code: wire.CodeChecksum, Push: true, Items: 1})
		}
	}
	s.cfg.Holder.Publish(good)
	s.cfg.Holder.Abort(bad)
	for i, n := 0, 0; i < len(r.blocks); i++ {
		if b := &r.blocks[i]; b.Code == wire.CodeOK {
			*b = good[n]
			b.Body = nil
			n++
		}
	}
}

func (s *Session) servedEvent(now time.Duration, r *request) {
	if r.typ != proto.TypePull && r.typ != proto.TypePush {
		return
	}
	e := Event{Kind: EventServed, Lane: r.lane.idx, Push: r.typ == proto.TypePush, Class: r.class, Code: r.code, Took: now - r.began}
	for i := range r.blocks {
		switch {
		case r.blocks[i].Code != wire.CodeOK:
		case !e.Push:
			if o := &r.out.items[i]; o.off == len(o.body) {
				e.Items++
				e.Bytes += uint64(len(o.body))
			}
		case r.code == wire.CodeOK:
			e.Items++
			e.Bytes += uint64(r.in.items[i].size)
		}
	}
	s.events = append(s.events, e)
}
