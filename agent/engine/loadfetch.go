package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// fetchesOfLoad is how many calls of the host run for one load: one for each
// namespace, holder and way of keeping among its items.
const fetchesOfLoad = 8

// Turn is a request's place among those of its session that fetch. They are served
// first come first served.
type Turn interface{ Leave() }

// Holder is an agent that is said to have a block. The zero one is nobody.
type Holder struct {
	Agent [16]byte
	Inc   uint64
}

// Fetch is what a call of Host.Fetch is to bring.
type Fetch struct {
	Owner     blocks.Owner // of a transient fetch
	NS        wire.Namespace
	Keys      []wire.Key
	Transient bool // for the owner alone
	// Holder is asked first and alone: by Refs, which may be nil, and a zero one of which
	// is none. The others are asked for the rest where Rest is set.
	Holder Holder
	Refs   []wire.Ref
	Rest   bool
	Turn   Turn // of TakeTurn; nil: behind nobody
	// Each hears of every key as soon as it is known what became of it, from several
	// goroutines, and returns at once; nil: nobody.
	Each func(i int, err error)
}

// arrival is what became of an item that was fetched.
type arrival struct {
	i   int32
	err error
}

// fetching is a load's way to other holders.
type fetching struct {
	running bool
	slot    bool // it has one of Limits.Reqs
	queued  bool // in loads.slots
	vain    int  // fetches in a row that brought nothing
	ticket  uint64
	turn    Turn // of the next fetch; nil: it takes one when it starts
	cancel  context.CancelFunc
}

// enter takes a place among the session's requests in flight, and a turn, where an
// item is to be fetched. The reader calls it.
func (f *fetching) enter(l *load) error {
	for i := range l.marks {
		if l.marks[i]&markFetch == 0 {
			continue
		}
		if !l.s.takeSlot() {
			most := l.s.srv.cfg.Limits.Reqs
			return fmt.Errorf("%d requests of this session run, the limit is %d: %w", most, most, wire.CodeBusy)
		}
		f.slot = true
		f.ticket, f.turn = l.s.takeTurn()
		return nil
	}
	f.ticket = l.s.nextTicket()
	return nil
}

// more starts a fetch of what holders may have, unless one runs.
func (f *fetching) more(l *load) {
	if f.running {
		return
	}
	var items []int32
	for i := l.next; i < len(l.marks); i++ {
		if l.marks[i]&markFetch != 0 && l.state[i] == itemNeeded {
			items = append(items, int32(i))
		}
	}
	if len(items) == 0 {
		f.leave(l)
		return
	}
	if f.slot = f.slot || l.s.takeSlot(); !f.slot {
		if !f.queued {
			f.queued = true
			l.s.loads.mu.Lock()
			l.s.loads.slots = append(l.s.loads.slots, l)
			l.s.loads.mu.Unlock()
			l.s.offerSlot() // one may have come free in between
		}
		return
	}
	f.queued = false
	for _, i := range items {
		l.marks[i] &^= markFetch
	}
	if f.turn == nil {
		f.turn = l.s.srv.cfg.Host.TakeTurn(uint64(l.s.owner), f.ticket)
	}
	ctx, cancel := context.WithDeadline(l.s.ctx, l.until)
	f.running, f.cancel = true, cancel
	turn := f.turn
	l.s.srv.flights.add(1)
	l.s.flown.Go(func() {
		defer l.s.srv.flights.add(-1)
		defer cancel()
		l.bring(ctx, turn, items)
		l.s.post(l, true, func(ev *loadEvents) { ev.landed = true })
	})
}

// landed notes that the fetch has ended. What it did not bring, and is waited for, is
// asked for again.
func (f *fetching) landed(l *load) {
	f.running = false
	f.vain++
	if f.turn != nil {
		f.turn.Leave()
		f.turn = nil
	}
}

// leave gives back what the fetch had.
func (f *fetching) leave(l *load) {
	if f.turn != nil {
		f.turn.Leave()
		f.turn = nil
	}
	if f.slot {
		f.slot = false
		l.s.giveSlot()
	}
}

// good notes that an item came from a holder, who will have more.
func (f *fetching) good(l *load, i int32) {
	f.vain = 0
	l.s.srv.asker.good(l.askID(i))
}

// askAgain asks holders for an item while it is waited for. One that was found and
// could not be had, for want of room perhaps, is asked for later each time.
func (f *fetching) askAgain(l *load, i int32) {
	if l.over == wire.CodeOK && l.marks[i]&markAsked == 0 {
		l.marks[i] |= markAsked
		l.s.srv.asker.add(l, i, min(askFirst<<min(f.vain, 16), askLast))
	}
}

// fetchGroup is what one call of the host may ask for.
type fetchGroup struct {
	ns        uint16
	holder    uint16
	transient bool
	rest      bool
}

// bring fetches items of a load, a call for each group of them.
func (l *load) bring(ctx context.Context, turn Turn, items []int32) {
	by := map[fetchGroup][]int32{}
	var order []fetchGroup
	for _, i := range items {
		it := &l.x.Items[i]
		g := fetchGroup{ns: it.NS, holder: it.Holder, transient: it.Flags&link.WantTransient != 0, rest: it.Flags&link.WantFetch != 0}
		if by[g] == nil {
			order = append(order, g)
		}
		by[g] = append(by[g], i)
	}
	if len(order) == 1 {
		l.bringGroup(ctx, turn, order[0], by[order[0]])
		return
	}
	var all sync.WaitGroup
	room := make(chan struct{}, fetchesOfLoad)
	for _, g := range order {
		room <- struct{}{}
		all.Go(func() {
			l.bringGroup(ctx, turn, g, by[g])
			<-room
		})
	}
	all.Wait()
}

// bringGroup tells of each item what became of it, once.
func (l *load) bringGroup(ctx context.Context, turn Turn, g fetchGroup, items []int32) {
	told := make([]atomic.Bool, len(items))
	tell := func(k int, err error) {
		if k < len(told) && !told[k].Swap(true) {
			l.s.post(l, true, func(ev *loadEvents) { ev.arrived = append(ev.arrived, arrival{items[k], err}) })
		}
	}
	f := Fetch{Owner: l.owner, NS: l.spaces[g.ns].ns, Keys: make([]wire.Key, len(items)), Transient: g.transient, Rest: g.rest, Turn: turn, Each: tell}
	if g.holder > 0 {
		h := &l.x.Holders[g.holder-1]
		f.Holder, f.Refs = Holder{h.Agent, h.Inc}, make([]wire.Ref, len(items))
	}
	for k, i := range items {
		it := &l.x.Items[i]
		f.Keys[k] = it.Key
		if g.holder > 0 && l.errs[i] == nil { // a reference that failed once is not tried again
			f.Refs[k].Slot, f.Refs[k].Gen = it.Slot, it.Gen
		}
	}
	for k, err := range l.s.srv.cfg.Host.Fetch(ctx, f) {
		tell(k, err)
	}
	for k := range told {
		tell(k, wire.CodeInternal) // the host has said nothing of it
	}
}

// takeSlot takes one of Limits.Reqs.
func (s *session) takeSlot() bool {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	if len(s.flights)+s.fetches >= s.srv.cfg.Limits.Reqs {
		return false
	}
	s.fetches++
	return true
}

// giveSlot gives it back.
func (s *session) giveSlot() {
	s.fmu.Lock()
	s.fetches--
	s.fmu.Unlock()
	s.offerSlot()
}

// offerSlot wakes the load that has waited for room to fetch for longest, if there is
// room.
func (s *session) offerSlot() {
	s.fmu.Lock()
	room := len(s.flights)+s.fetches < s.srv.cfg.Limits.Reqs
	s.fmu.Unlock()
	if !room {
		return
	}
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	for len(s.loads.slots) > 0 {
		l := s.loads.slots[0]
		s.loads.slots[0] = nil
		s.loads.slots = s.loads.slots[1:]
		if s.loads.by[l.req] != l {
			continue
		}
		l.ev.slot = true
		s.queue(l)
		return
	}
}

// nextTicket numbers requests in the order in which they came. The reader calls it.
func (s *session) nextTicket() uint64 {
	s.ticket++
	return s.ticket
}

// takeTurn is called by the reader for a request that fetches.
func (s *session) takeTurn() (uint64, Turn) {
	n := s.nextTicket()
	return n, s.srv.cfg.Host.TakeTurn(uint64(s.owner), n)
}
