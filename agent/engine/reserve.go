package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// Bounds of a session's reservations. What they have of the arena is bounded by the
// share of its engine; this bounds what the session remembers of them, some 90 bytes an
// item.
const (
	maxReservations = 1024
	maxReserved     = 1 << 16 // items
)

// reservation is room that RESERVE made. It is its session's own.
type reservation struct {
	until   time.Time
	room    []room // by item of RESERVE
	open    int    // that are neither filled nor being filled
	filling int
	closed  bool // what is open, or comes back, is given back
}

// room is the room of one item.
type room struct {
	item  link.StoreItem
	ref   wire.Ref
	space wire.Namespace
	state roomState
}

type roomState uint8

const (
	noRoom   roomState = iota // refused, or filled
	openRoom                  // for FILL
	inFill                    // a FILL works on it
)

// reservations are a session's, by the number that RESERVED told.
type reservations struct {
	mu     sync.Mutex
	of     map[uint64]*reservation
	making int       // RESERVEs under way
	items  int       // of all, and of those
	next   time.Time // nothing ends before
}

// reserveRoom answers RESERVE. Room is given back when its time is over, by the last
// FILL, or with the session.
func (s *session) reserveRoom(f link.Frame, p []byte) error {
	start := time.Now()
	x := &s.in.reserve
	if err := s.parse(x, p); err != nil {
		return err
	}
	err := s.admit(len(x.Items), x.DeadlineMS)
	if err == nil {
		err = s.mayRemember(start, len(x.Items))
	}
	if err != nil {
		s.refuse(f, len(x.Items), start, err)
		return nil
	}
	j := &copyJob{items: slices.Clone(x.Items), spaces: s.group.spaces(), keep: link.LeaseFor(x.TTLms)}
	if s.inPlace(x.Items) {
		s.answerReserved(f, j, s.reserveFor(j))
		s.observe(f.Type, len(j.items), start, wire.CodeOK)
		return nil
	}
	// It may have to wait for a segment to be made.
	ok, err := s.launch(f.Req, x.DeadlineMS, func(fl *flight) {
		num := s.reserveFor(j)
		code := wire.CodeOf(fl.ctx.Err())
		s.land(fl)
		if code != wire.CodeOK { // nobody would fill it
			s.giveBack(num)
			s.answerEnd(fl.req, link.End{Code: code})
		} else {
			s.answerReserved(f, j, num)
		}
		s.observe(f.Type, len(j.items), fl.since, code)
	})
	if !ok {
		s.rooms.made(0, nil, len(j.items))
	}
	return err
}

// mayRemember refuses more reservations than a session may have.
func (s *session) mayRemember(now time.Time, items int) error {
	r := &s.rooms
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	switch n := len(r.of) + r.making; {
	case n >= maxReservations:
		return fmt.Errorf("%d reservations of this session are open, the limit is %d: %w", n, maxReservations, wire.CodeBusy)
	case r.items+items > maxReserved:
		return fmt.Errorf("%d items are reserved by this session and it wants %d more, the limit is %d: %w", r.items, items, maxReserved, wire.CodeBusy)
	}
	r.making++
	r.items += items
	return nil
}

// made ends a RESERVE of that many items under way, with what it made.
func (r *reservations) made(num uint64, x *reservation, items int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.making--
	if x == nil {
		r.items -= items
		return
	}
	if r.of == nil {
		r.of = map[uint64]*reservation{}
	}
	if len(r.of) == 0 || x.until.Before(r.next) {
		r.next = x.until
	}
	r.of[num] = x
}

// expire forgets what ended by itself: the store has its room back.
func (r *reservations) expire(now time.Time) {
	if len(r.of) == 0 || now.Before(r.next) {
		return
	}
	r.next = now.Add(link.MaxLease)
	for num, x := range r.of {
		if !now.Before(x.until) {
			r.forget(num, x)
		} else if x.until.Before(r.next) {
			r.next = x.until
		}
	}
}

func (r *reservations) forget(num uint64, x *reservation) {
	if r.of[num] == x {
		delete(r.of, num)
		r.items -= len(x.room)
	}
}

// reserveFor makes room for the items of j, and remembers it under the number that it
// returns; 0: for none.
func (s *session) reserveFor(j *copyJob) (num uint64) {
	until := time.Now().Add(j.keep)
	s.makeRoom(j, rightToReserve)
	for _, t := range j.twins {
		if j.status[t.item] = j.status[t.first]; j.status[t.item] == wire.CodeOK {
			j.status[t.item] = wire.CodeExists
		}
	}
	x := &reservation{until: until, room: make([]room, len(j.items))}
	for i := range j.items {
		if j.status[i] == wire.CodeOK {
			x.room[i] = room{j.items[i], j.views[i].Ref, j.views[i].NS, openRoom}
			x.open++
		}
	}
	if x.open == 0 {
		s.rooms.made(0, nil, len(j.items))
		return 0
	}
	num = s.srv.reserved.Add(1)
	s.rooms.made(num, x, len(j.items))
	return num
}

// giveBack ends a reservation.
func (s *session) giveBack(num uint64) {
	r := &s.rooms
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.of[num]; x != nil {
		x.closed = true
		s.settle(num, x)
	}
}

// settle gives back what is to be given back, and forgets a reservation of which
// nothing is left. mu of rooms is held.
func (s *session) settle(num uint64, x *reservation) {
	if !x.closed {
		if x.open+x.filling == 0 {
			s.rooms.forget(num, x)
		}
		return
	}
	s.rooms.forget(num, x)
	var refs []wire.Ref
	for i := range x.room {
		if rm := &x.room[i]; rm.state == openRoom {
			rm.state = noRoom
			refs = append(refs, rm.ref)
		}
	}
	x.open = 0
	s.srv.cfg.Store.AbortRefs(s.owner, refs)
}

// rightToReserve says whether an item could be filled at all.
func rightToReserve(_ *copyJob, it *link.StoreItem) error {
	if it.Len == 0 {
		return fmt.Errorf("room for no byte: %w", wire.CodeInvalid)
	}
	return nil
}

func (s *session) answerReserved(f link.Frame, j *copyJob, num uint64) {
	s.wmu.Lock()
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeReserved, Req: f.Req}, link.Reserved{Rsv: num, Status: j.status})
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeEnd, Req: f.Req}, link.End{Text: j.why})
	s.wmu.Unlock()
}
