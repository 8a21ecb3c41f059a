package core

import (
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// answer handles OPENED, TABLE, GRANT and END: it finds the request, checks the
// message against what was asked and how far the request came, and applies it
// then. With an error nothing has changed.
func (l *Lane) answer(now time.Duration, f proto.Frame, p []byte) error {
	s := l.s
	r := s.calls[f.Req]
	if r == nil || r.lane != l || r.ended {
		// END may come twice where a CANCEL crossed it, also while what the first
		// one brought is still being hashed.
		own := f.Req&1 == 1 == s.cfg.Dialler && f.Req != 0 && f.Req < s.nextReq
		if f.Type != proto.TypeEnd || !own {
			return refuse(wire.CodeState, f.Type.String()+" for no request")
		}
		return s.scratch.end.Parse(p)
	}
	switch f.Type {
	case proto.TypeOpened:
		m, err := proto.Parse[proto.Opened](p)
		if err == nil {
			err = r.checkOpened(m)
		}
		if err != nil {
			return err
		}
		l.opened(now, r, m)
	case proto.TypeTable:
		m := &s.scratch.table
		err := m.Parse(p)
		if err == nil {
			err = s.checkTable(r, m)
		}
		if err != nil {
			return err
		}
		l.table(now, r, m)
	case proto.TypeGrant:
		m := &s.scratch.grant
		err := m.Parse(p)
		if err == nil {
			err = r.checkGrant(m)
		}
		if err != nil {
			return err
		}
		l.grant(now, r, m)
	case proto.TypeEnd:
		m := &s.scratch.end
		err := m.Parse(p)
		if err == nil {
			err = r.checkEnd(m)
		}
		if err != nil {
			return err
		}
		l.ended(now, r, m)
	}
	return nil
}

// checkOpened: the answer of an OPEN, with a number where the namespace was taken.
func (r *request) checkOpened(m proto.Opened) error {
	switch {
	case r.typ != proto.TypeOpen:
		return refuse(wire.CodeState, "OPENED for another kind of request")
	case (m.Status == wire.CodeOK) != (m.NS != 0), m.NS > proto.MaxNamespaces:
		return refuse(wire.CodeInvalid, "OPENED with a number that does not go with its status")
	}
	return nil
}

func (l *Lane) opened(now time.Duration, r *request, m proto.Opened) {
	if r.call != nil {
		r.call.Opened = m
	}
	r.ended = true
	if !r.dead {
		r.code = m.Status
	}
	l.s.settle(now, r)
}

// tableDue reports whether the request waits for a TABLE.
func (r *request) tableDue() bool {
	switch r.typ {
	case proto.TypeHas, proto.TypeStat, proto.TypePull:
		return r.ask.state == askSent
	case proto.TypePush:
		return r.ask.state == askHanding || r.ask.state == askCommitted
	}
	return false
}

// checkTable holds every entry against what was asked. The headers that it took
// apart are in s.scratch.head, an entry each.
func (s *Session) checkTable(r *request, m *proto.Table) error {
	if !r.tableDue() || len(m.Items) != r.items {
		return refuse(wire.CodeState, "TABLE that was not asked for")
	}
	heads := s.scratch.head[:0]
	for i := range m.Items {
		h := &m.Items[i]
		var head wire.Header
		if h.Status == wire.CodeOK {
			var err error
			if head, err = wire.ParseHeader(h.Head[:], wire.Strict, wire.MaxBody); err != nil || head.BodyLen != h.Len {
				return refuse(wire.CodeInvalid, "TABLE with a header that is none")
			}
			if err := r.checkHave(i, h); err != nil {
				return err
			}
		}
		heads = append(heads, head)
	}
	s.scratch.head = heads
	return nil
}

// checkHave holds entry i, which is OK, against item i of the request.
func (r *request) checkHave(i int, h *proto.Have) error {
	var it *Item // nil: the call was taken back, nobody looks at the entry
	if r.call != nil {
		it = &r.call.Items[i]
	}
	if r.typ == proto.TypePush {
		switch {
		case r.out.items[i].skip:
			return refuse(wire.CodeInvalid, "TABLE with a block that was not granted")
		case it != nil && h.Head != it.Head:
			return refuse(wire.CodeInvalid, "TABLE with another block than was pushed")
		}
		return nil
	}
	if it != nil && it.Gen != 0 && (h.Slot != it.Slot || h.Gen != it.Gen) {
		return refuse(wire.CodeInvalid, "TABLE with another block than the reference names")
	}
	if r.typ != proto.TypePull || r.room[i].bare() {
		return nil
	}
	switch want := r.room[i]; {
	case h.Len > want.room || want.off > h.Len:
		return refuse(wire.CodeFlowViolation, "TABLE with a body that there is no room for")
	case it != nil && it.Off > 0 && it.Head != [wire.HeaderLen]byte{} && h.Head != it.Head:
		return refuse(wire.CodeInvalid, "TABLE with another block than was begun")
	}
	return nil
}

// table takes the answer for each item. For a pull it says which bytes follow.
func (l *Lane) table(now time.Duration, r *request, m *proto.Table) {
	s := l.s
	r.progress(now)
	if r.typ == proto.TypePush {
		r.ask.state = askConfirmed
	} else {
		r.ask.state = askTabled
	}
	if r.typ == proto.TypePull {
		r.in.items = make([]inItem, len(m.Items))
		r.in.active = true
	}
	for i := range m.Items {
		h := &m.Items[i]
		if r.call != nil {
			r.call.Items[i].told(r.typ, h)
		}
		if r.typ == proto.TypePull {
			l.expect(r, i, h, s.scratch.head[i])
		}
	}
	if r.call != nil && r.typ == proto.TypePull {
		r.call.Lease = m.Lease
	}
	r.in.settleCursor()
	if !r.dead {
		for i := range r.in.items {
			if it := &r.in.items[i]; !it.skip && it.got == it.size {
				l.giveHash(r, i)
			}
		}
	}
	s.settle(now, r)
}

// told notes what a TABLE says about an item.
func (it *Item) told(typ proto.Type, h *proto.Have) {
	if typ == proto.TypePush && it.Code != wire.CodeOK {
		if h.Status == wire.CodeExists {
			it.Slot, it.Gen = h.Slot, h.Gen
		}
		return // GRANT has said why not
	}
	it.Seen, it.Code = true, h.Status
	switch h.Status {
	case wire.CodeOK:
		it.Len, it.Slot, it.Gen, it.Tier, it.Att = h.Len, h.Slot, h.Gen, h.Tier, h.Att
		it.Head = h.Head
	case wire.CodeExists:
		if typ == proto.TypePush {
			it.Slot, it.Gen = h.Slot, h.Gen
		}
	}
}

// bare reports whether the lease alone is wanted.
func (w wantRoom) bare() bool { return w.room == 0 && w.lease }

// expect makes item i of a pull ready for its bytes, if there come any.
func (l *Lane) expect(r *request, i int, h *proto.Have, head wire.Header) {
	in, want := &r.in.items[i], r.room[i]
	if h.Status != wire.CodeOK || want.bare() {
		in.skip = true
		return
	}
	*in = inItem{size: int(h.Len), got: int(want.off), sum: head.Sum}
	if r.call != nil {
		in.body = r.call.Items[i].Room[:h.Len]
	}
	r.in.left += uint64(h.Len - want.off)
}

func (r *request) checkGrant(m *proto.Grant) error {
	if r.typ != proto.TypePush || r.ask.state != askSent || len(m.Status) != r.items {
		return refuse(wire.CodeState, "GRANT that was not asked for")
	}
	return nil
}

// grant starts the bytes of a push.
func (l *Lane) grant(now time.Duration, r *request, m *proto.Grant) {
	r.progress(now)
	r.ask.state = askGranted
	r.out.items = make([]outItem, len(m.Status))
	for i, code := range m.Status {
		r.out.items[i].skip = code != wire.CodeOK
	}
	if r.call == nil || r.dead {
		return // ABORT is on its way
	}
	for i, code := range m.Status {
		it := &r.call.Items[i]
		it.Code, it.Seen = code, true
	}
	if r.out.grows {
		l.growGranted(now, r, m.Status[0])
		return
	}
	l.sendBodies(r)
}

// sendBodies sends the bodies of a push that are not skipped, and COMMIT.
func (l *Lane) sendBodies(r *request) {
	for i := range r.out.items {
		if o := &r.out.items[i]; !o.skip {
			o.body = r.call.Items[i].Room
			r.out.left += uint64(len(o.body))
		}
	}
	r.out.settleCursor()
	if r.out.left == 0 {
		r.ask.state = askCommitted
		l.send(proto.Frame{Type: proto.TypeCommit, Req: r.id}, proto.Empty{})
		return
	}
	l.enqueue(r)
}

func (r *request) checkEnd(m *proto.End) error {
	switch {
	case len(m.Status) > 0 && len(m.Status) != r.items:
		return refuse(wire.CodeState, "END with another number of items")
	case !r.dead && m.Code == wire.CodeOK && r.short():
		return refuse(wire.CodeState, "END OK before the request was through")
	}
	return nil
}

// ended takes END: the peer will say no more about the request.
func (l *Lane) ended(now time.Duration, r *request, m *proto.End) {
	s := l.s
	r.ended = true
	if !r.dead {
		r.code, r.text = m.Code, m.Text
		r.retry = time.Duration(m.RetryMS) * time.Millisecond
	}
	if r.typ == proto.TypePing {
		s.rtt = now - r.began
	}
	if r.call != nil {
		r.call.RTT = now - r.began
		for i, code := range m.Status {
			it := &r.call.Items[i]
			it.Seen = true
			if code != wire.CodeOK && it.Code == wire.CodeOK {
				it.Code = code
			}
		}
	}
	if r.typ == proto.TypePush && (r.ask.state == askGranted || r.ask.state == askHanding) && !r.dead {
		// The holder gave up while bytes were still going out; it discards until
		// it hears ABORT.
		r.dead = true
		if l.dequeue(r) {
			l.send(proto.Frame{Type: proto.TypeAbort, Req: r.id}, proto.Empty{})
		}
	}
	s.settle(now, r)
}

// short reports whether a request of mine still lacks what END OK promises.
func (r *request) short() bool {
	switch r.typ {
	case proto.TypeOpen:
		return true // OPENED is its END
	case proto.TypeHas, proto.TypeStat:
		return r.ask.state != askTabled
	case proto.TypePull:
		return r.ask.state != askTabled || r.in.left > 0
	case proto.TypePush:
		return r.ask.state != askConfirmed
	}
	return false
}
