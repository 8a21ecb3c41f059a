package engine

import (
	"slices"
	"time"

	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// load answers LOAD.
func (s *session) load(f link.Frame, p []byte) error {
	start := time.Now()
	x := &s.in.load
	if err := s.parse(x, p); err != nil {
		return err
	}
	err := s.admit(len(x.Items), x.DeadlineMS)
	if x.Hold && !s.visible() {
		err = errUnseen
	}
	if err != nil {
		s.refuse(f, len(x.Items), start, err)
		return nil
	}
	if len(x.Items) == 0 {
		s.answerEnd(f.Req, link.End{})
		s.observe(link.TypeLoad, 0, start, wire.CodeOK)
		return nil
	}
	spaces := s.group.spaces()
	s.in.views = s.loadViews(s.in.views, spaces, x.Items)
	v := s.in.views
	lease, err := s.srv.cfg.Store.Acquire(s.holder(x.Hold), v, link.LeaseFor(x.LeaseMS), x.Hold)
	if err != nil {
		s.refuse(f, len(x.Items), start, err)
		return nil
	}
	if !pending(x.Items, v) {
		s.in.places = loadPlaces(s.in.places, spaces, x.Items, v)
		err := s.answerLoaded(f.Req, lease, 0, s.in.places)
		s.answerEnd(f.Req, refusal(err))
		s.observe(link.TypeLoad, len(x.Items), start, wire.CodeOf(err))
		return nil
	}
	s.srv.cfg.Store.Release(s.holder(x.Hold), lease)
	s.enterLoad(f, start, spaces, v)
	return nil
}

// enterLoad makes a load of a LOAD that cannot be answered at once, and steps it.
func (s *session) enterLoad(f link.Frame, start time.Time, spaces []space, v []blocks.View) {
	l := s.newLoad(f, start, spaces, v)
	if l.held > 0 {
		if err := s.group.parking.enter(l.held, len(l.state), &s.srv.cfg.Limits); err != nil {
			s.refuse(f, len(v), start, err)
			return
		}
	}
	if err := l.fetch.enter(l); err != nil {
		if l.held > 0 {
			s.group.parking.leave(l.held, len(l.state))
		}
		s.refuse(f, len(v), start, err)
		return
	}
	s.loads.mu.Lock()
	if s.loads.by == nil {
		s.loads.by = map[uint64]*load{}
	}
	s.loads.by[l.req] = l
	s.loads.mu.Unlock()
	l.timer = time.AfterFunc(time.Until(l.until), func() { s.endLoad(l, wire.CodeDeadline) })
	if s.srv.draining.Load() { // Drain may have passed by before this load was there
		s.endLoad(l, wire.CodeDraining)
	}
	l.waitFor(l.toWait())
	l.step(&loadEvents{})
	s.rest(l)
}

func (s *session) newLoad(f link.Frame, start time.Time, spaces []space, v []blocks.View) *load {
	x := &s.in.load
	n := len(x.Items)
	l := &load{
		s: s, req: f.Req, since: start, until: start.Add(min(time.Duration(x.DeadlineMS)*time.Millisecond, link.MaxDeadline)),
		x:      link.Load{DeadlineMS: x.DeadlineMS, LeaseMS: x.LeaseMS, Hold: x.Hold, Holders: slices.Clone(x.Holders), Items: slices.Clone(x.Items)},
		spaces: spaces, owner: s.holder(x.Hold), state: make([]uint8, n), marks: make([]uint8, n), waitAt: make([]int32, n), errs: make([]error, n), busy: true,
	}
	for i := range v {
		it := &l.x.Items[i]
		switch {
		case v[i].Err == nil:
			l.state[i] = itemHere
		case !mayCome(it, &v[i]):
			l.fail(int32(i), itemErr(spaces, it, v[i].Err))
		default:
			if it.Flags&link.WantWait != 0 {
				l.held++
			}
			if elsewhere(it) {
				l.marks[i] |= markFetch
			}
		}
	}
	return l
}

// elsewhere tells whether an item may be had from a holder.
func elsewhere(it *link.LoadItem) bool { return it.Flags&link.WantFetch != 0 || it.Holder != 0 }

// mayCome tells whether an item that is not here may come. One that names a slot of
// this agent may not: the slot has another block.
func mayCome(it *link.LoadItem, v *blocks.View) bool {
	return v.Err != nil && v.NS != (wire.Namespace{}) && wire.CodeOf(v.Err) == wire.CodeAbsent &&
		(it.Flags&link.WantWait != 0 || elsewhere(it))
}

// pending tells whether an item that is not here may come.
func pending(items []link.LoadItem, v []blocks.View) bool {
	for i := range items {
		if mayCome(&items[i], &v[i]) {
			return true
		}
	}
	return false
}

// itemErr is why an item is not granted.
func itemErr(spaces []space, it *link.LoadItem, err error) error {
	if int(it.NS) >= len(spaces) {
		return wire.CodeNSUnknown
	}
	return err
}

// loadView names the block of an item. A reference is of this agent where no holder is
// named.
func (s *session) loadView(spaces []space, it *link.LoadItem) blocks.View {
	v := blocks.View{Key: it.Key}
	if n := int(it.NS); n < len(spaces) {
		v.NS = spaces[n].ns
	}
	if it.Gen != 0 && it.Holder == 0 {
		v.Ref = wire.Ref{Agent: s.srv.cfg.Agent, Inc: s.srv.cfg.Incarnation, Slot: it.Slot, Gen: it.Gen}
	}
	return v
}

func (s *session) loadViews(v []blocks.View, spaces []space, items []link.LoadItem) []blocks.View {
	v = slices.Grow(v[:0], len(items))[:len(items)]
	for i := range items {
		v[i] = s.loadView(spaces, &items[i])
	}
	return v
}

// loadPlaces makes the items of a part.
func loadPlaces(p []link.Place, spaces []space, items []link.LoadItem, v []blocks.View) []link.Place {
	p = slices.Grow(p[:0], len(items))[:len(items)]
	for i := range items {
		placeOf(&p[i], spaces, items[i].NS, &v[i])
	}
	return p
}
