package core

import (
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// answer handles OPENED, TABLE, GRANT and END. An error is a malformed payload.
func (l *Lane) answer(now time.Duration, f proto.Frame, p []byte) error {
	s := l.s
	r := s.calls[f.Req]
	if r == nil || r.lane != l {
		// END may come twice where a CANCEL crossed it.
		own := f.Req&1 == 1 == s.cfg.Dialler && f.Req != 0 && f.Req < s.nextReq
		if f.Type != proto.TypeEnd || !own {
			l.fail(now, l.rx.at, wire.CodeState, f.Type.String()+" for no request")
		}
		return nil
	}
	switch f.Type {
	case proto.TypeOpened:
		m, err := proto.ParseOpened(p)
		if err != nil {
			return err
		}
		if r.typ != proto.TypeOpen {
			break
		}
		if r.call != nil {
			r.call.Opened = m
		}
		r.ended, r.code = true, m.Status
		s.settle(now, r)
		return nil
	case proto.TypeTable:
		m := &s.scratch.table
		if err := m.Parse(p); err != nil {
			return err
		}
		return l.table(now, r, m)
	case proto.TypeGrant:
		m, err := proto.ParseGrant(p)
		if err != nil {
			return err
		}
		return l.grant(now, r, m)
	case proto.TypeEnd:
		m, err := proto.ParseEnd(p)
		if err != nil {
			return err
		}
		return l.ended(now, r, m)
	}
	l.fail(now, l.rx.at, wire.CodeState, f.Type.String()+" for another kind of request")
	return nil
}

// table takes the holder's answer for each item. For a pull it says which bytes
// follow.
func (l *Lane) table(now time.Duration, r *request, m *proto.Table) error {
	s := l.s
	items := len(m.Items)
	wrong := r.announced && r.typ != proto.TypePush
	switch r.typ {
	case proto.TypeHas, proto.TypeStat, proto.TypePull:
	case proto.TypePush:
		wrong = !r.committed && !r.handed || r.tabled
	default:
		wrong = true
	}
	if wrong || items != r.items {
		l.fail(now, l.rx.at, wire.CodeState, "TABLE that was not asked for")
		return nil
	}
	if r.typ == proto.TypePush {
		r.tabled = true
	} else {
		r.announced = true
	}
	l.lastData = now
	if r.typ == proto.TypePull {
		r.in.items = make([]inItem, items)
		r.in.active = true
	}
	for i := range m.Items {
		h := &m.Items[i]
		var it *Item
		if r.call != nil {
			it = &r.call.Items[i]
			it.Seen = true
			it.Code = h.Status
		}
		if r.typ == proto.TypePull {
			r.in.items[i].skip = true
		}
		if r.typ == proto.TypePush && h.Status == wire.CodeExists && it != nil {
			it.Slot, it.Gen = h.Slot, h.Gen
		}
		if h.Status != wire.CodeOK {
			continue
		}
		head, err := wire.ParseHeader(h.Head[:], wire.Strict, wire.MaxBody)
		if err != nil || head.BodyLen != h.Len {
			l.fail(now, l.rx.at, wire.CodeInvalid, "TABLE with a header that is none")
			return nil //nolint:nilerr // the lane has failed with its code; nothing else is wrong
		}
		if it != nil {
			it.Len, it.Slot, it.Gen, it.Tier, it.Att = h.Len, h.Slot, h.Gen, h.Tier, h.Att
			it.Head = h.Head
		}
		if r.typ == proto.TypePull && !l.expect(now, r, i, h, head) {
			return nil
		}
	}
	if r.call != nil {
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
	return nil
}

// expect makes item i of a pull ready for its bytes. It reports false where the
// holder would send more than there is room for.
func (l *Lane) expect(now time.Duration, r *request, i int, h *proto.Have, head wire.Header) bool {
	want := r.room[i]
	if want.room == 0 && want.lease {
		return true
	}
	if h.Len > want.room || want.off > h.Len {
		l.fail(now, l.rx.at, wire.CodeFlowViolation, "TABLE with a body that there is no room for")
		return false
	}
	in := &r.in.items[i]
	*in = inItem{size: int(h.Len), got: int(want.off), sum: head.Sum}
	if r.call != nil {
		in.body = r.call.Items[i].Room[:h.Len]
	}
	r.in.left += uint64(h.Len - want.off)
	return true
}

// grant starts the bytes of a push.
func (l *Lane) grant(now time.Duration, r *request, m proto.Grant) error {
	if r.typ != proto.TypePush || r.announced || len(m.Status) != r.items {
		l.fail(now, l.rx.at, wire.CodeState, "GRANT that was not asked for")
		return nil
	}
	r.announced = true
	if r.call == nil || r.dead {
		return nil // ABORT is on its way
	}
	r.out.items = make([]outItem, len(m.Status))
	for i, code := range m.Status {
		it, o := &r.call.Items[i], &r.out.items[i]
		it.Code = code
		if code != wire.CodeOK {
			o.skip, it.Seen = true, true
			continue
		}
		o.body = it.Room
		r.out.left += uint64(len(it.Room))
	}
	r.out.settleCursor()
	if r.out.left == 0 {
		r.committed = true
		l.send(proto.Frame{Type: proto.TypeCommit, Req: r.id}, proto.Empty{})
		return nil
	}
	l.enqueue(r)
	return nil
}

// ended takes END: the peer will say no more about the request.
func (l *Lane) ended(now time.Duration, r *request, m proto.End) error {
	s := l.s
	if len(m.Status) > 0 && len(m.Status) != r.items {
		l.fail(now, l.rx.at, wire.CodeState, "END with another number of items")
		return nil
	}
	if !r.dead && m.Code == wire.CodeOK && r.short() {
		l.fail(now, l.rx.at, wire.CodeState, "END OK before the request was through")
		return nil
	}
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
	if r.typ == proto.TypePush && r.announced && !r.committed && !r.dead && m.Code != wire.CodeOK {
		// The holder gave up while bytes were still going out; it discards until
		// it hears ABORT.
		r.dead = true
		if l.dequeue(r) {
			l.send(proto.Frame{Type: proto.TypeAbort, Req: r.id}, proto.Empty{})
		}
	}
	s.settle(now, r)
	return nil
}

// short reports whether a request of mine still lacks what END OK promises.
func (r *request) short() bool {
	switch r.typ {
	case proto.TypeHas, proto.TypeStat:
		return !r.announced
	case proto.TypePull:
		return !r.announced || r.in.left > 0
	case proto.TypePush:
		return !r.committed && !r.handed
	}
	return false
}
