package engine_test

import (
	"testing"

	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// phases reads frames until END of req, and counts the PHASEATs of kind 4 before it.
func (r *raw) phases(req uint64) (done int) {
	r.t.Helper()
	for {
		f := r.next()
		switch f.f.Type {
		case link.TypePhaseAt:
			p, err := link.Parse[link.PhaseAt](f.p)
			if err != nil {
				r.t.Fatal(err)
			}
			if p.Kind == 4 {
				done++
			}
		case link.TypeEnd:
			r.end(f, req)
			return done
		default:
			r.t.Fatalf("%s among advice", f.f.Type)
		}
	}
}

// A session that does not read holds nobody up: the others of its group get their
// advice and answers, and what it would not take is dropped and counted. It is not
// closed, and what it finds when it reads again is whole frames.
func TestAdviceWaitsForNobody(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Scheduler.MaxRequests = 8 })
	m := member{agent: 7, inc: 1}
	sched, _ := n.join(t, m)
	reads, _ := n.join(t, m)
	stopped, _ := n.join(t, m)
	sched.open(1, "acme")

	rounds := 0
	for req := uint64(3); n.srv.Stats().Dropped.PhaseAt < 100; req += 4 {
		sched.write(message(link.TypeBegin, req, link.Begin{Req: uint32(req)}))
		sched.phases(req)
		sched.write(message(link.TypeFinish, req+2, link.Finish{Req: uint32(req)}))
		if got := sched.phases(req + 2); got != 1 {
			t.Fatalf("round %d: %d phases before FINISH's END, want 1", rounds, got)
		}
		rounds++
		reads.write(message(link.TypePing, req, link.Empty{}))
		if got := reads.phases(req); got != 1 {
			t.Fatalf("round %d: the session that reads has %d phases, want 1", rounds, got)
		}
	}
	// Advice goes behind the answers that go out with it, so the first END may come
	// before a phase that another holder of the socket had still to send.
	got := 0
	for req := range uint64(2) {
		stopped.write(message(link.TypePing, 2*req+1, link.Empty{}))
		got += stopped.phases(2*req + 1)
	}
	st := n.srv.Stats()
	if got+int(st.Dropped.PhaseAt) != rounds {
		t.Errorf("%d phases came and %d were dropped, of %d", got, st.Dropped.PhaseAt, rounds)
	}
	if st.Sessions != 3 || st.Dropped.Phase != 0 || st.Dropped.Evicted != 0 {
		t.Errorf("%d sessions, dropped %+v", st.Sessions, st.Dropped)
	}
}

// Answers are waited for, and an engine that takes none in time is closed, whatever
// its group does: its group goes on.
func TestASessionThatTakesNoAnswersIsClosedAlone(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.SendTimeout = link.MinDeadline })
	m := member{agent: 7, inc: 1}
	sched, _ := n.join(t, m)
	stopped, _ := n.join(t, m)
	sched.open(1, "acme")
	ask := message(link.TypeHas, 3, link.Has{DeadlineMS: 1000, Items: make([]link.Want, 1000)})
	for {
		if _, err := stopped.c.Write(ask); err != nil {
			break
		}
	}
	n.wait(1)
	sched.write(message(link.TypeBegin, 3, link.Begin{Req: 1}))
	sched.phases(3)
	if code, _ := sched.lease(5, 0, "a", false); code != wire.CodeAbsent {
		t.Errorf("ACQUIRE: %s", code)
	}
}
