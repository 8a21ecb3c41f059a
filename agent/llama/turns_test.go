package llama

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/agent/openai"
	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// someTurns schedule for slots of a node, with a prompt token each millisecond.
func someTurns(t *testing.T, slots int, p queue.Policy) *turns {
	t.Helper()
	return turnsOf(t, slots, queue.Config{Policy: p})
}

func turnsOf(t *testing.T, slots int, q queue.Config) *turns {
	t.Helper()
	c := Config{Context: 4096, BlockTokens: 16, Quantum: 16, Scheduling: Scheduling{Queue: q}}
	made, err := newTurns(newSlots(slots), &c, func() time.Duration { return time.Millisecond }, new(turnCounts))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (t *turns) said() (s TurnStats) {
	t.tell(&s)
	t.n.tell(&s)
	return s
}

func (t *turns) mustEnter(tb testing.TB, a arrival) *turn {
	tb.Helper()
	u, err := t.enter(tb.Context(), a, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

// later enters in the background of the test, and says who by sending it.
func (t *turns) later(tb testing.TB, a arrival) <-chan *turn {
	in := make(chan *turn, 1)
	go func() {
		if u, err := t.enter(tb.Context(), a, nil); err == nil {
			in <- u
		}
	}()
	synctest.Wait()
	return in
}

// answers decodes a token of an interactive answer, which takes so long.
func (u *turn) answers(tb testing.TB, took time.Duration) {
	tb.Helper()
	if _, err := u.ask(tb.Context(), toDecode, 1, nil); err != nil {
		tb.Fatal(err)
	}
	time.Sleep(took)
	u.token(false)
	u.awaits()
	u.ran(0, 1, scheduler.OutputDecode)
}

func got(in <-chan *turn) *turn {
	synctest.Wait()
	select {
	case u := <-in:
		return u
	default:
		return nil
	}
}

var some = []int32{1, 2, 3}

func TestInteractiveRequestsAreAdmittedBeforeTheBackground(t *testing.T) {
	for policy, want := range map[queue.Policy]Class{queue.OutputFirst: Interactive, queue.ReasonFirst: Interactive, queue.SLOSlack: Interactive, queue.FCFS: Background} {
		synctest.Test(t, func(t *testing.T) {
			s := someTurns(t, 1, policy)
			u := s.mustEnter(t, arrival{tokens: some})
			back := s.later(t, arrival{tokens: some, class: Background})
			time.Sleep(time.Millisecond)
			front := s.later(t, arrival{tokens: some})
			if n := s.said(); n.Waiting != [classes]int{1, 1} || n.Running != [classes]int{1, 0} {
				t.Errorf("%s: %+v", policy, n)
			}
			u.end()
			a, b := got(front), got(back)
			if (b != nil) != (want == Background) || (a == nil) == (b == nil) {
				t.Errorf("%s: interactive %v, background %v", policy, a != nil, b != nil)
			}
			for _, u := range []*turn{a, b} {
				if u != nil {
					u.end()
				}
			}
			for _, u := range []*turn{got(front), got(back)} {
				if u != nil {
					u.end()
				}
			}
			empty(t, s)
		})
	}
}

// empty checks that nothing is left behind.
func empty(t *testing.T, s *turns) {
	t.Helper()
	synctest.Wait()
	st := s.q.Stats()
	if len(s.known) != 0 || s.slots.busy() != 0 || st.Running+st.Waiting+st.Moving+st.Blocks != 0 {
		t.Errorf("left behind: %d requests, %d slots, %+v", len(s.known), s.slots.busy(), st)
	}
}

func TestTheQueueIsBoundedAndTheBackgroundHasAShareOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 1, queue.OutputFirst)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		u := s.mustEnter(t, arrival{tokens: some})
		var wg sync.WaitGroup
		wait := func(n int, c Class) {
			for range n {
				wg.Go(func() {
					if _, err := s.enter(ctx, arrival{tokens: some, class: c}, nil); !errors.Is(err, context.Canceled) {
						t.Errorf("when the client is gone: %v", err)
					}
				})
			}
			synctest.Wait()
		}
		wait(1+waitingPerNode/2, Background)
		if _, err := s.enter(ctx, arrival{tokens: some, class: Background}, nil); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "background") {
			t.Errorf("with a full share: %v", err)
		}
		wait(waitingPerNode/2-1, Interactive)
		if _, err := s.enter(ctx, arrival{tokens: some}, nil); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(waitingPerNode)) {
			t.Errorf("with a full queue: %v", err)
		}
		if n := s.said(); n.Refused != [classes]uint64{1, 1} {
			t.Errorf("%+v", n)
		}
		cancel()
		wg.Wait()
		u.end()
		empty(t, s)
	})
}

func TestAWaitEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 1, queue.OutputFirst)
		u, gone, ended := s.mustEnter(t, arrival{tokens: some}), make(chan struct{}), make(chan error, 2)
		go func() {
			_, err := s.enter(t.Context(), arrival{tokens: some}, gone)
			ended <- err
		}()
		v := someTurns(t, 2, queue.OutputFirst)
		x, y := v.mustEnter(t, arrival{tokens: some}), v.mustEnter(t, arrival{tokens: some, class: Background})
		x.answers(t, time.Second) // it is late
		go func() {
			_, err := y.ask(t.Context(), toDecode, 1, gone)
			ended <- err
		}()
		synctest.Wait()
		close(gone)
		for range 2 {
			if err := <-ended; !errors.Is(err, ErrDown) {
				t.Errorf("%v, want ErrDown", err)
			}
		}
		for _, u := range []*turn{u, x, y} {
			u.end()
		}
		empty(t, s)
		empty(t, v)
	})
}

// One in the background gives its slot up at its next boundary, and not before it has had
// it for a second; it gets one again when there is one.
func TestTheBackgroundLeavesItsSlotToAnInteractiveRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 1, queue.OutputFirst)
		back := s.mustEnter(t, arrival{tokens: some, class: Background})
		back.filled(len(some))
		in := s.later(t, arrival{tokens: some})
		if n, err := back.ask(t.Context(), toDecode, 16, nil); n == 0 || err != nil {
			t.Fatalf("before its residency is over: %d, %v", n, err)
		}
		time.Sleep(2 * time.Second)
		if got(in) != nil {
			t.Fatal("the slot is used twice")
		}
		back.token(true)
		back.awaits()
		back.ran(0, 1, scheduler.OutputDecode)
		if _, err := back.ask(t.Context(), toDecode, 16, nil); !errors.Is(err, errLeave) {
			t.Fatalf("it was not told to leave: %v", err)
		}
		again := make(chan error, 1)
		go func() { again <- back.leave(t.Context(), some, nil, read) }()
		u := got(in)
		if u == nil || u.slot == nil {
			t.Fatal("the slot was not given up")
		}
		if n := s.said(); n.Preempted != [classes]uint64{0, 1} || n.Waiting != [classes]int{0, 1} || n.Away != [classes]int{0, 1} {
			t.Errorf("%+v", n)
		}
		u.end()
		if err := <-again; err != nil || back.slot == nil {
			t.Fatal(err)
		}
		back.filled(len(some))
		if n, err := back.ask(t.Context(), toDecode, 16, nil); n == 0 || err != nil {
			t.Errorf("back in its slot: %d, %v", n, err)
		}
		back.end()
		empty(t, s)
	})
}

func TestOnePreemptedThatIsCancelledLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 1, queue.OutputFirst)
		back := s.mustEnter(t, arrival{tokens: some, class: Background})
		back.filled(len(some))
		back.ran(0, 1, scheduler.OutputDecode)
		time.Sleep(2 * time.Second)
		in := s.later(t, arrival{tokens: some})
		if _, err := back.ask(t.Context(), toDecode, 16, nil); !errors.Is(err, errLeave) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- back.leave(ctx, some, nil, read) }()
		u := got(in)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		back.end()
		u.end()
		empty(t, s)
	})
}

// While an interactive answer is slower than its service level, quanta of the background
// wait for it; but not for ever, and no longer than it goes on.
func TestTheGuardHoldsTheBackgroundWhileAnAnswerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 3, queue.OutputFirst)
		u := s.mustEnter(t, arrival{tokens: some})
		u.filled(len(some))
		back := s.mustEnter(t, arrival{tokens: some, class: Background})
		back.filled(len(some))
		turn := func() <-chan time.Time {
			at := make(chan time.Time, 1)
			go func() {
				if _, err := back.ask(t.Context(), toDecode, 16, nil); err == nil {
					at <- time.Now()
				}
			}()
			synctest.Wait()
			return at
		}
		began := time.Now()
		for range 10 {
			u.answers(t, 5*time.Millisecond)
		}
		<-turn() // it is in time
		back.ran(0, 1, scheduler.OutputDecode)
		u.answers(t, 200*time.Millisecond)
		held, asked := turn(), time.Now()
		for range 100 {
			u.answers(t, 30*time.Millisecond)
		}
		if len(held) != 0 {
			t.Errorf("the background had its turn %v after it asked", time.Since(asked))
		}
		for time.Since(asked) < s.cfg.Hold+time.Second {
			u.answers(t, 30*time.Millisecond)
		}
		if at := <-held; at.Sub(asked) < s.cfg.Hold || at.Sub(asked) > s.cfg.Hold+lookAgain {
			t.Errorf("held for %v, want %v", at.Sub(asked), s.cfg.Hold)
		}
		for until := time.Now().Add(s.cfg.Hold/3 - 2*time.Second); time.Now().Before(until); {
			u.answers(t, 30*time.Millisecond)
			back.ran(0, 1, scheduler.OutputDecode)
			if held = turn(); len(held) == 0 {
				t.Fatal("it does not go on")
			}
		}
		for range 80 { // until its time is over
			u.answers(t, 30*time.Millisecond)
		}
		back.ran(0, 1, scheduler.OutputDecode)
		held = turn()
		u.answers(t, 30*time.Millisecond)
		if len(held) != 0 {
			t.Error("it goes on for ever")
		}
		u.end()
		<-held
		if n := s.said(); n.Held != [classes]uint64{0, 2} {
			t.Errorf("%+v after %v", n, time.Since(began))
		}
		back.end()
		empty(t, s)
	})
}

// stream decodes so many tokens, of a step each, and leaves its slot when it is told to.
// It says how many were decoded between two times that it left.
func (u *turn) stream(tb testing.TB, tokens int, step time.Duration) (each []int) {
	tb.Helper()
	part := 0
	for left := tokens; left > 0; {
		n, err := u.ask(tb.Context(), toDecode, min(left, 16), nil)
		if errors.Is(err, errLeave) {
			each, part = append(each, part), 0
			if err = u.leave(tb.Context(), some, nil, read); err == nil {
				u.filled(len(some))
				continue
			}
		}
		if err != nil {
			tb.Error(err)
			return each
		}
		for i := range n {
			time.Sleep(step)
			u.token(i == 0)
			u.awaits()
		}
		u.ran(0, n, scheduler.OutputDecode)
		left, part = left-n, part+n
	}
	return append(each, part)
}

// Whatever floods the node with answers that are late, a request in the background comes
// to its end: from when it has waited for Aging it gets on each time that it has a slot.
func TestTheBackgroundGetsOnUnderAFlood(t *testing.T) {
	for _, slots := range []int{1, 2, 4} {
		for _, aging := range []time.Duration{0, 5 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				const step = 40 * time.Millisecond
				s := turnsOf(t, slots, queue.Config{Policy: queue.OutputFirst, Aging: aging})
				ended := make(chan []int, 1)
				var over atomic.Bool
				var answers atomic.Int64
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() {
						for !over.Load() && answers.Load() < 2000 {
							u := s.mustEnter(t, arrival{tokens: some})
							u.filled(len(some))
							u.stream(t, 60, step)
							u.end()
							answers.Add(1)
						}
					})
				}
				time.Sleep(time.Second)
				wg.Go(func() {
					u := s.mustEnter(t, arrival{tokens: some, class: Background})
					u.filled(len(some))
					ended <- u.stream(t, 200, step)
					u.end()
				})
				each := <-ended
				n := answers.Load()
				over.Store(true)
				wg.Wait()
				t.Logf("%d slots, aging %v: %v tokens a time, beside %d answers", slots, aging, each, n)
				if n >= 2000 {
					t.Errorf("%d slots, aging %v: it was starved: %v", slots, aging, each)
				}
				for i, tokens := range each {
					if tokens == 0 {
						t.Errorf("%d slots, aging %v: others made room for it the %d. time, and it did not get on: %v", slots, aging, i+1, each)
					}
				}
				empty(t, s)
			})
		}
	}
}

// One in the background with a slot has a quarter of the time beside an answer that is
// always late.
func TestTheBackgroundHasAQuarterOfTheTimeBesideALateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 40 * time.Millisecond
		s := someTurns(t, 2, queue.OutputFirst)
		u, back := s.mustEnter(t, arrival{tokens: some}), s.mustEnter(t, arrival{tokens: some, class: Background})
		done := make(chan struct{})
		go func() {
			defer close(done)
			u.answers(t, step)
			u.stream(t, 4000, step)
			u.end()
		}()
		time.Sleep(time.Second)
		back.stream(t, 900, step)
		select {
		case <-done:
			t.Error("it had less than its part")
		default:
		}
		back.end()
		<-done
		empty(t, s)
	})
}

// read is of a client that has read all.
func read() error { return nil }

// reader is a client that reads a token when it is told to, and how.
type reader struct {
	next chan error
	got  []int32 // only while it reads none
}

func (r *reader) emit(t openai.Token) error {
	err := <-r.next
	r.got = append(r.got, t.ID)
	return err
}

// background has a slot, has begun to decode, and has had the slot for long enough to lose it.
func background(t *testing.T, s *turns) *job {
	t.Helper()
	back := s.mustEnter(t, arrival{tokens: some, class: Background})
	back.filled(len(some))
	if _, err := back.ask(t.Context(), toDecode, 16, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	return &job{turn: back, slot: back.slot}
}

// One in the background whose client does not read goes on to its next boundary when
// another is to have its slot, and not before. It gives the slot up at once, has none while
// its client does not read, and loses nothing.
func TestAReaderWhoDoesNotReadGivesTheSlotUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 1, queue.OutputFirst)
		j, r := background(t, s), &reader{next: make(chan error)}
		shown := make(chan error, 1)
		go func() { shown <- j.show(openai.Token{ID: 0}, r.emit) }()
		time.Sleep(time.Minute)
		if len(shown) != 0 {
			t.Fatalf("it goes on with nobody waiting: %v", <-shown)
		}
		in := s.later(t, arrival{tokens: some})
		began := time.Now()
		if err := <-shown; err != nil {
			t.Fatal(err)
		}
		for id := range int32(3) {
			if err := j.show(openai.Token{ID: id + 1}, r.emit); err != nil {
				t.Fatal(err)
			}
		}
		j.turn.ran(0, 4, scheduler.OutputDecode)
		if _, err := j.turn.ask(t.Context(), toDecode, 16, nil); !errors.Is(err, errLeave) {
			t.Fatal(err)
		}
		back := make(chan error, 1)
		go func() { back <- j.turn.leave(t.Context(), some, nil, j.unread.read) }()
		u := got(in)
		if u == nil || time.Since(began) != 0 {
			t.Fatalf("the slot was not given up, after %v", time.Since(began))
		}
		if n := s.said(); n.Waiting != [classes]int{0, 1} || n.Away != [classes]int{0, 1} {
			t.Errorf("%+v", n)
		}
		u.end()
		time.Sleep(time.Minute)
		if len(back) != 0 || s.slots.busy() != 0 {
			t.Error("it has a slot, and its client does not read")
		}
		s.mustEnter(t, arrival{tokens: some, class: Background}).end()
		for range 4 {
			r.next <- nil
		}
		if err := <-back; err != nil || j.turn.slot == nil || !slices.Equal(r.got, []int32{0, 1, 2, 3}) {
			t.Errorf("%v, read %v", err, r.got)
		}
		j.turn.end()
		empty(t, s)
	})
}

// What becomes of a token is told by one of the next, or where the request waits: a stop
// string, or a client that the front has given up.
func TestWhatBecomesOfAnUnreadTokenIsTold(t *testing.T) {
	for _, want := range []error{openai.ErrStop, os.ErrDeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			s := someTurns(t, 1, queue.OutputFirst)
			j, r := background(t, s), &reader{next: make(chan error)}
			in := s.later(t, arrival{tokens: some})
			for id := range int32(3) {
				if err := j.show(openai.Token{ID: id}, r.emit); err != nil {
					t.Fatal(err)
				}
			}
			r.next <- nil
			r.next <- want
			synctest.Wait()
			if err := j.show(openai.Token{ID: 3}, r.emit); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if err := j.turn.leave(t.Context(), some, nil, j.unread.read); !errors.Is(err, want) || !slices.Equal(r.got, []int32{0, 1}) {
				t.Errorf("%v, want %v, written %v", err, want, r.got)
			}
			j.turn.end()
			got(in).end()
			empty(t, s)
		})
	}
}

// A client that reads while its request is to leave is waited for again once it is back.
func TestAReaderWhoReadsAgainIsWaitedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 1, queue.OutputFirst)
		j, r := background(t, s), &reader{next: make(chan error, 1)}
		in := s.later(t, arrival{tokens: some})
		r.next <- nil
		if err := j.show(openai.Token{}, r.emit); err != nil {
			t.Fatal(err)
		}
		back := make(chan error, 1)
		go func() { back <- j.turn.leave(t.Context(), some, nil, j.unread.read) }()
		got(in).end()
		if err := <-back; err != nil {
			t.Fatal(err)
		}
		shown := make(chan error, 1)
		go func() { shown <- j.show(openai.Token{}, r.emit) }()
		time.Sleep(time.Minute)
		if len(shown) != 0 {
			t.Error("it goes on, and nobody waits")
		}
		r.next <- openai.ErrStop
		if err := <-shown; !errors.Is(err, openai.ErrStop) {
			t.Error(err)
		}
		j.turn.end()
		empty(t, s)
	})
}

// What waits for a reader is bounded.
func TestUnreadTokensAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 1, queue.OutputFirst)
		j, r := background(t, s), &reader{next: make(chan error)}
		in := s.later(t, arrival{tokens: some})
		n, err := 0, error(nil)
		for ; err == nil && n <= 2*maxUnread; n++ {
			err = j.show(openai.Token{}, r.emit)
			synctest.Wait()
		}
		var said *openai.Error
		if !errors.As(err, &said) || said.Code != "client_does_not_read" || n != maxUnread+2 { // one is being written
			t.Errorf("after %d tokens: %v", n, err)
		}
		j.turn.end()
		got(in).end()
		close(r.next)
		if err := j.unread.read(); err != nil || len(r.got) != maxUnread+1 {
			t.Errorf("%v, %d were written", err, len(r.got))
		}
		empty(t, s)
	})
}

// A client that does not read its answer is no stream that is late, however late its
// tokens were before.
func TestAReaderWhoDoesNotReadHoldsNobody(t *testing.T) {
	for _, took := range []time.Duration{time.Millisecond, 200 * time.Millisecond} {
		for _, other := range []struct {
			want  want
			class Class
		}{{toDecode, Background}, {toPrefill, Background}, {toPrefill, Interactive}} {
			synctest.Test(t, func(t *testing.T) {
				s := someTurns(t, 2, queue.OutputFirst)
				u, v := s.mustEnter(t, arrival{tokens: some}), s.mustEnter(t, arrival{tokens: some, class: other.class})
				if _, err := u.ask(t.Context(), toDecode, 16, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(took)
				u.token(true) // and its emit does not return
				time.Sleep(10 * time.Second)
				for range 3 {
					asked := time.Now()
					if _, err := v.ask(t.Context(), other.want, 16, nil); err != nil || time.Since(asked) != 0 {
						t.Errorf("%v a token, %+v: %v after %v", took, other, err, time.Since(asked))
					}
					v.ran(1, 0, scheduler.Prefill)
				}
				u.end()
				v.end()
				empty(t, s)
			})
		}
	}
}

// Prompts go in pieces of a tick, one at a time and in order; one that is alone goes in
// large ones; first come first served knows no pieces.
func TestPromptsGoInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for policy, want := range map[queue.Policy]int{queue.FCFS: 2000, queue.OutputFirst: pieceAlone} {
			s := someTurns(t, 2, policy)
			u := s.mustEnter(t, arrival{tokens: make([]int32, 2000)})
			if n, err := u.ask(t.Context(), toPrefill, 2000, nil); n != want || err != nil {
				t.Errorf("%s: alone, a piece of %d, %v; want %d", policy, n, err, want)
			}
			u.end()
			empty(t, s)
		}
		s := someTurns(t, 3, queue.OutputFirst)
		var order []string
		var wg sync.WaitGroup
		var mu sync.Mutex
		add := func(name string, class Class) {
			u := s.mustEnter(t, arrival{tokens: make([]int32, 250), class: class})
			wg.Go(func() {
				for left := 250; left > 0; {
					n, err := u.ask(t.Context(), toPrefill, left, nil)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, fmt.Sprint(name, n))
					mu.Unlock()
					left -= n
					time.Sleep(time.Duration(n) * time.Millisecond)
					u.ran(n, 0, scheduler.Prefill)
				}
				u.filled(250)
				u.end()
			})
			synctest.Wait()
		}
		add("a", Background)
		add("b", Background)
		add("c", Interactive)
		wg.Wait()
		want := []string{"a250", "c100", "c100", "c50", "b100", "b150"} // a was alone when it began, and b at last
		if !slices.Equal(order, want) {
			t.Errorf("pieces %v, want %v", order, want)
		}
		empty(t, s)
	})
}

// prefills has a prompt computed at a millisecond a token, and tells of each piece.
func (u *turn) prefills(tb testing.TB, tokens int, piece func(n int)) {
	for left := tokens; left > 0; {
		n, err := u.ask(tb.Context(), toPrefill, left, nil)
		if err != nil {
			tb.Error(err)
			return
		}
		piece(n)
		time.Sleep(time.Duration(n) * time.Millisecond)
		u.ran(n, 0, scheduler.Prefill)
		left -= n
	}
	u.filled(tokens)
}

// A short prompt waits for a piece or two of long ones, and not for long ones; and a long
// one has its part however many short ones come.
func TestAShortPromptGoesBetweenPiecesOfLongOnes(t *testing.T) {
	for _, class := range Classes {
		synctest.Test(t, func(t *testing.T) {
			s := someTurns(t, 5, queue.OutputFirst)
			var mu sync.Mutex
			var pieces [3]int // of the long ones, and of all short ones
			had := func() [3]int { mu.Lock(); defer mu.Unlock(); return pieces }
			done := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
			long := func(i int) {
				u := s.mustEnter(t, arrival{tokens: make([]int32, 15000), class: class})
				go func() {
					u.prefills(t, 15000, func(int) { mu.Lock(); pieces[i]++; mu.Unlock() })
					u.end()
					close(done[i])
				}()
				synctest.Wait()
			}
			long(0)
			time.Sleep(time.Second)
			long(1)
			time.Sleep(time.Second)
			for range 3 {
				u := s.mustEnter(t, arrival{tokens: some, class: class})
				before := had()
				u.prefills(t, len(some), func(int) {})
				if now := had(); now[0]+now[1]-before[0]-before[1] > 2 {
					t.Errorf("%s: a short prompt waited for the pieces from %v to %v", class, before, now)
				}
				u.end()
				time.Sleep(250 * time.Millisecond)
			}
			from := had()
			var wg sync.WaitGroup
			for range 2 { // there is always a short one
				wg.Go(func() {
					for range 100 {
						u := s.mustEnter(t, arrival{tokens: make([]int32, 100), class: class})
						u.prefills(t, 100, func(int) { mu.Lock(); pieces[2]++; mu.Unlock() })
						u.end()
					}
				})
			}
			wg.Wait()
			to := had()
			if n := to[0] + to[1] - from[0] - from[1]; n < to[2]/4 {
				t.Errorf("%s: beside %d pieces of short prompts, long ones had %d", class, to[2], n)
			}
			if to[0]-from[0] < 10 || to[1]-from[1] < 10 {
				t.Errorf("%s: a long prompt had next to nothing: %v after %v", class, to, from)
			}
			<-done[0]
			<-done[1]
			empty(t, s)
		})
	}
}

// While an answer is late, it has a token between two pieces of another's prompt.
func TestALateAnswerHasATokenBetweenTwoPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 2, queue.OutputFirst)
		u, v := s.mustEnter(t, arrival{tokens: some}), s.mustEnter(t, arrival{tokens: make([]int32, 1000)})
		u.filled(len(some))
		u.answers(t, 30*time.Millisecond)
		var order []string
		var mu sync.Mutex
		note := func(what string) { mu.Lock(); order = append(order, what); mu.Unlock() }
		var wg sync.WaitGroup
		wg.Go(func() {
			for left := 1000; left > 0; {
				n, err := v.ask(t.Context(), toPrefill, left, nil)
				if err != nil {
					t.Error(err)
					return
				}
				note("piece")
				left -= n
				time.Sleep(time.Duration(n) * time.Millisecond)
				v.ran(n, 0, scheduler.Prefill)
			}
			v.end()
		})
		for range 40 {
			u.answers(t, 30*time.Millisecond)
			note("token")
		}
		wg.Wait()
		for i, what := range order {
			if what == "piece" && i > 0 && order[i-1] == "piece" {
				t.Errorf("two pieces without a token: %v", order)
			}
		}
		if n := len(order) - 40; n != 10 {
			t.Errorf("%d pieces", n)
		}
		u.end()
		empty(t, s)
	})
}

// A quantum of one for whom nobody waits has as many tokens as take a tick; an answer, and
// one that must draw the same tokens again, have all.
func TestQuantaFollowTheMeasuredStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someTurns(t, 4, queue.OutputFirst)
		u := s.mustEnter(t, arrival{tokens: some})
		back, think, fixed := s.mustEnter(t, arrival{tokens: some, class: Background}), s.mustEnter(t, arrival{tokens: some, thinks: true}), s.mustEnter(t, arrival{tokens: some, class: Background, fixed: true})
		for _, c := range []struct {
			step time.Duration
			want int
		}{{10 * time.Millisecond, 10}, {50 * time.Millisecond, 2}, {time.Second, 1}, {time.Millisecond, 16}} {
			for range 100 {
				u.answers(t, c.step)
			}
			for _, x := range []struct {
				who  *turn
				want int
			}{{back, c.want}, {think, c.want}, {fixed, 16}, {u, 16}} {
				if n, err := x.who.ask(t.Context(), toDecode, 16, nil); n != x.want || err != nil {
					t.Errorf("%v a step: a quantum of %d, %v; want %d", c.step, n, err, x.want)
				}
				x.who.ran(0, 0, x.who.phase)
			}
		}
		for _, u := range []*turn{u, back, think, fixed} {
			u.end()
		}
		empty(t, s)
	})
}

// Whatever comes, in whatever order, every request comes to its end, no slot is used
// twice, and nothing is left.
func TestTurnsUnderManyRequests(t *testing.T) {
	for _, policy := range queue.Policies() {
		synctest.Test(t, func(t *testing.T) {
			s := turnsOf(t, 3, queue.Config{Policy: policy, MinResidency: 50 * time.Millisecond, Aging: time.Second})
			var mu sync.Mutex
			inUse := map[int]bool{}
			use := func(u *turn, on bool) {
				mu.Lock()
				defer mu.Unlock()
				if inUse[u.slot.id] == on {
					t.Errorf("%s: slot %d: in use %v already", policy, u.slot.id, on)
				}
				inUse[u.slot.id] = on
			}
			var wg sync.WaitGroup
			done := 0
			for i := range 60 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), 3))
					time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if r.IntN(4) == 0 { // the client goes
						time.AfterFunc(time.Duration(r.IntN(5000))*time.Millisecond, cancel)
					}
					u, err := s.enter(ctx, arrival{tokens: make([]int32, 1+r.IntN(500)), class: Class(i % 2), thinks: r.IntN(2) == 0}, nil)
					if err != nil {
						return
					}
					use(u, true)
					run := func(w want, left int, phase scheduler.Phase) bool {
						for left > 0 {
							n, err := u.ask(ctx, w, left, nil)
							if errors.Is(err, errLeave) {
								use(u, false)
								if err := u.leave(ctx, some, nil, read); err != nil {
									u.end()
									return false
								}
								use(u, true)
								u.filled(1 << 20)
								continue
							}
							if err != nil {
								use(u, false)
								u.end()
								return false
							}
							left -= n
							time.Sleep(time.Duration(n) * 5 * time.Millisecond)
							if w == toDecode {
								u.token(r.IntN(2) == 0)
								u.awaits()
								u.ran(0, n, phase)
							} else {
								u.ran(n, 0, phase)
							}
						}
						return true
					}
					if !run(toPrefill, 1+r.IntN(400), scheduler.Prefill) {
						return
					}
					u.filled(1 << 20)
					if u.thinks && !run(toDecode, r.IntN(100), scheduler.ThinkDecode) || !run(toDecode, 1+r.IntN(100), scheduler.OutputDecode) {
						return
					}
					use(u, false)
					u.end()
					mu.Lock()
					done++
					mu.Unlock()
				})
			}
			wg.Wait()
			if done < 40 {
				t.Errorf("%s: %d came to their end", policy, done)
			}
			t.Logf("%s: %d done, %+v", policy, done, s.said())
			empty(t, s)
		})
	}
}
