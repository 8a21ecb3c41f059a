package core

import (
	"slices"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// request handles a request of the peer, or what belongs to one. With an error
// nothing has changed.
func (l *Lane) request(now time.Duration, f proto.Frame, p []byte) error {
	switch f.Type {
	case proto.TypeHas, proto.TypeStat:
		m := &l.s.scratch.has
		if err := m.Parse(p); err != nil {
			return err
		}
		return l.serveHas(now, f, m)
	case proto.TypePull:
		m := &l.s.scratch.pull
		if err := m.Parse(p); err != nil {
			return err
		}
		return l.servePull(now, f, m)
	case proto.TypePush, proto.TypeDeliver:
		m := &l.s.scratch.push
		if err := m.Parse(p); err != nil {
			return err
		}
		if f.Type == proto.TypeDeliver {
			return l.serveDeliver(now, f, m)
		}
		return l.servePush(now, f, m)
	case proto.TypeCommit:
		return l.serveCommit(now, f)
	case proto.TypeCancel, proto.TypeAbort:
		return l.serveCancel(now, f)
	case proto.TypePing:
		return l.other(f.Req, func() proto.End { return proto.End{} })
	case proto.TypeOpen:
		m, err := proto.Parse[proto.Open](p)
		if err != nil {
			return err
		}
		return l.serveOpen(f, m)
	case proto.TypeRenew:
		m, err := proto.Parse[proto.Renew](p)
		if err != nil {
			return err
		}
		return l.other(f.Req, func() proto.End {
			code := l.s.renew(m.Lease, proto.LeaseFor(m.MS))
			if code == wire.CodeLeaseLost {
				return proto.End{Code: code, Text: "the lease was released, has lapsed, or was never granted to this session"}
			}
			return proto.End{Code: code}
		})
	case proto.TypeRelease:
		m, err := proto.Parse[proto.Release](p)
		if err != nil {
			return err
		}
		return l.other(f.Req, func() proto.End {
			for _, lease := range m.Leases {
				l.s.giveBack(lease)
			}
			return proto.End{}
		})
	}
	return refuse(wire.CodeState, f.Type.String()+" may not come now")
}

// unknown answers a frame of a type that this version does not know, if it has
// an id of its sender's.
func (l *Lane) unknown(f proto.Frame) error {
	if f.Req == 0 || f.Req&1 == 1 == l.s.cfg.Dialler {
		return nil
	}
	return l.other(f.Req, func() proto.End { return proto.End{Code: wire.CodeUnsupported} })
}

// other does and answers at once what is not held to the counts of HELLO.
func (l *Lane) other(req uint64, do func() proto.End) error {
	if err := l.mayAsk(req); err != nil {
		return err
	}
	l.endOther(req, do())
	return nil
}

// mayAsk holds the peer to its limits by the answers that it has not taken: it
// had at least as many requests open. A running request's id is not free.
func (l *Lane) mayAsk(req uint64) error {
	switch {
	case l.tx.unreadOther >= 2*max(int(l.s.cfg.Mine.Reqs), minUnread):
		return refuse(wire.CodeFlowViolation, "twice the agreed requests")
	case l.s.served[req] != nil:
		return refuse(wire.CodeState, "a request id that is in use")
	}
	return nil
}

// end queues the END of a request that is held to the counts.
func (l *Lane) end(req uint64, m proto.End) {
	l.tx.unread++
	l.send(proto.Frame{Type: proto.TypeEnd, Req: req}, m)
}

func (l *Lane) endOther(req uint64, m proto.End) {
	l.tx.unreadOther++
	l.send(proto.Frame{Type: proto.TypeEnd, Req: req}, m)
}

func (l *Lane) serveOpen(f proto.Frame, m proto.Open) error {
	if err := l.mayAsk(f.Req); err != nil {
		return err
	}
	if l.s.draining {
		l.endOther(f.Req, proto.End{Code: wire.CodeDraining})
		return nil
	}
	l.tx.unreadOther++
	l.send(proto.Frame{Type: proto.TypeOpened, Req: f.Req}, l.s.open(m.Manifest))
	return nil
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
	if num := s.nsNum[m.Namespace()]; num != 0 {
		return proto.Opened{NS: num}
	}
	if len(s.nsIn) >= proto.MaxNamespaces {
		return proto.Opened{Status: wire.CodeTooMany} // before the agent hears of it
	}
	ns, code, field, ours, theirs := s.cfg.Namespaces.Open(m)
	if code != wire.CodeOK {
		return proto.Opened{Status: code, Field: field, Ours: ours, Theirs: theirs}
	}
	s.nsIn = append(s.nsIn, openNS{ns: ns, blockBytes: m.BlockBytes})
	num := uint16(len(s.nsIn))
	s.nsNum[ns] = num
	return proto.Opened{NS: num}
}

// admit registers a request of the peer, or ends it. Both results are nil where it
// was ended; with an error nothing has changed.
func (l *Lane) admit(now time.Duration, f proto.Frame, deadlineMS uint32, items int, bytes uint64) (*request, error) {
	code, err := l.judge(f, deadlineMS, items, bytes)
	switch {
	case err != nil:
		return nil, err
	case code != wire.CodeOK:
		l.end(f.Req, l.turnAway(code))
		return nil, nil
	}
	return l.admitted(now, f, deadlineMS, bytes), nil
}

// judge is the code of the END that a request of the peer gets at once: DRAINING,
// DEADLINE, BUSY above the agreed counts, OK where it may begin. Above twice the
// counts it is FLOW_VIOLATION.
func (l *Lane) judge(f proto.Frame, deadlineMS uint32, items int, bytes uint64) (wire.Code, error) {
	s := l.s
	mine := s.cfg.Mine
	reqs, total := s.servedReqs+1, s.servedBytes+bytes
	switch {
	case s.served[f.Req] != nil:
		return 0, refuse(wire.CodeState, "a request id that is in use")
	case reqs+l.tx.unread > 2*int(mine.Reqs):
		return 0, refuse(wire.CodeFlowViolation, "twice the agreed requests")
	case items > 2*int(mine.Items):
		return 0, refuse(wire.CodeFlowViolation, "twice the agreed items")
	case total > 2*uint64(mine.BytesInFlight):
		return 0, refuse(wire.CodeFlowViolation, "twice the agreed bytes in flight")
	case s.draining:
		return wire.CodeDraining, nil
	case deadlineMS == 0:
		return wire.CodeDeadline, nil
	case reqs > int(mine.Reqs), items > int(mine.Items), total > uint64(mine.BytesInFlight), len(l.tx.ctl) > busyQueue:
		return wire.CodeBusy, nil
	}
	return wire.CodeOK, nil
}

// turnAway is the END of a request that may not begin.
func (l *Lane) turnAway(code wire.Code) proto.End {
	s := l.s
	m := proto.End{Code: code}
	if code == wire.CodeBusy {
		s.totals.Busy++
		m.RetryMS = uint32(busyRetry / time.Millisecond)
	}
	if code != wire.CodeDeadline {
		s.events = append(s.events, Event{Kind: EventTurnedAway, Lane: l.idx, Code: code})
	}
	return m
}

// admitted registers a request of the peer, which counts from now on.
func (l *Lane) admitted(now time.Duration, f proto.Frame, deadlineMS uint32, bytes uint64) *request {
	s := l.s
	d := min(max(time.Duration(deadlineMS)*time.Millisecond, proto.MinDeadline), proto.MaxDeadline)
	r := &request{
		id: f.Req, typ: f.Type, class: f.Class, lane: l, began: now, deadline: now + d, bytes: bytes, serve: &serve{},
	}
	r.progress(now)
	s.served[f.Req] = r
	s.count(r, true)
	s.totals.RequestsIn++
	return r
}

// count begins or ends to count a request of the peer against the agreed limits.
func (s *Session) count(r *request, on bool) {
	switch {
	case r.serve.counts == on:
		return
	case on:
		s.servedReqs++
		s.servedBytes += r.bytes
	default:
		s.servedReqs--
		s.servedBytes -= r.bytes
	}
	r.serve.counts = on
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
		b[i].NS = s.nsIn[w.NS-1].ns
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

func (l *Lane) serveHas(now time.Duration, f proto.Frame, m *proto.Has) error {
	r, err := l.admit(now, f, m.DeadlineMS, len(m.Items), 0)
	if r == nil {
		return err
	}
	s := l.s
	b := s.wanted(m.Items)
	s.cfg.Store.Stat(b)
	if f.Type == proto.TypeHas && f.Arg == 0 && s.looks(b) {
		s.looking++
		r.refs++
		r.blocks = b
		l.rx.jobs = append(l.rx.jobs, Job{lane: l, r: r, look: &lookJob{s.cfg.Looker, slices.Clone(b), slices.Clone(m.Items)}})
		return nil
	}
	l.tabled(now, r, m.Items, b)
	return nil
}

// tabled answers a HAS.
func (l *Lane) tabled(now time.Duration, r *request, items []proto.Want, b []Block) {
	s := l.s
	hide(items, b)
	l.send(proto.Frame{Type: proto.TypeTable, Req: r.id}, proto.Table{Items: s.haves(b)})
	r.blocks = b
	r.dead, r.freed, r.quit = true, true, true
	s.sendEnd(r)
	s.settle(now, r)
}

func (l *Lane) servePull(now time.Duration, f proto.Frame, m *proto.Pull) error {
	s := l.s
	var room uint64
	var keep bool
	for i := range m.Items {
		keep = keep || m.Items[i].Flags&proto.WantKeepLease != 0
		if w := &m.Items[i]; w.Max > w.Off {
			room += uint64(w.Max - w.Off)
		}
	}
	r, err := l.admit(now, f, m.DeadlineMS, len(m.Items), room)
	if r == nil {
		return err
	}
	if keep {
		r.keep = min(time.Duration(m.LeaseMS)*time.Millisecond, proto.MaxLease)
	}
	b := s.wanted(m.Items)
	r.lease = s.cfg.Store.Pin(b, max(r.deadline-now+pinSlack, r.keep))
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
	if r.keep > 0 && r.lease != (Lease{}) {
		t.Lease = r.lease
		s.leased[r.lease] = r
	}
	l.send(proto.Frame{Type: proto.TypeTable, Req: r.id}, t)
	r.serve.state = serveMoving
	if r.out.left == 0 {
		r.dead = true
		s.sendEnd(r)
		s.settle(now, r)
		return nil
	}
	r.out.settleCursor()
	l.enqueue(r)
	return nil
}

// serveCancel ends a request for its asker. What has ended already, or never
// was, is answered all the same.
func (l *Lane) serveCancel(now time.Duration, f proto.Frame) error {
	r := l.s.served[f.Req]
	switch {
	case r == nil || r.lane != l:
		if l.tx.unreadOther >= 2*max(int(l.s.cfg.Mine.Reqs), minUnread) {
			return refuse(wire.CodeFlowViolation, "twice the agreed requests")
		}
		l.endOther(f.Req, proto.End{Code: wire.CodeCancelled})
		return nil
	case r.serve.state == serveCommitted && !r.dead:
		return nil // the push is being checked and published; its END follows
	}
	r.quit = true
	l.s.endServed(now, r, wire.CodeCancelled, "")
	return nil
}

// tickServed ends what ran out of time, and the pushes that do not go on.
func (s *Session) tickServed(now time.Duration) {
	for _, r := range inOrder(s.served) {
		switch {
		case r.endSent:
		case now >= r.deadline:
			s.endServed(now, r, wire.CodeDeadline, "")
		case r.typ == proto.TypePush && r.serve.state == serveMoving && r.stuck(now):
			s.endServed(now, r, wire.CodeNoProgress, "the push does not go on")
		}
	}
}

// endServed ends a request of the peer before it is through. Idempotent.
func (s *Session) endServed(now time.Duration, r *request, code wire.Code, text string) {
	if r.laneGone {
		r.quit = true
	}
	if !r.dead && (r.typ != proto.TypePush || !r.endSent) {
		r.dead, r.code, r.text = true, code, text
	}
	if through := r.lane.dequeue(r); (through || r.laneGone) && !r.endSent {
		s.sendEnd(r)
	}
	s.settle(now, r)
}

// endOf is a request's END: a status an item, for what became of each. It is good
// until the next call.
func (s *Session) endOf(r *request) proto.End {
	e := proto.End{Code: r.code, Text: r.text}
	e.Status = s.scratch.code[:0]
	for i := range r.blocks {
		e.Status = append(e.Status, r.blocks[i].Code)
		unsent := r.typ == proto.TypePull && i < len(r.out.items) && !r.out.items[i].skip && r.out.items[i].off < len(r.out.items[i].body)
		if r.code != wire.CodeOK && e.Status[i] == wire.CodeOK && (unsent || r.typ == proto.TypePush) {
			e.Status[i] = r.code
		}
	}
	for i, k := range r.twin {
		if k >= 0 && r.code != wire.CodeOK {
			e.Status[i] = e.Status[k]
		}
	}
	s.scratch.code = e.Status
	return e
}

func (s *Session) sendEnd(r *request) {
	r.endSent = true
	r.lane.end(r.id, s.endOf(r))
}

// settleServed frees what a request of the peer held, once nothing is in use.
func (s *Session) settleServed(now time.Duration, r *request) {
	if r.typ == proto.TypePush {
		s.settlePush(now, r)
	} else if r.dead && !r.freed && (r.lane.tx.cur != r || r.laneGone) {
		r.freed, r.quit = true, true
		s.pulled(r)
		s.unpin(r)
	}
	if !r.endSent || !r.freed || !r.quit || s.served[r.id] != r {
		return
	}
	delete(s.served, r.id)
	s.count(r, false)
	s.servedEvent(now, r)
	s.release()
}

func (s *Session) servedEvent(now time.Duration, r *request) {
	if r.typ != proto.TypePull && r.typ != proto.TypePush || r.blocks == nil {
		return // not a transfer, or one that was turned away
	}
	e := Event{Kind: EventServed, Lane: r.lane.idx, Push: r.typ == proto.TypePush, Class: r.class, Code: r.code, Took: now - r.began}
	for i := range r.blocks {
		switch c := r.blocks[i].Code; {
		case c == wire.CodeExists:
		case c != wire.CodeOK:
			e.Refused = append(e.Refused, c)
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
