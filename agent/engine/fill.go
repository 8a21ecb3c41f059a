package engine

import (
	"context"
	"fmt"
	"time"

	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// fillTime is what a FILL may take: it states no deadline.
const fillTime = link.MaxDeadline

// filler is a FILL under work. Items of the job are those of FILL.
type filler struct {
	copyJob
	num  uint64
	from *reservation
	item []uint32 // of RESERVE, by item
	last bool
}

// fill answers FILL: bytes are copied from the ring into room that was reserved, hashed
// and published.
func (s *session) fill(f link.Frame, p []byte) error {
	start := time.Now()
	x := &s.in.fill
	if err := s.parse(x, p); err != nil {
		return err
	}
	n := len(x.Items)
	if n > 0 { // giving back is never refused
		if err := s.admit(n, uint32(fillTime.Milliseconds())); err != nil {
			s.refuse(f, n, start, err)
			return nil
		}
	}
	j := s.takeRoom(x, start)
	answer := func(code wire.Code) {
		s.endFill(j)
		s.answerPut(f.Req, &j.copyJob, code)
		s.observe(f.Type, n, start, code)
	}
	if len(j.todo) == 0 || s.inPlace(j.items) {
		answer(s.copyRoom(&j.copyJob, s.ctx))
		return nil
	}
	ok, err := s.launch(f.Req, uint32(fillTime.Milliseconds()), func(fl *flight) {
		code := s.copyBehind(fl, &j.copyJob, s.copyRoom)
		s.land(fl)
		answer(code)
	})
	if !ok { // it was answered BUSY: nothing was tried
		j.last = false
		s.endFill(j)
	}
	return err
}

// takeRoom takes the room of FILL's items out of its reservation.
func (s *session) takeRoom(x *link.Fill, now time.Time) *filler {
	n := len(x.Items)
	j := &filler{num: x.Rsv, last: x.Last, item: make([]uint32, n)}
	j.copyJob = copyJob{
		items: make([]link.StoreItem, n), views: make([]blocks.View, n), places: make([]placing, n),
		spaces: s.group.spaces(), ring: s.ring, until: now.Add(fillTime), fill: true,
	}
	j.fail(wire.CodeOK)
	r := &s.rooms
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	j.from = r.of[x.Rsv]
	for i := range x.Items {
		it := &x.Items[i]
		if err := j.from.right(it, x.Rsv, len(s.ring)); err != nil {
			j.refuse(i, err)
			continue
		}
		rm := &j.from.room[it.Item]
		rm.state = inFill
		j.from.open--
		j.from.filling++
		j.items[i], j.item[i] = rm.item, it.Item
		j.items[i].Len, j.items[i].Off = it.Len, it.Off
		j.views[i] = blocks.View{Ref: rm.ref, NS: rm.space}
		j.todo = append(j.todo, i)
	}
	return j
}

// right says what is wrong with an item of FILL.
func (x *reservation) right(it *link.FillItem, num uint64, ring int) error {
	switch {
	case x == nil:
		return fmt.Errorf("this session has no reservation %d, or its time is over: %w", num, wire.CodeLeaseLost)
	case uint64(it.Item) >= uint64(len(x.room)):
		return fmt.Errorf("item %d of a reservation of %d: %w", it.Item, len(x.room), wire.CodeInvalid)
	case x.room[it.Item].state != openRoom:
		return fmt.Errorf("item %d of the reservation has no room, or is filled already: %w", it.Item, wire.CodeInvalid)
	case it.Len == 0 || it.Len > x.room[it.Item].item.Len:
		return fmt.Errorf("%d bytes, item %d has room for 1 to %d: %w", it.Len, it.Item, x.room[it.Item].item.Len, wire.CodeInvalid)
	case it.Off > uint64(ring) || uint64(it.Len) > uint64(ring)-it.Off:
		return fmt.Errorf("%d bytes at %d of a staging ring of %d: %w", it.Len, it.Off, ring, wire.CodeInvalid)
	}
	return nil
}

// copyRoom copies, hashes and publishes the items of a FILL.
func (s *session) copyRoom(j *copyJob, ctx context.Context) wire.Code {
	code := s.ingest(j, ctx)
	s.group.life.track(j)
	return code
}

// endFill notes in the reservation what became of its items: those that were not tried
// may be filled again. The last FILL gives the others back.
func (s *session) endFill(j *filler) {
	if j.from == nil {
		return
	}
	s.rooms.mu.Lock()
	defer s.rooms.mu.Unlock()
	for n, i := range j.todo {
		rm := &j.from.room[j.item[i]]
		j.from.filling--
		switch {
		case n >= j.tried:
			rm.state = openRoom
			j.from.open++
			continue
		case j.status[i] == wire.CodeStale || j.status[i] == wire.CodeDeadline || j.status[i] == wire.CodeCancelled:
			if j.status[i] = wire.CodeLeaseLost; j.why == "" { // the store has taken the room back
				j.why = fmt.Sprintf("item %d: the time of its room is over", i)
			}
		}
		rm.state = noRoom
	}
	j.from.closed = j.from.closed || j.last
	s.settle(j.num, j.from)
}
