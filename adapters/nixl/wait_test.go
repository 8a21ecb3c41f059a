package nixl

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/fabric/lent"
	"meridian/internal/testbed"
)

// Many callers wait at a time, some for what never comes: each hears its own answer, and
// notifications come meanwhile.
func TestEachCallerHearsItsAnswerWhoeverReceivesIt(t *testing.T) {
	f := newFaulty(t, 0)
	stuck, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := ask[*control.Done](stuck, f.process, f.moveOf("never"), -1); !errors.Is(err, context.Canceled) {
				t.Errorf("a transfer that never ends: %v", err)
			}
		})
	}
	const callers, each = 8, 50
	var asks sync.WaitGroup
	for caller := range callers {
		asks.Go(func() {
			for i := range each {
				var err error
				switch (caller + i) % 3 {
				case 0:
					_, err = ask[*control.Done](t.Context(), f.process, f.moveOf("good"), -1)
				case 1:
					_, err = ask[*control.Done](t.Context(), f.process, &control.Notify{Peer: "good", Text: []byte("x")}, -1)
				default:
					if _, err = ask[*control.Done](t.Context(), f.process, f.moveOf("nobody"), -1); err != nil {
						err = nil // it is refused
					} else {
						err = errors.New("a transfer to nobody is done")
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	if _, err := ask[*control.Done](t.Context(), f.process, &control.Notify{Peer: "echo", Text: []byte("hear")}, -1); err != nil {
		t.Error(err)
	}
	if got := <-f.box; got.peer != "echo" || !bytes.Equal(got.text, []byte("hear")) {
		t.Errorf("%q", got)
	}
	asks.Wait()
	end()
	wg.Wait()
}

// Nobody waits for an answer, and what the helper says by itself is heard: again and again,
// and right after a caller has received.
func TestWhatTheHelperSaysIsHeardWhileNobodyWaits(t *testing.T) {
	f := newFaulty(t, 0)
	for range 20 {
		heard := make(chan control.Message, 1)
		if err := f.begin(&control.Notify{Peer: "echo", Text: []byte("hear")}, -1, func(m control.Message) { heard <- m }); err != nil {
			t.Fatal(err)
		}
		<-heard
		<-f.box
		if _, err := ask[*control.Done](t.Context(), f.process, &control.Ping{}, -1); err != nil {
			t.Fatal(err)
		}
	}
}

// Who waits for a transfer that lasts gives the lead back: the others' answers come.
func TestACallerThatWaitsForLongHoldsUpNobody(t *testing.T) {
	f := newFaulty(t, 0)
	stuck, end := context.WithCancel(t.Context())
	defer end()
	waits := make(chan error, 1)
	go func() {
		got := make(chan landing, 1)
		err := f.begin(f.moveOf("never"), -1, func(m control.Message) { got <- landing{m: m} })
		if err == nil {
			_, err = f.wait(stuck, got, due{time.Now().Add(time.Hour), true}) // it would sleep until then
		}
		waits <- err
	}()
	for range 20 {
		ended := f.move("good")
		<-ended
	}
	end()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestATransferIsDueWhenTheLastOnesSay(t *testing.T) {
	c := &course{pace: &control.Pace{}}
	c.begun(1 << 20)
	if d := c.due(); d != (due{}) {
		t.Errorf("the first transfer is due %v from now", time.Until(d.at))
	}
	c.pace.Took(2<<20, 200*time.Microsecond)
	c.begun(4 << 20)
	if d := c.due(); d.at.Sub(c.under[0].began) != 100*time.Microsecond || d.looks {
		t.Errorf("a MiB, of more, is due at %+v", d)
	}
	c.ended(false)
	if d := c.due(); d.at.Sub(c.last) != 400*time.Microsecond || !d.looks {
		t.Errorf("the last one is due at %+v, the first has failed at %v", d, c.last)
	}
	c.begun(1 << 30)
	c.ended(true)
	if d := c.due(); d.looks || d.at.Before(c.last) {
		t.Errorf("one that takes long is looked for: %+v", d)
	}
}

// A call whose context has ended begins no more transfers.
func TestACallThatHasEndedBeginsNoMoreTransfers(t *testing.T) {
	n := newFakeNode(t, nil, "never")
	stage := helperOf(t, n).stage
	used := func() uint64 {
		stage.mu.Lock()
		defer stage.mu.Unlock()
		return stage.space.Used
	}
	ctx, cancel := context.WithCancel(t.Context())
	pushed := make(chan error, 1)
	go func() { pushed <- pushTo(ctx, t, n, "never", leastMove-100, 1)[0].Err }()
	testbed.Until(t, "as many transfers as there may be are under way", func() bool { return used() == leastMove-64 })
	cancel()
	if err := <-pushed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if lostBytes(n) != leastMove-64 || used() != leastMove-64 {
		t.Errorf("%d bytes of staging are lost of %d in use", lostBytes(n), used())
	}
}

// Transfers are as large as the peer's part of the staging allows, and there are two of
// them at least, where that leaves none of under a piece.
func TestTransfersAreCutByTheStagingThatIsLeft(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		left  uint64
		bytes int
		want  []int // MiB of each, rounded up
	}{
		{DefaultStaging / 2, 64 * MiB, []int{16, 16, 16, 16}},
		{DefaultStaging/2 - 2*mostMove, 32 * MiB, []int{8, 8, 8, 8}},
		{0, 9 * MiB, []int{4, 4, 2}},
		{DefaultStaging / 2, 4 * MiB, []int{2, 2}},
		{DefaultStaging / 2, 4*MiB - 100, []int{2, 2}},
		{DefaultStaging / 2, MiB - 100, []int{1}},
	} {
		ops := []lent.Op{{B: make([]byte, c.bytes/2)}, {B: make([]byte, c.bytes-c.bytes/2)}}
		var got []int
		total := 0
		for _, move := range cut(ops, moveBytes(c.left)) {
			n := 0
			for _, one := range move {
				n += len(one.b)
			}
			total += n
			got = append(got, (n+MiB-1)/MiB)
		}
		if !slices.Equal(got, c.want) || total != c.bytes {
			t.Errorf("%d bytes with %d of the staging left: %v MiB, want %v", c.bytes, c.left, got, c.want)
		}
	}
}

// A peer has half of the staging, also where that is no multiple of what is given out.
func TestAPeerHasHalfOfTheStagingOfAnySize(t *testing.T) {
	s := newStaging(make([]byte, 2*100), func() {})
	p := &peer{}
	if _, ok := s.try(p, 100); !ok || s.left(p) != 0 {
		t.Errorf("the half: %v, %d bytes left", ok, s.left(p))
	}
	if _, ok := s.try(p, 1); ok {
		t.Error("it was given more than half")
	}
}
