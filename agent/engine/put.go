package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// inlinePut is how many bytes the reader copies and hashes itself: some 40 µs at
// 3 GB/s, about what a hand-over to another goroutine costs on a busy machine.
const inlinePut = 128 << 10

// copyJob is one PUT, PUTAT or FILL under work, or a RESERVE, which copies nothing.
type copyJob struct {
	items  []link.StoreItem
	spaces []space
	ring   []byte        // as large as it was when the request came
	until  time.Time     // the request's deadline
	keep   time.Duration // RESERVE: how long the room is kept
	fill   bool          // the room was reserved before, and stays so where it is not filled

	status []wire.Code
	views  []blocks.View // of the items that have room; by item
	places []placing     // of those that have been copied; by item
	keys   []wire.Key
	sizes  []uint32
	todo   []int // items that want room, by rising index
	tried  int   // how many of todo have been copied, or could not be
	twins  []twin
	first  map[putName]int
	slots  []uint32
	commit blocks.Commit
	why    string // the first item that was refused with a reason, and that
}

// twin is an item whose key came earlier in the same PUT.
type twin struct{ item, first int }

// putName is a key in a namespace of the session.
type putName struct {
	ns  uint16
	key wire.Key
}

// put answers PUT.
func (s *session) put(f link.Frame, p []byte) error {
	start := time.Now()
	x := &s.in.put
	if err := s.parse(x, p); err != nil {
		return err
	}
	items := s.in.stored[:0]
	for i := range x.Items {
		it := &x.Items[i]
		items = append(items, link.StoreItem{NS: it.NS, Tier: it.Tier, Len: it.Len, Off: it.Off, Key: it.Key, Req: it.Req})
	}
	s.in.stored = items
	return s.store(f, items, x.DeadlineMS, start)
}

// putAt answers PUTAT.
func (s *session) putAt(f link.Frame, p []byte) error {
	start := time.Now()
	x := &s.in.putAt
	if err := s.parse(x, p); err != nil {
		return err
	}
	return s.store(f, x.Items, x.DeadlineMS, start)
}

// store answers a request that stores items, which are the reader's.
func (s *session) store(f link.Frame, items []link.StoreItem, deadlineMS uint32, start time.Time) error {
	if err := s.admit(len(items), deadlineMS); err != nil {
		s.refuse(f, len(items), start, err)
		return nil
	}
	until := start.Add(min(time.Duration(deadlineMS)*time.Millisecond, link.MaxDeadline))
	if s.inPlace(items) {
		j := &s.in.copy
		j.items, j.spaces, j.ring, j.until = items, s.group.spaces(), s.ring, until
		code := s.copyIn(j, s.ctx)
		s.answerPut(f.Req, j, code)
		s.observe(f.Type, len(items), start, code)
		return nil
	}
	j := &copyJob{items: slices.Clone(items), spaces: s.group.spaces(), ring: s.ring, until: until}
	_, err := s.launch(f.Req, deadlineMS, func(fl *flight) {
		code := s.copyBehind(fl, j, s.copyIn)
		s.land(fl)
		s.answerPut(fl.req, j, code)
		s.observe(f.Type, len(j.items), fl.since, code)
	})
	return err
}

// inPlace says whether the reader copies items itself.
func (s *session) inPlace(items []link.StoreItem) bool {
	total := uint64(0)
	for i := range items {
		total += uint64(items[i].Len)
	}
	return total <= inlinePut && s.srv.cfg.Stored == nil
}

// copyBehind copies on a flight, when it is its turn.
func (s *session) copyBehind(fl *flight, j *copyJob, copyIn func(*copyJob, context.Context) wire.Code) wire.Code {
	select {
	case s.copies <- struct{}{}:
		code := copyIn(j, fl.ctx)
		<-s.copies
		s.tellStored(j, fl.ctx)
		return code
	case <-fl.ctx.Done():
		code := wire.CodeOf(fl.ctx.Err())
		j.fail(code)
		return code
	}
}

// tellStored hands prompt and output blocks that were published to the host,
// a namespace at a time.
func (s *session) tellStored(j *copyJob, ctx context.Context) {
	if s.srv.cfg.Stored == nil {
		return
	}
	by := map[wire.Namespace][]wire.Key{}
	for i := range j.items {
		if it := &j.items[i]; j.status[i] == wire.CodeOK && j.places[i].kind(it) == wire.OutputCritical {
			ns := j.spaces[it.NS].ns
			by[ns] = append(by[ns], it.Key)
		}
	}
	for ns, keys := range by {
		s.srv.cfg.Stored(ctx, ns, keys)
	}
}

func (s *session) answerPut(req uint64, j *copyJob, code wire.Code) {
	s.answerEnd(req, link.End{Code: code, Status: j.status, Text: j.why})
}

// refuse gives an item the status of err, whose text END says of the first one.
func (j *copyJob) refuse(i int, err error) {
	e := refusal(err)
	if j.status[i] = e.Code; j.why == "" && e.Text != "" {
		j.why = fmt.Sprintf("item %d: %s", i, e.Text)
	}
}

// fail gives every item the same status.
func (j *copyJob) fail(code wire.Code) {
	j.status = slices.Grow(j.status[:0], len(j.items))[:len(j.items)]
	for i := range j.status {
		j.status[i] = code
	}
}

// copyIn stores the items of j. Room is reserved for all before the first is
// copied: published blocks are idle, and reserving for a later one could evict an
// earlier one. The code is not OK where ctx ended on the way.
func (s *session) copyIn(j *copyJob, ctx context.Context) wire.Code {
	s.makeRoom(j, s.inRing)
	code := s.ingest(j, ctx)
	s.followTwins(j)
	s.group.life.track(j)
	return code
}

// makeRoom reserves for the items of j that are right and not here.
func (s *session) makeRoom(j *copyJob, right func(*copyJob, *link.StoreItem) error) {
	j.fail(wire.CodeOK)
	j.why = ""
	j.places = slices.Grow(j.places[:0], len(j.items))[:len(j.items)]
	clear(j.places)
	s.checkItems(j, right)
	s.dropKnown(j)
	j.dropTwins()
	s.reserve(j)
}

// inRing says whether an item's bytes are all in the ring.
func (s *session) inRing(j *copyJob, it *link.StoreItem) error {
	if it.Off > uint64(len(j.ring)) || uint64(it.Len) > uint64(len(j.ring))-it.Off {
		return fmt.Errorf("%d bytes at %d of a staging ring of %d: %w", it.Len, it.Off, len(j.ring), wire.CodeInvalid)
	}
	return nil
}

// checkItems gives a status to each item that is wrong by itself.
func (s *session) checkItems(j *copyJob, right func(*copyJob, *link.StoreItem) error) {
	j.todo = j.todo[:0]
	for i := range j.items {
		it := &j.items[i]
		if int(it.NS) >= len(j.spaces) {
			j.refuse(i, fmt.Errorf("namespace %d was not given out, %d are open: %w", it.NS, len(j.spaces), wire.CodeNSUnknown))
			continue
		}
		switch err := right(j, it); {
		case err != nil:
			j.refuse(i, err)
		case it.Len > j.spaces[it.NS].body:
			j.refuse(i, fmt.Errorf("a body of %d bytes, block_bytes of the namespace is %d: %w", it.Len, j.spaces[it.NS].body, wire.CodeTooLarge))
		case it.Key == wire.Key{}:
			j.refuse(i, fmt.Errorf("the key is zero: %w", wire.CodeInvalid))
		case it.Flags&link.StorePin != 0 && it.PinMS == 0:
			j.refuse(i, fmt.Errorf("a pin for no time, pin_ms is 0: %w", wire.CodeInvalid))
		default:
			j.todo = append(j.todo, i)
		}
	}
}

// dropKnown takes the items out that are published already: they need neither
// room nor a copy.
func (s *session) dropKnown(j *copyJob) {
	left := j.todo[:0]
	for at := 0; at < len(j.todo); {
		num, run := j.items[j.todo[at]].NS, at
		j.keys = j.keys[:0]
		for run < len(j.todo) && j.items[j.todo[run]].NS == num {
			j.keys = append(j.keys, j.items[j.todo[run]].Key)
			run++
		}
		j.views = slices.Grow(j.views[:0], len(j.keys))[:len(j.keys)]
		clear(j.views)
		s.srv.cfg.Store.Lookup(j.spaces[num].ns, j.keys, j.views)
		for k := range j.views {
			i := j.todo[at+k]
			if j.views[k].Err == nil && j.views[k].Seg != 0 && s.pinKnown(j, i) {
				continue
			} else {
				left = append(left, i)
			}
		}
		at = run
	}
	j.todo = left
}

// dropTwins takes the items out whose key came before in the same PUT: one block
// needs room once.
func (j *copyJob) dropTwins() {
	j.twins = j.twins[:0]
	if len(j.todo) < 2 {
		return
	}
	if j.first == nil {
		j.first = make(map[putName]int, len(j.todo))
	}
	clear(j.first)
	left := j.todo[:0]
	for _, i := range j.todo {
		n := putName{j.items[i].NS, j.items[i].Key}
		if k, again := j.first[n]; again {
			j.twins = append(j.twins, twin{i, k})
			continue
		}
		j.first[n] = i
		left = append(left, i)
	}
	j.todo = left
}

// pinKnown sets the status of an item whose key is here, and pins the block where the
// item says so. False: it is gone by now.
func (s *session) pinKnown(j *copyJob, i int) bool {
	it, sp := &j.items[i], &j.spaces[j.items[i].NS]
	j.status[i] = wire.CodeExists
	if it.Flags&link.StorePin == 0 {
		return true
	}
	j.places[i] = s.group.life.place(it, sp.tokens)
	var errs [1]error
	_, err := s.srv.cfg.Store.PinKeys(s.pinOf(it, j.places[i]), sp.ns, []wire.Key{it.Key}, false, errs[:])
	if err = cmp.Or(err, errs[0]); errors.Is(err, wire.CodeAbsent) {
		j.status[i] = wire.CodeOK
		return false
	}
	if err != nil {
		j.refuse(i, err)
	}
	return true
}

// followTwins gives each of them what became of the first: EXISTS where it is there.
func (s *session) followTwins(j *copyJob) {
	for _, t := range j.twins {
		switch j.status[t.item] = j.status[t.first]; j.status[t.item] {
		case wire.CodeOK, wire.CodeExists:
			if !s.pinKnown(j, t.item) {
				j.status[t.item] = wire.CodeExists // it was there, and is gone again
			}
		}
	}
}

// reserve finds room for the items of todo: for a run of one namespace and tier
// together, and where that is too much for each that still fits.
func (s *session) reserve(j *copyJob) {
	j.views = slices.Grow(j.views[:0], len(j.items))[:len(j.items)]
	clear(j.views)
	for at := 0; at < len(j.todo); {
		num, tier := j.items[j.todo[at]].NS, s.tierOf(j, j.todo[at])
		run := at
		j.sizes = j.sizes[:0]
		for run < len(j.todo) && j.items[j.todo[run]].NS == num && s.tierOf(j, j.todo[run]) == tier {
			j.sizes = append(j.sizes, j.items[j.todo[run]].Len)
			run++
		}
		idx := j.todo[at:run]
		at = run
		if err := s.reserveRun(j, idx, j.sizes, tier); err == nil {
			continue
		} else if len(idx) == 1 || wire.CodeOf(err) != wire.CodeFull {
			for _, i := range idx {
				j.refuse(i, err)
			}
			continue
		}
		tooMuch := uint64(1) << 32 // the least size that did not fit
		for k, i := range idx {
			if uint64(j.sizes[k]) >= tooMuch {
				j.status[i] = wire.CodeFull
				continue
			}
			if err := s.reserveRun(j, idx[k:k+1], j.sizes[k:k+1], tier); err != nil {
				j.refuse(i, err)
				tooMuch = uint64(j.sizes[k])
			}
		}
	}
}

// tierOf is the tier of an item by now, for the grouping of reservations.
func (s *session) tierOf(j *copyJob, i int) wire.Tier {
	return s.group.life.place(&j.items[i], j.spaces[j.items[i].NS].tokens).tier
}

// reserveRun reserves for the items of idx, all or none.
func (s *session) reserveRun(j *copyJob, idx []int, sizes []uint32, tier wire.Tier) error {
	ns := j.spaces[j.items[idx[0]].NS].ns
	keep := j.keep
	if keep == 0 {
		keep = max(time.Until(j.until), link.MinDeadline)
	}
	v, err := s.srv.cfg.Store.ReserveTier(s.owner, ns, tier, sizes, keep)
	if err != nil {
		return err
	}
	for k, i := range idx {
		j.views[i] = v[k]
	}
	return nil
}

// ingest copies, hashes and publishes what has room. Between two items it looks
// whether it is still wanted; what is not done then gives its room back.
func (s *session) ingest(j *copyJob, ctx context.Context) wire.Code {
	for n, i := range j.todo {
		j.tried = n
		if j.status[i] != wire.CodeOK {
			continue
		}
		if code := j.stopped(ctx); code != wire.CodeOK {
			j.slots = j.slots[:0]
			for _, i := range j.todo[n:] {
				if j.status[i] == wire.CodeOK {
					j.slots = append(j.slots, j.views[i].Ref.Slot)
					j.status[i] = code
				}
			}
			if !j.fill {
				s.srv.cfg.Store.Abort(s.owner, j.slots)
			}
			return code
		}
		it, v := &j.items[i], &j.views[i]
		at := s.group.life.place(it, j.spaces[it.NS].tokens)
		j.places[i] = at
		j.commit = blocks.Commit{
			Slot: v.Ref.Slot, Gen: v.Ref.Gen, NS: v.NS, Key: it.Key, Tier: at.tier, Len: it.Len,
			Att: wire.AttestProducer, Live: at.live, Pin: s.pinOf(it, at),
		}
		if err := s.srv.cfg.Store.Ingest(s.owner, j.ring[it.Off:it.Off+uint64(it.Len)], &j.commit); err != nil {
			j.refuse(i, err)
		}
	}
	j.tried = len(j.todo)
	return wire.CodeOK
}

// stopped says why the job should not go on. Its own clock is read, since a PUT
// that the reader copies has no timer.
func (j *copyJob) stopped(ctx context.Context) wire.Code {
	if err := ctx.Err(); err != nil {
		return wire.CodeOf(err)
	}
	if !time.Now().Before(j.until) {
		return wire.CodeDeadline
	}
	return wire.CodeOK
}
