package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/scheduler"
	"meridian/wire"
)

// startPlacer is startThinker in a group: advice has positions.
func startPlacer(t *testing.T, change func(*scheduler.Config)) *thinker {
	t.Helper()
	models, err := scheduler.NewModels([]scheduler.Model{
		{Name: "thinker", Start: []int32{thinkStart}, End: []int32{thinkEnd}, EOS: []int32{eos}, MaxThink: 40},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := &thinker{t: t, phases: make(chan client.Phase, 64)}
	x.n = startNode(t, func(_ *blocks.Config, c *engine.Config) {
		c.Scheduler = scheduler.Config{Models: models, OffloadThreshold: 2}
		if change != nil {
			change(&c.Scheduler)
		}
	})
	x.e, x.ns = x.n.inGroup(t, 1, client.Options{OnPhase: func(p client.Phase) { x.phases <- p }})
	return x
}

// auto puts a block whose tier the daemon chooses.
func (x *thinker) auto(req, pos uint32, name string) {
	x.t.Helper()
	put(x.t, x.e, client.Block{NS: x.ns, Key: keyOf(name), Auto: true, Pos: pos, Body: body(1, 1000), Req: req})
}

// at asserts the next advice with its position.
func (x *thinker) at(kind client.PhaseKind, used, pos uint32) {
	x.t.Helper()
	if p := x.phase(kind, used); p.Pos != pos {
		x.t.Errorf("%s at %d, want %d", kind, p.Pos, pos)
	}
}

func words(n int) []int32 { return slices.Repeat([]int32{word}, n) }

// A block of 16 tokens is what its position says, however late it comes, and an engine
// looks for no marker.
func TestPositionsSayWhatABlockIs(t *testing.T) {
	x := startPlacer(t, nil)
	r := x.begin(append(words(15), thinkStart)...) // thinking begins at 16
	x.auto(r, 0, "prompt")
	x.tokens(r, words(8)...)
	x.at(client.EnterThink, 0, 16)
	x.auto(r, 16, "first")                                  // of which 8 tokens are here
	x.auto(r, 15, "half prompt")                            // with a token of the prompt
	x.auto(r, 1<<32-1, "far")                               // where nothing will ever be
	x.tokens(r, append(words(20), thinkEnd, word, word)...) // the answer begins at 45
	x.at(client.ExitThink, 29, 45)
	<-x.n.host.offload
	x.auto(r, 29, "late")      // 29 to 45: all of it is thinking, which is over
	x.auto(r, 30, "late half") // with the first token of the answer
	x.auto(r, 45, "answer")
	x.tiers(map[string]wire.Tier{
		"prompt": wire.OutputCritical, "half prompt": wire.OutputCritical, "first": wire.ThinkComplete, "late": wire.ThinkComplete,
		"late half": wire.OutputCritical, "answer": wire.OutputCritical,
	})
	// "far" was taken for thinking; as the answer began before its end it was kept.
	x.tiers(map[string]wire.Tier{"far": wire.ThinkActive})
	x.tokens(r, eos)
	x.at(client.Completed, 29, 48)
	x.auto(r, 0, "too late")
	x.tiers(map[string]wire.Tier{"prompt": wire.ThinkComplete, "far": wire.ThinkComplete, "answer": wire.ThinkComplete, "too late": wire.ThinkComplete})
	x.auto(0, 0, "no request")
	x.auto(77, 0, "unknown request")
	x.tiers(map[string]wire.Tier{"no request": wire.ThinkComplete, "unknown request": wire.ThinkComplete})
	if off := x.n.host.offloaded; !slices.Contains(off, keyOf("first")) || slices.Contains(off, keyOf("far")) {
		t.Errorf("%d blocks went cold", len(off))
	}
}

// A block of a request that completes by its last token, and is handed off, waits for its
// peer although it was saved after that token.
func TestABlockThatIsSavedAfterTheLastTokenIsHandedOff(t *testing.T) {
	x := startPlacer(t, nil)
	r := x.begin(words(16)...)
	x.auto(r, 0, "prompt")
	x.tokens(r, append(words(16), eos)...)
	x.at(client.Completed, 0, 33)
	x.auto(r, 16, "last")
	text, err := x.e.Handoff(ctx, r, 1e9)
	if err != nil || text != "2 blocks are kept for 1s" {
		t.Errorf("HANDOFF: %q, %v", text, err)
	}
	if got := x.n.pinned(t, "prompt", "last"); got != 2 {
		t.Errorf("%d of 2 are pinned", got)
	}
}

// A daemon that was restarted says, token by token, what it would have said without: above
// all it ends thinking at the same token.
func TestARestartedDaemonGoesOnCounting(t *testing.T) {
	prompt := append(words(3), thinkStart)
	decoded := append(append(words(45), thinkEnd), append(words(5), eos)...)
	drain := func(x *thinker) (all []client.Phase) {
		if err := x.e.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case p := <-x.phases:
				all = append(all, p)
			default:
				return all
			}
		}
	}
	run := func(x *thinker, r uint32, from int) [][]client.Phase {
		after := make([][]client.Phase, len(decoded))
		for i := from; i < len(decoded); i++ {
			x.tokens(r, decoded[i])
			want := 0
			switch i {
			case 0, 39, 45, len(decoded) - 1: // begins, is forced, ends, completes
				want = 1
			}
			for range want {
				after[i] = append(after[i], <-x.phases)
			}
			after[i] = append(after[i], drain(x)...)
		}
		return after
	}
	x := startPlacer(t, nil)
	whole := run(x, x.begin(prompt...), 0)
	if p := whole[39]; len(p) != 1 || p[0].Kind != client.ForceBudget || p[0].Used != 40 || p[0].Pos != 44 {
		t.Fatalf("after 40 think tokens: %+v", p)
	}
	for _, cut := range []int{1, 17, 39, 40, 44, 46, 50} {
		t.Run(fmt.Sprint("after ", cut), func(t *testing.T) {
			x := startPlacer(t, nil) // the daemon has nothing of before
			r, err := x.e.Resume(ctx, client.Resume{Begin: client.Begin{Model: "thinker", Prompt: prompt}, Decoded: decoded[:cut]})
			if err != nil {
				t.Fatal(err)
			}
			first := <-x.phases
			now := []client.Phase{first}
			if cut >= 40 && cut <= 45 { // the callback runs beside us: what is due is waited for
				now = append(now, <-x.phases)
			}
			now = append(now, drain(x)...)
			switch {
			case cut <= 45 && first.Kind != client.EnterThink, cut > 45 && first.Kind != client.ExitThink:
				t.Errorf("resumed with %s", first.Kind)
			}
			if forced := slices.ContainsFunc(now, func(p client.Phase) bool { return p.Kind == client.ForceBudget }); forced != (cut >= 40 && cut <= 45) {
				t.Errorf("forced at once: %v", forced)
			}
			for i, got := range run(x, r, cut) {
				same := func(a, b client.Phase) bool {
					return a.Kind == b.Kind && a.Used == b.Used && a.Pos == b.Pos && a.Reason == b.Reason && slices.Equal(a.Inject, b.Inject)
				}
				if i >= cut && !slices.EqualFunc(got, whole[i], same) {
					t.Errorf("token %d: %+v, without the restart %+v", i, got, whole[i])
				}
			}
		})
	}
}

// A prompt that is longer than a message counts from its own begin.
func TestAPromptThatWasCutCountsFromItsBegin(t *testing.T) {
	x := startPlacer(t, nil)
	r, err := x.e.Resume(ctx, client.Resume{Begin: client.Begin{Model: "thinker", Prompt: []int32{word, thinkStart}}, First: 1000})
	if err != nil {
		t.Fatal(err)
	}
	x.tokens(r, word)
	x.at(client.EnterThink, 0, 1002)
	for range 2 {
		if _, err := x.e.Resume(ctx, client.Resume{Begin: client.Begin{Req: r, Model: "thinker"}}); wire.CodeOf(err) != wire.CodeInvalid {
			t.Errorf("RESUME of a number that runs: %v", err)
		}
	}
	r = x.begin(slices.Concat(words(260_100), []int32{thinkStart})...) // goes as RESUME
	x.tokens(r, word)
	x.at(client.EnterThink, 0, 260_101)
}
