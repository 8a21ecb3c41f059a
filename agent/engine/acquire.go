package engine

import (
	"fmt"
	"slices"
	"time"

	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// errUnseen refuses a hold lease to a process that could be gone without anybody
// noticing.
var errUnseen = fmt.Errorf("a hold lease needs a process that the daemon can see: share its PID namespace, or send a pidfd by PROCESS: %w", wire.CodeUnsupported)

// acquire answers ACQUIRE. What is here is granted at once; only where an item
// with WantFetch is not does the request become a flight.
func (s *session) acquire(f link.Frame, p []byte) error {
	start := time.Now()
	x := &s.in.acquire
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
	s.in.views = s.wanted(s.in.views, x.Items)
	v := s.in.views
	lease, err := s.srv.cfg.Store.Acquire(s.holder(x.Hold), v, link.LeaseFor(x.LeaseMS), x.Hold)
	if err != nil {
		s.refuse(f, len(x.Items), start, err)
		return nil
	}
	if !fetchable(x.Items, v) {
		s.in.places = placesOf(s.in.places, s.group.spaces(), x.Items, v)
		code := s.answerAcquired(f.Req, lease, s.in.places, "")
		s.observe(link.TypeAcquire, len(x.Items), start, code)
		return nil
	}
	ask := link.Acquire{DeadlineMS: x.DeadlineMS, LeaseMS: x.LeaseMS, Hold: x.Hold, Items: slices.Clone(x.Items)}
	views := slices.Clone(v)
	spaces := s.group.spaces()
	_, turn := s.takeTurn()
	ok, err := s.launch(f.Req, x.DeadlineMS, func(fl *flight) {
		defer turn.Leave()
		s.fetch(fl, turn, ask, spaces, views, lease)
	})
	if !ok {
		turn.Leave()
		s.srv.cfg.Store.Release(s.owner, lease)
	}
	return err
}

// holder is who a lease belongs to: a hold to the process that asked for it, a timed
// one to the group.
func (s *session) holder(hold bool) blocks.Owner {
	if hold {
		return s.owner
	}
	return s.group.owner
}

// wanted makes a view of each item.
func (s *session) wanted(v []blocks.View, items []link.Want) []blocks.View {
	v = slices.Grow(v[:0], len(items))[:len(items)]
	spaces := s.group.spaces()
	for i := range items {
		v[i] = s.view(spaces, &items[i])
	}
	return v
}

// view names the block of an item: by reference where the item has a generation,
// else by key. An item of a namespace that is not open here gets no namespace, so
// the store cannot find it.
func (s *session) view(spaces []space, w *link.Want) blocks.View {
	v := blocks.View{Key: w.Key}
	if n := int(w.NS); n < len(spaces) {
		v.NS = spaces[n].ns
	}
	if w.Gen != 0 {
		v.Ref = wire.Ref{Agent: s.srv.cfg.Agent, Inc: s.srv.cfg.Incarnation, Slot: w.Slot, Gen: w.Gen}
	}
	return v
}

// fetchable tells whether an item that is not here may come from elsewhere.
func fetchable(items []link.Want, v []blocks.View) bool {
	for i := range items {
		if items[i].Flags&link.WantFetch != 0 && v[i].Err != nil && v[i].NS != (wire.Namespace{}) && wire.CodeOf(v[i].Err) == wire.CodeAbsent {
			return true
		}
	}
	return false
}

// placesOf makes the items of ACQUIRED.
func placesOf(p []link.Place, spaces []space, items []link.Want, v []blocks.View) []link.Place {
	p = slices.Grow(p[:0], len(items))[:len(items)]
	for i := range items {
		placeOf(&p[i], spaces, items[i].NS, &v[i])
	}
	return p
}

// placeOf makes the entry of an item of ACQUIRED or LOADED.
func placeOf(p *link.Place, spaces []space, ns uint16, v *blocks.View) {
	*p = link.Place{Status: wire.CodeOf(v.Err)}
	switch {
	case int(ns) >= len(spaces):
		p.Status = wire.CodeNSUnknown
	case v.Err != nil:
	default:
		*p = link.Place{
			Tier: v.Tier, Att: v.Att, Slot: v.Ref.Slot, Gen: v.Ref.Gen,
			Seg: v.Seg, Len: v.Head.BodyLen, Off: v.Off, GenOff: v.GenOff,
		}
	}
}

// answerAcquired appends ACQUIRED and END, and before them MAP where an item lies
// in a segment that the engine has not mapped. Where that fails nothing is
// granted. why is for people: of the first block that could not be had and has
// more to say than its code.
func (s *session) answerAcquired(req uint64, lease blocks.Lease, p []link.Place, why string) wire.Code {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.announceFor(lease, p); err != nil {
		s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeEnd, Req: req}, refusal(err))
		return wire.CodeInternal
	}
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeAcquired, Req: req}, link.Acquired{Lease: lease, Items: p})
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeEnd, Req: req}, link.End{Text: why})
	if len(s.out) > flushAt {
		s.flushLocked()
	}
	return wire.CodeOK
}

// errUnmapped ends a request whose blocks the engine cannot be given.
var errUnmapped = fmt.Errorf("a segment cannot be mapped: %w", wire.CodeInternal)

// announceFor sends MAP where an item lies in a segment that the engine has not
// mapped. Where that fails the lease is given back. wmu is held.
func (s *session) announceFor(lease blocks.Lease, p []link.Place) error {
	last := uint32(0)
	for i := range p {
		if p[i].Seg == last || p[i].Status != wire.CodeOK {
			continue
		}
		last = p[i].Seg
		if _, ok := s.mapped[last]; ok {
			continue
		}
		if err := s.announce([]uint32{last}, false, 0); err != nil {
			s.log.Warn("segment cannot be announced", "segment", last, "err", err)
			s.srv.cfg.Store.Release(s.owner, lease)
			return errUnmapped
		}
	}
	return nil
}

// fetch pulls what is missing, while first pins what is here: otherwise making
// room for one block of a chain could evict another.
func (s *session) fetch(fl *flight, turn Turn, x link.Acquire, spaces []space, v []blocks.View, first blocks.Lease) {
	store := s.srv.cfg.Store
	if x.Hold {
		// The hold is taken for the whole batch at the end; until then a timed pin
		// does, which does not count twice against the owner's cap.
		pin := slices.Clone(v)
		lease, err := store.Acquire(s.owner, pin, link.MaxLease, false)
		store.Release(s.owner, first)
		first = lease
		if err != nil {
			s.endFetch(fl, len(x.Items), refusal(err))
			return
		}
	}
	failed := s.fetchMissing(fl, turn, s.holder(x.Hold), x.Items, v)
	for i := range v {
		v[i] = s.view(spaces, &x.Items[i])
	}
	lease, err := store.Acquire(s.holder(x.Hold), v, link.LeaseFor(x.LeaseMS), x.Hold)
	store.Release(s.owner, first)
	if fl.cancelled() {
		// Transient blocks that came all the same go with their first release.
		store.Release(s.owner, lease)
		s.endFetch(fl, len(x.Items), link.End{Code: wire.CodeCancelled})
		return
	}
	if err != nil {
		s.endFetch(fl, len(x.Items), refusal(err))
		return
	}
	why := ""
	for i := range v {
		if failed[i] == nil || wire.CodeOf(v[i].Err) != wire.CodeAbsent {
			continue
		}
		v[i].Err = failed[i]
		if _, bare := failed[i].(wire.Code); why == "" && !bare {
			why = words(failed[i])
		}
	}
	p := placesOf(nil, spaces, x.Items, v)
	s.land(fl)
	code := s.answerAcquired(fl.req, lease, p, why)
	s.observe(link.TypeAcquire, len(p), fl.since, code)
}

func (s *session) endFetch(fl *flight, items int, e link.End) {
	s.land(fl)
	s.answerEnd(fl.req, e)
	s.observe(link.TypeAcquire, items, fl.since, e.Code)
}

// fetchMissing asks the host for the items that are not here, a call for each
// namespace and way of keeping. The result has an error for each item of v that
// could not be had.
func (s *session) fetchMissing(fl *flight, turn Turn, o blocks.Owner, items []link.Want, v []blocks.View) []error {
	failed := make([]error, len(v))
	todo := make([]int, 0, len(v))
	for i := range v {
		if items[i].Flags&link.WantFetch != 0 && v[i].NS != (wire.Namespace{}) && wire.CodeOf(v[i].Err) == wire.CodeAbsent {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 && fl.ctx.Err() == nil {
		ns, how := v[todo[0]].NS, items[todo[0]].Flags&link.WantTransient
		var now, later []int
		var keys []wire.Key
		for _, i := range todo {
			if v[i].NS == ns && items[i].Flags&link.WantTransient == how {
				now, keys = append(now, i), append(keys, v[i].Key)
			} else {
				later = append(later, i)
			}
		}
		for j, err := range s.srv.cfg.Host.Fetch(fl.ctx, Fetch{Owner: o, NS: ns, Keys: keys, Transient: how != 0, Turn: turn}) {
			if j < len(now) {
				failed[now[j]] = err
			}
		}
		todo = later
	}
	for _, i := range todo {
		failed[i] = wire.CodeDeadline
	}
	return failed
}

// renew answers RENEW.
func (s *session) renew(f link.Frame, p []byte) error {
	var x link.Renew
	if err := s.parse(&x, p); err != nil {
		return err
	}
	start := time.Now()
	e := refusal(s.srv.cfg.Store.Renew(s.owner, x.Lease, link.LeaseFor(x.MS)))
	if e.Code == wire.CodeLeaseLost {
		e.Text = "the lease has lapsed, was released, or is another engine's"
	}
	s.answerEnd(f.Req, e)
	s.observe(link.TypeRenew, 1, start, e.Code)
	return nil
}

// release answers RELEASE. A lease that is gone, or was never this group's, is
// no error: release is idempotent.
func (s *session) release(f link.Frame, p []byte) error {
	x := &s.in.release
	if err := s.parse(x, p); err != nil {
		return err
	}
	start := time.Now()
	for i := range x.Leases {
		s.srv.cfg.Store.Release(s.owner, x.Leases[i])
	}
	s.answerEnd(f.Req, link.End{})
	s.observe(link.TypeRelease, len(x.Leases), start, wire.CodeOK)
	return nil
}
