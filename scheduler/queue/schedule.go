package queue

import "slices"

// Schedule says what the next step does, in the order of doc.go.
func (q *Queue) Schedule(now Time, s *Step) {
	now = q.now(now)
	s.reset()
	q.preempt(now, s, q.growth())
	short := len(s.Preempt) > 0
	var room [MaxAdmit]int32
	next := q.candidates(now, room[:0])
	q.displace(now, s, next)
	q.decode(s)
	left := q.prefill(s, q.cfg.StepTokens-len(s.Decode))
	if short && q.cfg.Policy == FCFS {
		return // vLLM V1 admits nobody in a step that has preempted
	}
	q.admit(now, s, left, next)
}

// growth is how many blocks those that decode need more.
func (q *Queue) growth() (blocks int) {
	for _, i := range q.running {
		if e := &q.all[i]; e.todo == 0 {
			blocks += q.need(e.ctx+1) - e.blocks
		}
	}
	return blocks
}

// preempt makes room for so many blocks, as far as it may.
func (q *Queue) preempt(now Time, s *Step, grow int) {
	for len(s.Preempt) < MaxPreempt && len(q.running) > 1 && grow > q.free()+q.leaving {
		at := q.worst(now)
		if e := &q.all[q.running[at]]; e.todo == 0 {
			grow -= q.need(e.ctx+1) - e.blocks
		}
		q.evict(now, s, at)
	}
}

// worst is the running request that is preempted next.
func (q *Queue) worst(now Time) (at int) {
	for k := range q.running[1:] {
		if q.cfg.worse(&q.all[q.running[k+1]], &q.all[q.running[at]], now) {
			at = k + 1
		}
	}
	return at
}

// evict preempts the request at a place of running.
func (q *Queue) evict(now Time, s *Step, at int) {
	i := q.running[at]
	e := &q.all[i]
	q.running = slices.Delete(q.running, at, at+1)
	whole := e.todo == 0 || q.cfg.Partial && e.ctx-e.todo >= q.cfg.BlockTokens
	m := Move{ID: e.id, Blocks: e.blocks, Offload: q.cfg.Offload && whole}
	s.Preempt = append(s.Preempt, m)
	if m.Offload {
		q.n.Offloaded++
		e.state = leaving
		q.moving++
		q.leaving += e.blocks
		return
	}
	q.n.Recomputed++
	e.had = max(e.had, e.ctx-e.todo)
	e.todo = e.ctx
	q.give(e)
	q.wait(now, i)
}

// displace preempts requests in favour of the one that is admitted next, where the policy
// says that it matters more, until that has a slot and room or nobody is left whom it
// displaces. Blocks that are being offloaded count as room to come.
func (q *Queue) displace(now Time, s *Step, next []int32) {
	if q.cfg.Policy == FCFS || len(next) == 0 {
		return
	}
	e := &q.all[next[0]]
	need := q.need(e.ctx + 1)
	least := min(1, q.cfg.Slots-1) // that run on: where there is one slot, it may change hands
	for len(s.Preempt) < MaxPreempt && len(q.running) > least {
		room := q.slots() >= 1 && need <= q.free()+q.leaving
		if room && !(e.old && q.tooMany(e)) {
			return
		}
		at := q.worst(now)
		v := &q.all[q.running[at]]
		if !q.cfg.settled(v, now) || !q.cfg.yields(v, e, now) || room && !v.thinking() {
			return
		}
		q.evict(now, s, at)
	}
}

// slots are how many requests may be admitted.
func (q *Queue) slots() int { return q.cfg.Slots - len(q.running) - q.loading }

// decode gives a token to each that has a block for it.
func (q *Queue) decode(s *Step) {
	for _, i := range q.running {
		e := &q.all[i]
		if e.todo > 0 {
			continue
		}
		need := q.need(e.ctx+1) - e.blocks
		if need > q.free() {
			if len(q.running) == 1 && q.moving == 0 {
				s.Stuck = append(s.Stuck, e.id)
			}
			continue
		}
		q.used += need
		e.blocks += need
		s.Decode = append(s.Decode, e.id)
	}
}

// prefill gives the rest of the step to prompts, and returns what is left of it.
func (q *Queue) prefill(s *Step, tokens int) int {
	for _, i := range q.running {
		e := &q.all[i]
		if e.todo == 0 || tokens == 0 {
			continue
		}
		n := min(e.todo, tokens)
		tokens -= n
		s.Prefill = append(s.Prefill, Chunk{e.id, n})
	}
	return tokens
}

// admit takes requests in while there is room.
func (q *Queue) admit(now Time, s *Step, tokens int, next []int32) {
	for _, i := range next {
		e := &q.all[i]
		if e.todo > 0 && tokens == 0 {
			return
		}
		if q.tooMany(e) {
			continue
		}
		need := q.need(e.ctx + 1)
		if q.slots() < 1 || need+q.kept(e) > q.free() {
			return
		}
		tokens -= q.enter(now, s, i, need, tokens)
	}
}

// kept is how many blocks a request that is admitted leaves to those that run. Whom others
// make room for need leave none, or it would wait, first in line, for what they then grow
// into: who has waited for Aging, and under output-first who does not think and is not in
// the background.
func (q *Queue) kept(e *entry) int {
	if len(q.running)+q.loading == 0 || e.old || q.cfg.Policy == OutputFirst && !e.thinking() && !e.back {
		return 0
	}
	return int(q.cfg.Headroom * float64(q.cfg.Blocks))
}

// enter admits one, and returns the tokens of the step that it takes.
func (q *Queue) enter(now Time, s *Step, i int32, need, tokens int) int {
	e := &q.all[i]
	q.used += need
	e.blocks = need
	q.waiting = remove(q.waiting, i)
	q.n.Admitted++
	if q.sinceOld++; e.old {
		q.sinceOld, e.old, e.aged, e.fresh = 0, false, true, true
	}
	if e.away {
		e.state = loading
		q.moving++
		q.loading++
		s.Load = append(s.Load, Move{ID: e.id, Blocks: need})
		return 0
	}
	e.state, e.since = running, now
	q.running = append(q.running, i)
	if q.cfg.Cached != nil { // never the last token: it makes the next one
		e.todo = e.ctx - min(max(q.cfg.Cached(e.id), 0), e.ctx-1)
	}
	n := min(e.todo, tokens)
	s.Prefill = append(s.Prefill, Chunk{e.id, n})
	return n
}

// tooMany reports whether a request would be one thinking one more than leaves others
// their slots. Fewer slots than are between two of those are left to nobody: half of two
// slots would stand idle, and thinking yields to who comes.
func (q *Queue) tooMany(e *entry) bool {
	if q.cfg.Policy != OutputFirst || !e.thinking() || float64(q.cfg.Slots) < q.cfg.ThinkMultiplier+1 {
		return false
	}
	n := 0
	for _, i := range q.running {
		if q.all[i].thinking() {
			n++
		}
	}
	m := q.cfg.ThinkMultiplier
	return n >= max(int(float64(q.cfg.Slots)*m/(m+1)), 1)
}

// candidates are those whose turn is next, in order. Answers that may wait are among
// them only where nobody else is.
func (q *Queue) candidates(now Time, best []int32) []int32 {
	turn := q.sinceOld >= oldEvery-1 && q.cfg.Policy != FCFS // which is in order of age
	for _, early := range [...]bool{false, true} {
		for _, i := range q.waiting {
			e := &q.all[i]
			if q.cfg.early(e, now) != early {
				continue
			}
			e.old = turn && (e.aged || now-e.since >= Time(q.cfg.Aging))
			best = q.insert(best, i)
		}
		if len(best) > 0 && q.all[best[0]].old {
			return best[:1] // and the next ones as they come
		}
		if len(best) > 0 {
			return best
		}
	}
	return best
}

// insert puts a request where it belongs; the last one makes room.
func (q *Queue) insert(best []int32, i int32) []int32 {
	if len(best) == cap(best) {
		if !q.sooner(i, best[len(best)-1]) {
			return best
		}
		best = best[:len(best)-1]
	}
	at := len(best)
	for at > 0 && q.sooner(i, best[at-1]) {
		at--
	}
	return slices.Insert(best, at, i)
}

func (q *Queue) sooner(a, b int32) bool {
	x, y := &q.all[a], &q.all[b]
	if x.old != y.old {
		return x.old
	}
	if x.old && x.since != y.since {
		return x.since < y.since
	}
	if x.rank.class != y.rank.class {
		return x.rank.class < y.rank.class
	}
	if x.rank.due != y.rank.due {
		return x.rank.due < y.rank.due
	}
	return x.order < y.order
}
