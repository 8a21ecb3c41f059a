package engine

import (
	"slices"
	"time"

	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// has answers HAS from the store; items with WantFetch that are not here are
// asked for elsewhere, on a flight.
func (s *session) has(f link.Frame, p []byte) error {
	start := time.Now()
	x := &s.in.has
	if err := s.parse(x, p); err != nil {
		return err
	}
	if err := s.admit(len(x.Items), x.DeadlineMS); err != nil {
		s.refuse(f, len(x.Items), start, err)
		return nil
	}
	s.in.views = s.wanted(s.in.views, x.Items)
	s.lookup(s.in.views)
	s.lookupRefs(s.in.views, x.Items)
	s.in.haves = havesOf(s.in.haves, s.group.spaces(), x.Items, s.in.views)
	if !fetchable(x.Items, s.in.views) {
		s.answerTable(f.Req, s.in.haves)
		s.observe(link.TypeHas, len(x.Items), start, wire.CodeOK)
		return nil
	}
	items, views, haves := slices.Clone(x.Items), slices.Clone(s.in.views), slices.Clone(s.in.haves)
	_, err := s.launch(f.Req, x.DeadlineMS, func(fl *flight) {
		s.findRemote(fl, items, views, haves)
		code := wire.CodeOK
		if fl.cancelled() {
			code = wire.CodeCancelled
		}
		s.land(fl)
		if code == wire.CodeOK {
			s.answerTable(fl.req, haves)
		} else {
			s.answerEnd(fl.req, link.End{Code: code})
		}
		s.observe(link.TypeHas, len(items), fl.since, code)
	})
	return err
}

// lookup fills v by NS and Key, one call of the store for each run of one
// namespace: a chain is one run.
func (s *session) lookup(v []blocks.View) {
	for i := 0; i < len(v); {
		ns, at := v[i].NS, i
		s.in.keys = s.in.keys[:0]
		for i < len(v) && v[i].NS == ns {
			s.in.keys = append(s.in.keys, v[i].Key)
			i++
		}
		s.srv.cfg.Store.Lookup(ns, s.in.keys, v[at:i])
	}
}

// lookupRefs fills the views of items that name a slot and generation. The store
// looks a reference up only to lease it, so there is a lease for that moment.
func (s *session) lookupRefs(v []blocks.View, items []link.Want) {
	var refs []blocks.View
	for i := range items {
		if items[i].Gen != 0 {
			refs = append(refs, s.view(s.group.spaces(), &items[i]))
		}
	}
	if refs == nil {
		return
	}
	lease, err := s.srv.cfg.Store.Acquire(s.group.owner, refs, time.Second, false)
	s.srv.cfg.Store.Release(s.owner, lease)
	for i, n := 0, 0; i < len(items); i++ {
		if items[i].Gen == 0 {
			continue
		}
		v[i] = refs[n]
		if err != nil {
			v[i].Err = err
		}
		n++
	}
}

// havesOf makes the items of TABLE.
func havesOf(h []link.Have, spaces []space, items []link.Want, v []blocks.View) []link.Have {
	h = slices.Grow(h[:0], len(items))[:len(items)]
	for i := range items {
		h[i] = link.Have{Status: wire.CodeOf(v[i].Err)}
		switch {
		case int(items[i].NS) >= len(spaces):
			h[i].Status = wire.CodeNSUnknown
		case v[i].Err == nil:
			h[i].Tier, h[i].Att, h[i].Len = v[i].Tier, v[i].Att, v[i].Head.BodyLen
			h[i].Slot, h[i].Gen = v[i].Ref.Slot, v[i].Ref.Gen
			v[i].Head.Put(h[i].Head[:])
		}
	}
	return h
}

// findRemote fills the entries of h that are ABSENT here and were asked for with
// WantFetch. Slot and generation stay 0: they would name a slot of another agent.
func (s *session) findRemote(fl *flight, items []link.Want, v []blocks.View, h []link.Have) {
	todo := make([]int, 0, len(v))
	for i := range v {
		if items[i].Flags&link.WantFetch != 0 && h[i].Status == wire.CodeAbsent {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 && fl.ctx.Err() == nil {
		ns := v[todo[0]].NS
		var now, later []int
		var keys []wire.Key
		for _, i := range todo {
			if v[i].NS == ns {
				now, keys = append(now, i), append(keys, v[i].Key)
			} else {
				later = append(later, i)
			}
		}
		for j, have := range s.srv.cfg.Host.FindRemote(fl.ctx, ns, Holder{}, keys) {
			if j < len(now) {
				have.Slot, have.Gen = 0, 0
				h[now[j]] = have
			}
		}
		todo = later
	}
}

// answerTable appends TABLE and END.
func (s *session) answerTable(req uint64, h []link.Have) {
	s.wmu.Lock()
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeTable, Req: req}, link.Table{Items: h})
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeEnd, Req: req}, link.End{})
	if len(s.out) > flushAt {
		s.flushLocked()
	}
	s.wmu.Unlock()
}
