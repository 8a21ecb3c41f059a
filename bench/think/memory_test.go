package think

import (
	"testing"
	"time"

	"meridian/bench/trace"
	"meridian/scheduler/queue"
)

// pressed plays the requests of a seed at a rate that the memory is too small for.
func pressed(t *testing.T, o *Options, arm Arm, rate float64) *run {
	t.Helper()
	r, err := newRun(t.Context(), o, arm, o.Workload.draw(3, 400, rate))
	if err != nil {
		t.Fatal(err)
	}
	r.course = &course{}
	if err := r.play(); err != nil {
		t.Fatalf("%s: %v", arm.Name, err)
	}
	return r
}

// What the store counts is what the run says; at the end nobody has anything, and the store
// has lost nothing.
func TestTheStoreAndTheRunAgree(t *testing.T) {
	o := small()
	o.KVTokens = 8_000
	for _, arm := range append(Arms(&o),
		Arm{Name: "tiers, recomputed", Config: queue.Config{Policy: queue.FCFS}},
		Arm{Name: "output-first, recomputed", ColdBatch: 4, Config: queue.Config{Policy: queue.OutputFirst}},
	) {
		r := pressed(t, &o, arm, 2)
		st := r.mem.core.Stats()
		if st.Leaked != 0 || st.Reserved != 0 || st.Quarantined != 0 || st.MovedStale != 0 || st.CopyFailed != 0 || st.Remote != 0 {
			t.Errorf("%s: left in the store: %+v", arm.Name, st)
		}
		idle, all := uint64(0), uint64(0)
		for k := range st.IdleBytes {
			idle, all = idle+st.IdleBytes[k], all+st.BlockBytes[k]
		}
		if idle != all || all == 0 {
			t.Errorf("%s: %d bytes of %d are idle: somebody still has references", arm.Name, idle, all)
		}
		f := r.figures()
		if !arm.OneTier && (st.Evictions != r.mem.gone || st.LiveEvictions != f.EvictedOutput) {
			t.Errorf("%s: evicted by tier: the store says %v, %d of live requests, the run %v", arm.Name, st.Evictions, st.LiveEvictions, r.mem.gone)
		}
		offloads := arm.Config.Offload
		if offloads != (f.OffloadedBytes > 0) || offloads != (f.PulledBytes > 0) || offloads != (f.Recomputed == 0) {
			t.Errorf("%s: %d bytes offloaded, %d pulled, %d tokens computed again", arm.Name, f.OffloadedBytes, f.PulledBytes, f.Recomputed)
		}
		// What was copied when thinking was over is not copied again, but it is pulled.
		if offloads && f.PulledBytes < f.OffloadedBytes {
			t.Errorf("%s: %d bytes pulled, %d offloaded", arm.Name, f.PulledBytes, f.OffloadedBytes)
		}
		if !offloads && (f.EvictedOutput == 0 || f.HitTokens == 0) {
			t.Errorf("%s: %d output-critical evictions, %d tokens hit: dropped blocks were all lost, or none was", arm.Name, f.EvictedOutput, f.HitTokens)
		}
		if (arm.ColdBatch > 0) != (f.ColdDropped > 0) || (arm.ColdBatch > 0) != (f.ColdBytes > 0) || f.ColdKept != 0 {
			t.Errorf("%s: %d bytes went cold, of blocks dropped %d, kept %d", arm.Name, f.ColdBytes, f.ColdDropped, f.ColdKept)
		}
		for _, x := range r.course.tiers {
			if n := x.Output + x.Thinking + x.Thought + x.Idle; n > o.kvBlocks() {
				t.Fatalf("%s: %+v: there are %d blocks", arm.Name, x, o.kvBlocks())
			}
		}
		if len(r.course.tiers) < 10 {
			t.Errorf("%s: %d samples of tiers", arm.Name, len(r.course.tiers))
		}
	}
}

// Where the history keeps thinking, its blocks are not dropped at the end, nor are the
// copies.
func TestThinkingThatTheHistoryKeeps(t *testing.T) {
	o := small()
	o.Keeps = true
	r := pressed(t, &o, Arms(&o)[5], 2) // slo-slack
	f, st := r.figures(), r.mem.core.Stats()
	if f.ColdKept == 0 || f.ColdDropped != 0 || st.Remote == 0 || st.Leaked != 0 {
		t.Errorf("kept %d, dropped %d, %d copies remembered", f.ColdKept, f.ColdDropped, st.Remote)
	}
}

// Requests whose prompts begin alike share blocks: the second computes the rest only. What
// one still has is not lowered when the other ends.
func TestPromptsThatBeginAlike(t *testing.T) {
	o := small()
	o.KVTokens = 64_000
	const long = 2*trace.BlockTokens + 100
	reqs := []arrival{
		{at: 0, prompt: long, answer: 500, content: []int{1, 2, 3}},
		{at: 5 * time.Second, prompt: long, think: 40, answer: 40, content: []int{1, 2, 4}},
		{at: 6 * time.Second, prompt: long, answer: 40, content: []int{1, 2, 4}},
	}
	r, err := newRun(t.Context(), &o, Arm{Config: queue.Config{Policy: queue.FCFS}}, reqs)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.play(); err != nil {
		t.Fatal(err)
	}
	// The last 100 tokens are of other content, or their last block is not full.
	hit := uint64(2*trace.BlockTokens + 2*trace.BlockTokens + 96)
	if r.n.HitTokens != hit || r.n.Prefilled != 3*long-hit || r.n.Recomputed != 0 {
		t.Errorf("%d tokens hit, want %d; %d computed, %d again", r.n.HitTokens, hit, r.n.Prefilled, r.n.Recomputed)
	}
	if st := r.mem.core.Stats(); st.Leaked != 0 || st.Blocks[2] != 0 || len(r.mem.users) != 0 {
		t.Errorf("%+v, %d keys in use", st, len(r.mem.users))
	}
}

// A queue that gives more than there is is an error of the run.
func TestAQueueThatGivesTooMuch(t *testing.T) {
	m, err := newMemory(8, 16, 1, true, false)
	if err != nil {
		t.Fatal(err)
	}
	m.grow(0, 9*16)
	if err := m.reserve(0); err == nil {
		t.Error("nine blocks of eight")
	}
}

// An ablation is one thing changed, and every arm plays to its end.
func TestAblations(t *testing.T) {
	o := small()
	o.KVTokens = 8_000
	o.Arms = Ablations(&o)
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	decoded := map[string]uint64{}
	for _, a := range o.Arms {
		r := pressed(t, &o, a, 2)
		decoded[a.Name] = r.n.Decoded
		if (a.Name == "of, recomputed" || a.Name == "stock") != (r.n.Recomputed > 0) {
			t.Errorf("%s: %d tokens computed again", a.Name, r.n.Recomputed)
		}
		if r.n.Decoded != decoded["stock"] {
			t.Errorf("%s decoded %d tokens, stock %d", a.Name, r.n.Decoded, decoded["stock"])
		}
	}
	if len(decoded) != len(o.Arms) {
		t.Errorf("%d names of %d arms", len(decoded), len(o.Arms))
	}
}

// A long prompt that is not in yet when its request has to go is not computed again.
func TestPromptsThatAreNotInYet(t *testing.T) {
	o := small()
	o.StepTokens = 2 * o.Slots // so that a prompt takes more than a second
	o.Workload.Prompt, o.Workload.ChatPrompt = Span{2000, 8000}, Span{50, 150}
	for _, a := range Arms(&o) {
		if a.Name != "output-first" {
			continue
		}
		if r := pressed(t, &o, a, 4); r.n.Recomputed != 0 || r.n.OffloadedBytes == 0 {
			t.Errorf("%d tokens computed again, %d bytes offloaded", r.n.Recomputed, r.n.OffloadedBytes)
		}
		a.Config.Partial = false
		if r := pressed(t, &o, a, 4); r.n.Recomputed == 0 {
			t.Error("nothing was preempted in its prompt: the test shows nothing")
		}
	}
}
