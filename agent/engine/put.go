package engine

import (
	"context"
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

// copyJob is one PUT under work.
type copyJob struct {
	items  []link.PutItem
	spaces []space
	ring   []byte    // as large as it was when the PUT came
	until  time.Time // the request's deadline

	status []wire.Code
	views  []blocks.View // of the items that have room; by item
	keys   []wire.Key
	sizes  []uint32
	todo   []int // items that want room, by rising index
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

// put answers PUT: in place when it is small, else on a flight.
func (s *session) put(f link.Frame, p []byte) error {
	start := time.Now()
	x := &s.in.put
	if err := s.parse(x, p); err != nil {
		return err
	}
	if err := s.admit(len(x.Items), x.DeadlineMS); err != nil {
		s.refuse(f, len(x.Items), start, err)
		return nil
	}
	total := uint64(0)
	for i := range x.Items {
		total += uint64(x.Items[i].Len)
	}
	until := start.Add(min(time.Duration(x.DeadlineMS)*time.Millisecond, link.MaxDeadline))
	if total <= inlinePut && s.srv.cfg.Stored == nil {
		j := &s.in.copy
		j.items, j.spaces, j.ring, j.until = x.Items, s.group.spaces(), s.ring, until
		code := s.copyIn(j, s.ctx)
		s.answerPut(f.Req, j, code)
		s.observe(link.TypePut, len(x.Items), start, code)
		return nil
	}
	j := &copyJob{items: slices.Clone(x.Items), spaces: s.group.spaces(), ring: s.ring, until: until}
	_, err := s.launch(f.Req, x.DeadlineMS, func(fl *flight) {
		var code wire.Code
		select {
		case s.copies <- struct{}{}:
			code = s.copyIn(j, fl.ctx)
			<-s.copies
			s.tellStored(j, fl.ctx)
		case <-fl.ctx.Done():
			code = wire.CodeOf(fl.ctx.Err())
			j.fail(code)
		}
		s.land(fl)
		s.answerPut(fl.req, j, code)
		s.observe(link.TypePut, len(j.items), fl.since, code)
	})
	return err
}

// tellStored hands prompt and output blocks that were published to the host,
// a namespace at a time.
func (s *session) tellStored(j *copyJob, ctx context.Context) {
	if s.srv.cfg.Stored == nil {
		return
	}
	by := map[wire.Namespace][]wire.Key{}
	for i := range j.items {
		if it := &j.items[i]; j.status[i] == wire.CodeOK && it.Tier == wire.OutputCritical {
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
	j.fail(wire.CodeOK)
	j.why = ""
	s.checkItems(j)
	s.dropKnown(j)
	j.dropTwins()
	s.reserve(j)
	code := s.ingest(j, ctx)
	j.followTwins()
	s.group.life.track(j)
	return code
}

// checkItems gives a status to each item that is wrong by itself.
func (s *session) checkItems(j *copyJob) {
	j.todo = j.todo[:0]
	for i := range j.items {
		it := &j.items[i]
		switch {
		case int(it.NS) >= len(j.spaces):
			j.refuse(i, fmt.Errorf("namespace %d was not given out, %d are open: %w", it.NS, len(j.spaces), wire.CodeNSUnknown))
		case it.Off > uint64(len(j.ring)) || uint64(it.Len) > uint64(len(j.ring))-it.Off:
			j.refuse(i, fmt.Errorf("%d bytes at %d of a staging ring of %d: %w", it.Len, it.Off, len(j.ring), wire.CodeInvalid))
		case it.Len > j.spaces[it.NS].body:
			j.refuse(i, fmt.Errorf("a body of %d bytes, block_bytes of the namespace is %d: %w", it.Len, j.spaces[it.NS].body, wire.CodeTooLarge))
		case it.Key == wire.Key{}:
			j.refuse(i, fmt.Errorf("the key is zero: %w", wire.CodeInvalid))
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
			if j.views[k].Err == nil && j.views[k].Seg != 0 {
				j.status[i] = wire.CodeExists
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

// followTwins gives each of them what became of the first: EXISTS where it is there.
func (j *copyJob) followTwins() {
	for _, t := range j.twins {
		if j.status[t.item] = j.status[t.first]; j.status[t.item] == wire.CodeOK {
			j.status[t.item] = wire.CodeExists
		}
	}
}

// reserve finds room for the items of todo: for a run of one namespace and tier
// together, and where that is too much for each that still fits.
func (s *session) reserve(j *copyJob) {
	j.views = slices.Grow(j.views[:0], len(j.items))[:len(j.items)]
	clear(j.views)
	for at := 0; at < len(j.todo); {
		num, tier := j.items[j.todo[at]].NS, s.group.life.tierOf(&j.items[j.todo[at]])
		run := at
		j.sizes = j.sizes[:0]
		for run < len(j.todo) && j.items[j.todo[run]].NS == num && s.group.life.tierOf(&j.items[j.todo[run]]) == tier {
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

// reserveRun reserves for the items of idx, all or none.
func (s *session) reserveRun(j *copyJob, idx []int, sizes []uint32, tier wire.Tier) error {
	ns := j.spaces[j.items[idx[0]].NS].ns
	v, err := s.srv.cfg.Store.ReserveTier(s.owner, ns, tier, sizes, max(time.Until(j.until), link.MinDeadline))
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
			s.srv.cfg.Store.Abort(s.owner, j.slots)
			return code
		}
		it, v := &j.items[i], &j.views[i]
		tier, live := s.group.life.place(it)
		j.commit = blocks.Commit{
			Slot: v.Ref.Slot, Gen: v.Ref.Gen, NS: v.NS, Key: it.Key, Tier: tier, Len: it.Len,
			Att: wire.AttestProducer, Live: live,
		}
		if err := s.srv.cfg.Store.Ingest(s.owner, j.ring[it.Off:it.Off+uint64(it.Len)], &j.commit); err != nil {
			j.refuse(i, err)
		}
	}
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
