package engine

import (
	"errors"
	"sync"
	"time"

	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// A LOAD's way:
//
//	1 load     what is here at once, and cannot become more, is one part: the
//	           reader answers in place
//	2 admit    else a load is made. It takes a place among the group's that wait,
//	           and its turn among the session's that fetch            reader
//	3 step     grants what is here and leads, pins what is here behind it, starts
//	           the fetch, answers a part                              reader, once
//	4 events   a block was published (wait.go), has arrived or could not be had
//	           (loadfetch.go), was found at a holder (ask.go); the time is over,
//	           CANCEL, the session ends, the daemon leaves
//	5 runLoads steps the loads with events, one after the other       one goroutine
//	           a session, while there are any
//
// So a load that waits has no goroutine. Its fields belong to who steps it, but for
// its events, which are under loads.mu.

// States of an item.
const (
	itemNeeded uint8 = iota // not here: it is waited for, or fetched
	itemHere                // here when it was looked for last
	itemFailed              // decided: errs says why
	itemSent                // in a part
)

// What else is known of an item.
const (
	markWaits  uint8 = 1 << iota // it is in the server's waits
	markAsked                    // it is in the server's asker
	markFetch                    // a holder may have it: the next fetch is to bring it
	markPinned                   // a lease of pins has, or had, it
)

// loads are a session's LOADs that are not answered in place.
type loads struct {
	mu      sync.Mutex
	by      map[uint64]*load // by request number
	ready   []*load          // that have events
	slots   []*load          // that wait for one of Limits.Reqs to fetch
	running bool             // a goroutine steps them
	closed  bool             // the session ends
}

// load is one LOAD.
type load struct {
	s      *session
	req    uint64
	since  time.Time
	until  time.Time
	x      link.Load // its own memory
	spaces []space
	owner  blocks.Owner // of its leases, and of what is fetched for it alone
	timer  *time.Timer  // ends its waiting

	state  []uint8
	marks  []uint8
	waitAt []int32 // of items in waits: their place there; under its lock
	errs   []error // of items that failed, or whose last fetch did
	next   int     // the first item that was not in a part
	held   int     // items that count in the group's parking
	pins   []blocks.Lease
	why    string    // for END: of the first item with more to say than its code
	over   wire.Code // why it is to end before all is decided
	done   bool
	fetch  fetching

	busy   bool // somebody steps it; under loads.mu, as the rest
	queued bool // in loads.ready
	ev     loadEvents
}

// loadEvents is what happened to a load since its last step.
type loadEvents struct {
	woken   []int32 // published here
	arrived []arrival
	found   []int32   // at a holder
	landed  bool      // the fetch has ended
	slot    bool      // there may be room to fetch
	over    wire.Code // DEADLINE, CANCELLED, DRAINING
}

func (e *loadEvents) any() bool {
	return len(e.woken) > 0 || len(e.arrived) > 0 || len(e.found) > 0 || e.landed || e.slot || e.over != wire.CodeOK
}

func (l *load) id(i int32) blockID {
	it := &l.x.Items[i]
	return blockID{l.spaces[it.NS].ns, it.Key}
}

// step deals with what happened: it is called by one goroutine at a time.
func (l *load) step(ev *loadEvents) {
	l.take(ev)
	if ev.over != wire.CodeOK && (l.over == wire.CodeOK || ev.over == wire.CodeCancelled) {
		l.over = ev.over
	}
	if l.s.ctx.Err() != nil {
		l.over = wire.CodeCancelled // and nobody hears of it
	}
	if l.over != wire.CodeOK {
		l.forget()
		if l.fetch.running {
			if l.over == wire.CodeCancelled { // at its deadline it ends by itself
				l.fetch.cancel()
			}
			return // its end is waited for: it may write to this owner's slots
		}
	}
	switch l.over {
	case wire.CodeCancelled:
		l.finish(&link.End{Code: wire.CodeCancelled})
		return
	case wire.CodeDeadline:
		l.expire()
	}
	if !l.grant() {
		return
	}
	switch {
	case l.next == len(l.state):
		l.finish(&link.End{Text: l.why})
	case l.over == wire.CodeDraining:
		e := refusal(errLeaving)
		l.finish(&e)
	default:
		l.fetch.more(l)
	}
}

// take notes which items are here, or are not to be had.
func (l *load) take(ev *loadEvents) {
	for _, i := range ev.woken {
		if l.state[i] == itemNeeded {
			l.state[i] = itemHere
			l.s.srv.waits.woken.Add(1)
		}
	}
	for _, a := range ev.arrived {
		if a.err == nil {
			l.fetch.good(l, a.i)
		}
		switch it := &l.x.Items[a.i]; {
		case l.state[a.i] != itemNeeded:
		case a.err == nil:
			l.state[a.i] = itemHere
		case it.Flags&link.WantWait == 0, it.Flags&link.WantFetch == 0 && errors.Is(a.err, wire.CodeIncarnation):
			l.fail(a.i, a.err) // in the second case nobody who may be asked will ever have it
		default:
			l.errs[a.i] = a.err
			l.fetch.askAgain(l, a.i)
		}
	}
	for _, i := range ev.found {
		l.marks[i] &^= markAsked
		if l.state[i] == itemNeeded {
			l.marks[i] |= markFetch
		}
	}
	if ev.slot {
		l.fetch.queued = false
	}
	if ev.landed {
		l.fetch.landed(l)
	}
}

// fail decides an item.
func (l *load) fail(i int32, err error) {
	l.state[i], l.errs[i] = itemFailed, err
	if _, bare := err.(wire.Code); l.why == "" && !bare {
		l.why = words(err)
	}
}

// expire decides what is left when the time is over: it was waited for in vain.
func (l *load) expire() {
	for i := range l.state {
		if l.state[i] != itemNeeded {
			continue
		}
		err := l.errs[i]
		if waits := l.x.Items[i].Flags&link.WantWait != 0; err == nil || waits && wire.CodeOf(err) == wire.CodeDeadline {
			err = wire.CodeAbsent
		}
		l.fail(int32(i), err)
		l.s.srv.waits.expired.Add(1)
	}
}

// grant leases what leads and is decided, and answers it as a part; what is here
// behind it is pinned, so that what comes meanwhile does not evict it. It returns
// false where the load has ended.
func (l *load) grant() bool {
	for l.next < len(l.state) && l.state[l.next] != itemNeeded {
		end := l.next
		for end < len(l.state) && l.state[end] != itemNeeded {
			end++
		}
		v := make([]blocks.View, end-l.next)
		for i := range v {
			if l.state[l.next+i] == itemHere { // else of no namespace: it is not leased
				v[i] = l.s.loadView(l.spaces, &l.x.Items[l.next+i])
			}
		}
		lease, err := l.s.srv.cfg.Store.Acquire(l.owner, v, link.LeaseFor(l.x.LeaseMS), l.x.Hold)
		if err != nil {
			e := refusal(err)
			l.finish(&e)
			return false
		}
		if l.lost(l.next, v) {
			l.s.srv.cfg.Store.Release(l.owner, lease) // it may be of more than the part
			continue
		}
		if !l.answer(lease, end, v) {
			return false
		}
	}
	l.pin()
	return true
}

// answer sends a part of the items up to end.
func (l *load) answer(lease blocks.Lease, end int, v []blocks.View) bool {
	p := make([]link.Place, len(v))
	for i := range v {
		k := l.next + i
		if l.state[k] == itemFailed {
			v[i].Err = l.errs[k]
		}
		placeOf(&p[i], l.spaces, l.x.Items[k].NS, &v[i])
		l.state[k] = itemSent
	}
	first := l.next
	l.next = end
	l.dropMarks(first, end)
	if err := l.s.answerLoaded(l.req, lease, uint32(first), p); err != nil {
		e := refusal(err)
		l.finish(&e)
		return false
	}
	return true
}

// lost looks for items from at on that are not here any more: they were evicted
// between their publishing and their grant. Those with WAIT are waited for again.
func (l *load) lost(at int, v []blocks.View) (lost bool) {
	var again []int32
	for i := range v {
		k := int32(at + i)
		if l.state[k] != itemHere || v[i].Err == nil {
			continue
		}
		it := &l.x.Items[k]
		if l.over == wire.CodeDeadline || !mayCome(it, &v[i]) || it.Flags&link.WantWait == 0 {
			l.fail(k, itemErr(l.spaces, it, v[i].Err))
			continue
		}
		l.state[k] = itemNeeded
		l.marks[k] &^= markPinned
		again = append(again, k)
		if elsewhere(it) {
			l.marks[k] |= markFetch
		}
	}
	l.waitFor(again)
	return len(again) > 0
}

// pin leases what is here and cannot leave yet, for link.MaxLease at most. What is
// waited for longer than that may be evicted, and is then waited for again.
func (l *load) pin() {
	for {
		var v []blocks.View
		var at []int32
		for i := l.next; i < len(l.state); i++ {
			if l.state[i] == itemHere && l.marks[i]&markPinned == 0 {
				v, at = append(v, l.s.loadView(l.spaces, &l.x.Items[i])), append(at, int32(i))
			}
		}
		if len(v) == 0 {
			return
		}
		lease, err := l.s.srv.cfg.Store.Acquire(l.owner, v, link.MaxLease, false)
		if err != nil {
			return // it is looked for again at its grant
		}
		if lease != (blocks.Lease{}) {
			l.pins = append(l.pins, lease)
		}
		lost := false
		for k, i := range at {
			l.marks[i] |= markPinned
			lost = l.lost(int(i), v[k:k+1]) || lost
		}
		if !lost {
			return
		}
	}
}

// toWait are the items with WAIT that are needed.
func (l *load) toWait() (items []int32) {
	if l.held == 0 {
		return nil
	}
	items = make([]int32, 0, l.held)
	for i := range l.state {
		if l.state[i] == itemNeeded && l.x.Items[i].Flags&link.WantWait != 0 {
			items = append(items, int32(i))
		}
	}
	return items
}

// waitFor waits for needed items, and looks once more whether they are here: what was
// published before they were in waits woke nobody.
func (l *load) waitFor(items []int32) {
	var add []int32
	for _, i := range items {
		if l.marks[i]&markWaits == 0 {
			l.marks[i] |= markWaits
			add = append(add, i)
		}
	}
	l.s.srv.waits.add(l, add)
	for at := 0; at < len(add); {
		ns := l.id(add[at]).ns
		end := at
		var keys []wire.Key
		for end < len(add) && l.id(add[end]).ns == ns {
			keys = append(keys, l.x.Items[add[end]].Key)
			end++
		}
		v := make([]blocks.View, len(keys))
		l.s.srv.cfg.Store.Peek(ns, keys, v)
		for k := range v {
			if v[k].Err == nil {
				l.state[add[at+k]] = itemHere
			}
		}
		at = end
	}
}

// dropMarks takes items that are decided, or whose load ends, out of waits and asker.
func (l *load) dropMarks(at, end int) {
	var waits, asked []int32
	for i := at; i < end; i++ {
		if l.marks[i]&markWaits != 0 {
			waits = append(waits, int32(i))
		}
		if l.marks[i]&markAsked != 0 {
			asked = append(asked, int32(i))
		}
		l.marks[i] &^= markWaits | markAsked | markFetch
	}
	l.s.srv.waits.remove(l, waits)
	l.s.srv.asker.remove(l, asked)
}

// forget waits for nothing any more.
func (l *load) forget() { l.dropMarks(l.next, len(l.state)) }

// finish ends the load, which has no fetch that runs.
func (l *load) finish(e *link.End) {
	s := l.s
	l.done = true
	l.timer.Stop()
	l.forget()
	l.dropTransient()
	for _, lease := range l.pins {
		s.srv.cfg.Store.Release(l.owner, lease)
	}
	l.pins = nil
	if l.held > 0 {
		s.group.parking.leave(l.held, len(l.state))
	}
	s.loads.mu.Lock()
	delete(s.loads.by, l.req) // after it a CANCEL finds nothing, so it comes right before the answer
	s.loads.mu.Unlock()
	l.fetch.leave(l)
	s.answerEnd(l.req, *e)
	s.observe(link.TypeLoad, len(l.state), l.since, e.Code)
}

// dropTransient leases what was fetched for this load alone and did not leave, since
// it goes with its first release.
func (l *load) dropTransient() {
	var v []blocks.View
	for i := l.next; i < len(l.state); i++ {
		if l.state[i] == itemHere && l.x.Items[i].Flags&link.WantTransient != 0 {
			v = append(v, l.s.loadView(l.spaces, &l.x.Items[i]))
		}
	}
	if len(v) == 0 {
		return
	}
	if lease, err := l.s.srv.cfg.Store.Acquire(l.owner, v, time.Second, false); err == nil {
		l.s.srv.cfg.Store.Release(l.owner, lease)
	}
}
