package real

import (
	"errors"
	"testing"
	"time"

	"meridian/bench/think"
	"meridian/internal/realpart/llamanode"
)

// Real nodes with the real model, first come first served and with a policy: all of what
// was asked is answered, think budgets hold, and the long prompts of a storm were computed.
func TestRealNodesAreAskedAndMeasured(t *testing.T) {
	o := Defaults()
	o.Node = llamanode.Options(t)
	o.Node.Slots, o.Node.Context, o.Node.Capacity = 3, 768, 256<<20
	o.Arms = ArmsOf(Policies())
	o.Interactive, o.Background, o.Requests, o.Rounds, o.Workload.ReasoningRatio = 1, 2, 1, 1, 1
	o.Workload.ChatPrompt, o.Workload.ChatAnswer = think.Span{Least: 10, Most: 20}, think.Span{Least: 12, Most: 12}
	o.Workload.Prompt, o.Workload.Think, o.Workload.Answer = think.Span{Least: 20, Most: 30}, think.Span{Least: 8, Most: 8}, think.Span{Least: 8, Most: 8}
	o.Storm = Storm{Answer: 24, Clients: 1, Prompts: 2, Prompt: think.Span{Least: 100, Most: 120}}
	o.Within, o.Progress = 4*time.Minute, func(s string) { t.Log(s) }
	rep, err := Run(t.Context(), o)
	if err := errors.Join(err, rep.Err()); err != nil {
		t.Fatal(err)
	}
	t.Log(rep.Markdown())
	for _, a := range rep.Arms {
		if f := a.Background.Figures; a.Interactive.Figures.Requests != 1 || f.Requests != 2 || f.ThinkMean != 8 || f.Forced.HardCap != 1 {
			t.Errorf("%s: %+v, %+v", a.Name, a.Interactive, a.Background)
		}
		if !a.Tiers || !a.Interactive.Figures.have["output_itl"] || a.Interactive.Figures.ITL.P95 <= 0 || a.Stall.Storm == nil || a.Stall.Prompts != 2 || a.Stall.Failed > 0 {
			t.Errorf("%s: tiers %t, %+v, storm %+v", a.Name, a.Tiers, a.Interactive.Figures, a.Stall)
		}
	}
}
