package llama

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"meridian/scheduler"
)

// pump has the queue decide, and grants turns. It is called whenever something has
// changed, and costs some microseconds.
func (t *turns) pump(now time.Time) {
	t.q.Schedule(t.now(now), &t.plan)
	for _, m := range t.plan.Preempt {
		u := t.known[m.ID]
		u.place, u.away = leaving, m.Offload
		t.n.preempted[u.class].Add(1)
		u.stays() // it has one entry
		u.leaves <- struct{}{}
		u.grant(0)
	}
	for _, m := range t.plan.Load {
		t.known[m.ID].admit()
	}
	for _, c := range t.plan.Prefill {
		t.known[c.ID].admit()
	}
	for _, id := range t.plan.Decode {
		t.known[id].admit()
	}
	t.deal(now)
}

// admit takes note that the queue has the request in its batch.
func (u *turn) admit() {
	switch {
	case u.place == queued:
		u.place = running
		u.admitted <- struct{}{}
	case u.place == leaving && !u.told: // it was admitted again before it had noticed
		u.place = running
		u.stays()
	}
}

// stays takes back that the request is to leave its slot.
func (u *turn) stays() {
	select {
	case <-u.leaves:
	default:
	}
}

// isLeaving says whether the request is to leave its slot at its next boundary.
func (u *turn) isLeaving() bool {
	u.t.mu.Lock()
	defer u.t.mu.Unlock()
	return u.place == leaving
}

// ask waits for a turn, of at most so many tokens. errLeave: there is none, and the
// slot is to be given up.
func (u *turn) ask(ctx context.Context, w want, most int, gone <-chan struct{}) (tokens int, err error) {
	if !u.request(w, most) {
		return 0, errLeave
	}
	select {
	case n := <-u.granted:
		return n, left(n)
	default:
	}
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case n := <-u.granted:
			return n, left(n)
		case <-tick.C:
			u.t.look()
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-gone:
			return 0, ErrDown
		}
	}
}

func left(granted int) error {
	if granted == 0 {
		return errLeave
	}
	return nil
}

// request says what is asked for; false: the request is to leave.
func (u *turn) request(w want, most int) bool {
	t := u.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.place == leaving {
		u.told = true
		return false
	}
	now := time.Now()
	u.want, u.most, u.counted = w, most, false
	if u.asked.IsZero() { // and not one that it had to leave with
		u.asked = now
	}
	if w == toPrefill {
		if !u.prompts {
			u.prompts, u.since = true, now
		}
		u.rest = most
	} else if !u.decodes {
		u.prompts, u.decodes, u.expected, u.gap = false, true, now, 0
	}
	t.pump(now)
	return true
}

// grant gives a turn of so many tokens; 0: the request is to leave.
func (u *turn) grant(n int) {
	if u.want == nothing {
		return
	}
	if n > 0 {
		u.asked = time.Time{}
		u.t.q.Began(u.t.now(time.Now()), u.id)
	}
	if u.want == toPrefill {
		u.flight = n
		if n > 0 {
			u.t.pieces++
		}
	}
	u.want, u.told = nothing, n == 0
	u.granted <- n
}

// ran says what came of a turn.
func (u *turn) ran(prefilled, decoded int, phase scheduler.Phase) {
	t := u.t
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if u.flight > 0 {
		u.flight, t.piece, u.since = 0, now, now
		u.rest -= min(prefilled, u.rest)
	}
	u.phase = min(phase, scheduler.OutputDecode) // whether it is complete is told by end
	t.q.Ran(t.now(now), u.id, prefilled, decoded, u.phase)
	t.pump(now)
}

// filled says that the slot has all of the prompt.
func (u *turn) filled(tokens int) {
	u.t.mu.Lock()
	u.prompts = false
	u.t.mu.Unlock()
	u.ran(tokens, 0, u.phase)
}

// token says that one came, the first of its quantum or a later one; until awaits, it
// is the reader's time that goes by.
func (u *turn) token(first bool) {
	t := u.t
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	took := now.Sub(u.expected)
	u.gap = average(u.gap, took, 4)
	if !first {
		t.step = average(t.step, took, 8)
	}
	u.seen, u.expected = now, time.Time{}
}

// reads says that no token is waited for, but its reader.
func (u *turn) reads() {
	u.t.mu.Lock()
	u.seen, u.expected = time.Now(), time.Time{}
	u.t.mu.Unlock()
}

// awaits says that the next token is waited for.
func (u *turn) awaits() {
	u.t.mu.Lock()
	u.expected = time.Now()
	u.t.mu.Unlock()
}

// average is an exponential one: the new value counts as one of n.
func average(old, v, n time.Duration) time.Duration {
	if old == 0 {
		return v
	}
	return old + (v-old)/n
}

// deal grants what may go on now. Under fcfs that is all; otherwise
//
//   - an answer of the interactive class takes the whole quantum: it is never held, and
//     each boundary costs it a step;
//   - other quanta have as many tokens as fit into a tick by the measured step;
//   - those of the background are held while an interactive stream is late;
//   - a prompt is computed in pieces, as many tokens as fit into a tick, one piece at a
//     time. The next one is of the prompt of which least is left, so that a short one
//     waits for a piece and not for a long prompt; and one in four of that which had
//     none for longest. Interactive ones come first. While an interactive stream is
//     late, it has a token between two pieces, and those of the background are held.
//
// One in the background that has its slot because it waited for Aging counts as
// interactive for its residency: others made room for it, so it must get on. And of those
// that wait for the guard, or for others, one has its turn each Hold all the same; in the
// background it goes on so for a third of Hold, so that they have a quarter of the time.
func (t *turns) deal(now time.Time) {
	var asking []*turn
	for _, u := range t.known {
		u.as = u.class
		if now.Before(u.until) || t.q.Aged(t.now(now), u.id) {
			u.as = Interactive
		}
		if u.want != nothing {
			asking = append(asking, u)
		}
	}
	slices.SortFunc(asking, t.order)
	oldest := t.oldest(asking, now)
	for _, u := range asking {
		n := t.turnOf(u, now)
		if n == 0 && u == oldest {
			if n = t.size(u); n > 0 {
				t.freed = now
				if u.class == Background {
					u.until = now.Add(t.cfg.Hold / 3)
					t.freed = u.until
				}
			}
		}
		if n > 0 {
			u.grant(n)
		} else if !u.counted {
			u.counted = true
			t.n.held[u.class].Add(1)
		}
	}
}

// order is that in which turns are granted: of prompts, in which they have a piece.
func (t *turns) order(a, b *turn) int {
	if a.want != b.want {
		return cmp.Or(cmp.Compare(a.as, b.as), cmp.Compare(a.want, b.want))
	}
	if a.want == toPrefill {
		return t.pieceOrder(a, b)
	}
	return cmp.Or(cmp.Compare(a.as, b.as), cmp.Compare(a.id, b.id))
}

// pieceOrder is that in which prompts have their next piece.
func (t *turns) pieceOrder(a, b *turn) int {
	next := cmp.Compare(a.rest, b.rest)
	if t.pieces%longestEvery == longestEvery-1 {
		next = a.since.Compare(b.since)
	}
	return cmp.Or(cmp.Compare(a.as, b.as), next, cmp.Compare(a.id, b.id))
}

// longestEvery is how many pieces there are for one of who has waited for longest.
const longestEvery = 4

// oldest is who has its turn because it has waited for Hold, as long as nobody else has
// had one so.
func (t *turns) oldest(asking []*turn, now time.Time) (oldest *turn) {
	if now.Sub(t.freed) < t.cfg.Hold {
		return nil
	}
	for _, u := range asking {
		if now.Sub(u.asked) >= t.cfg.Hold && (oldest == nil || u.asked.Before(oldest.asked)) {
			oldest = u
		}
	}
	return oldest
}

// turnOf is how many tokens a request may go on for; 0: not now.
func (t *turns) turnOf(u *turn, now time.Time) int {
	switch {
	case t.fcfs:
	case u.as == Background && t.late(now, false):
		return 0
	case u.want == toPrefill && (t.ahead(u) || t.late(now, true)):
		return 0
	}
	return t.size(u)
}

// size is how many tokens a turn has; 0: as many as may be of prompts are being computed.
func (t *turns) size(u *turn) int {
	switch {
	case t.fcfs:
		return u.most
	case u.want == toPrefill:
		piece := t.pieceOf(u)
		n := min(piece, u.most)
		if f := t.flight(); f > 0 && f+n > piece {
			return 0
		}
		return n
	case u.fixed || u.class == Interactive && !u.thinking():
		return u.most
	}
	return min(u.most, t.fits(t.cfg.Tick, t.step, firstStep))
}

// pieceOf is how many tokens of a prompt go at a time.
func (t *turns) pieceOf(u *turn) int {
	tick := t.cfg.Tick
	switch {
	case len(t.known) > 1:
	case u.class == Interactive:
		return pieceAlone
	default:
		tick *= ticksAlone
	}
	return max(t.fits(tick, t.pace(), firstPace), minStep)
}

const (
	// pieceAlone is how many tokens of a prompt go at a time while there is no other
	// request. llama-server computes a prompt in batches of as many (--ubatch-size), so
	// the numbers that come out are those of a prompt in one piece. One in the background
	// is not worth that somebody who comes meanwhile waits so long: a piece of it takes
	// ticksAlone.
	pieceAlone = 512
	ticksAlone = 5
	firstStep  = 25 * time.Millisecond // of a decoded token, until one was measured
)

// fits is how many tokens of a pace fit into a time.
func (t *turns) fits(in, pace, unknown time.Duration) int {
	if pace <= 0 {
		pace = unknown
	}
	return max(int(in/pace), 1)
}

// flight is how many prompt tokens are being computed.
func (t *turns) flight() (tokens int) {
	for _, u := range t.known {
		tokens += u.flight
	}
	return tokens
}

// ahead reports whether another prompt has the next piece: also one that does not ask for
// it yet, since it takes in what came of its last one.
func (t *turns) ahead(u *turn) bool {
	for _, o := range t.known {
		if o != u && o.prompts && o.flight == 0 && o.place == running && t.pieceOrder(o, u) < 0 {
			return true
		}
	}
	return false
}

// late reports whether an interactive stream is slower than its service level; and,
// since, has had no token since the last piece of a prompt. One whose reader takes longer
// than that is not.
func (t *turns) late(now time.Time, since bool) bool {
	for _, u := range t.known {
		if u.class != Interactive || u.place != running || !u.decodes {
			continue
		}
		pace := t.cfg.Queue.OutputPace
		if u.thinking() {
			pace = t.cfg.Queue.ThinkPace
		}
		if u.expected.IsZero() && now.Sub(u.seen) > pace {
			continue
		}
		if (u.gap > pace || !u.expected.IsZero() && now.Sub(u.expected) > pace) && !(since && u.seen.After(t.piece)) {
			return true
		}
	}
	return false
}

func (u *turn) thinking() bool { return u.phase < scheduler.OutputDecode && u.thinks }

// TurnStats is what the node's scheduler has decided, by class.
type TurnStats struct {
	Policy                 string
	Waiting, Running, Away [classes]int    // now; Away: of those that wait, which were preempted
	Preempted              [classes]uint64 // slots that were given up for another request
	Held                   [classes]uint64 // turns that were held
	Refused                [classes]uint64 // requests for which there was no place to wait
	Step                   time.Duration   // of a decoded token, by an exponential average; 0: none yet
}

// turnCounts are those of TurnStats that never go down, whichever llama-server runs.
type turnCounts struct {
	preempted, held, refused [classes]atomic.Uint64
}

func (c *turnCounts) tell(s *TurnStats) {
	for _, class := range Classes {
		s.Preempted[class], s.Held[class], s.Refused[class] = c.preempted[class].Load(), c.held[class].Load(), c.refused[class].Load()
	}
}

// tell says what is so now.
func (t *turns) tell(s *TurnStats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Step = t.step
	for _, u := range t.known {
		if u.place == queued {
			s.Waiting[u.class]++
		} else {
			s.Running[u.class]++
		}
		if u.left {
			s.Away[u.class]++
		}
	}
}
