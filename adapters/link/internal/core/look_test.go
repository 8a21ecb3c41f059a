package core

import (
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// elsewhere finds nothing.
type elsewhere struct{}

func (elsewhere) Looks() bool  { return true }
func (elsewhere) Look([]Block) {}

// A session looks elsewhere for as many questions at a time as it may: the next one is
// answered with what is here, and the end of one makes room for another.
func TestFewQuestionsAreLookedForElsewhereAtATime(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.end[1].cfg.Looker, r.held = elsewhere{}, true
	num := r.open(0)
	ask := func() *Call {
		c := &Call{Type: proto.TypeHas, Timeout: time.Minute, Items: []Item{{NS: num, Key: r.key("nowhere")}}}
		r.end[0].Start(r.now, c)
		r.run()
		return c
	}
	var waiting []*Call
	for round := range 3 {
		for len(waiting) < maxLooking {
			waiting = append(waiting, ask())
		}
		if c := ask(); !c.over || c.Items[0].Code != wire.CodeAbsent {
			t.Errorf("round %d: one more waits: %v", round, c.Items[0].Code)
		}
		if n := len(r.jobs[1]); n != maxLooking {
			t.Fatalf("round %d: %d are looked for, want %d", round, n, maxLooking)
		}
		for i, c := range waiting {
			if c.over {
				t.Errorf("round %d: question %d was answered before its look is over", round, i)
			}
		}
		jobs := r.jobs[1][:1]
		r.jobs[1] = r.jobs[1][1:]
		jobs[0].Run()
		r.end[1].Finish(r.now, jobs)
		r.run()
		if c := waiting[0]; !c.over || c.Items[0].Code != wire.CodeAbsent {
			t.Errorf("round %d: a question whose look is over: %v", round, c.Items[0].Code)
		}
		waiting = waiting[1:]
	}
	r.work(1)
	r.run()
	r.settled()
}
