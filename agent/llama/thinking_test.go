package llama_test

import (
	"strings"
	"testing"

	"meridian/agent/llama/pair"
)

// SmolLM2 does not think of itself: its chat prompt is opened with a marker, and
// it goes on until it is told to stop.
func thinkingPair(t *testing.T, keys, tables string) *pair.Pair {
	return startPair(t, func(o *pair.Options) {
		o.Llama = "think_start = \"<think>\"\nthink_end = \"</think>\"\nthink_open = true\nblock_tokens = 8\n" + keys
		o.Extra = tables
	})
}

func chat(t *testing.T, n *pair.Node, more map[string]any) answer {
	t.Helper()
	body := map[string]any{"messages": []map[string]string{{"role": "user", "content": "Why is the sky blue?"}}, "max_tokens": 90}
	for k, v := range more {
		body[k] = v
	}
	return mustAsk(t, n, false, body)
}

func TestThinkingIsEndedByTheCapAndItsBlocksAreOffloaded(t *testing.T) {
	p := thinkingPair(t, "", `[scheduler]
max_think_tokens = 40
min_think_tokens = 0
[disagg]
enabled = true
fabric = "link"
offload_threshold_blocks = 2
[model.smollm2]
keeps_thinking = true
`)
	a := chat(t, p.Decode, nil)
	if a.node.Forced != "hard_cap" || a.usage.CompletionDetails.ReasoningTokens < 40 || a.think == "" || a.text == "" {
		t.Errorf("%+v; want 40 thinking tokens, then an answer", a)
	}
	if strings.Contains(a.think+a.text, "think>") {
		t.Errorf("a marker is seen: %q, %q", a.think, a.text)
	}
	if n := series(t, p.Decode, `meridian_llama_forced_total{reason="hard_cap"}`); n != 1 {
		t.Errorf("%g forced requests are counted", n)
	}
	// The daemon's own router has seen the same, and has offloaded.
	eventually(t, func() string {
		if n := series(t, p.Decode, "meridian_disagg_blocks_offloaded_total"); n < 2 {
			return "no think block was offloaded"
		}
		return idle(t, p.Decode)
	})

	b := chat(t, p.Decode, map[string]any{"thinking_token_budget": 8})
	if b.node.Forced != "hard_cap" || b.usage.CompletionDetails.ReasoningTokens > 16 {
		t.Errorf("with a budget of 8: %+v", b.usage)
	}
	c := chat(t, p.Decode, map[string]any{"reasoning_effort": "none", "max_tokens": 8})
	if c.think != "" || c.text == "" || c.node.Forced != "" {
		t.Errorf("without thinking: %q, %q", c.think, c.text)
	}
}

func TestThinkingIsEndedByASignal(t *testing.T) {
	// Entropy that crosses 1 nat now and then: with an average of one sample the
	// indicator is 0 or 1, and its running mean below 1.
	p := thinkingPair(t, "signal_probs = 200\n", `[scheduler]
max_think_tokens = 400
min_think_tokens = 1
[entropy]
ema_alpha = 1.0
transition_entropy_threshold = 1.0
rpdi_threshold = 1.01
eat_probe_interval_tokens = 4
`)
	a := chat(t, p.Decode, map[string]any{"max_tokens": 300})
	if a.node.Forced != "overthinking" || a.text == "" || a.usage.CompletionDetails.ReasoningTokens >= 280 {
		t.Errorf("forced %q after %d thinking tokens, answer %q; want overthinking", a.node.Forced, a.usage.CompletionDetails.ReasoningTokens, a.text)
	}
	if n := series(t, p.Decode, "meridian_llama_think_tokens_dropped_total"); n == 0 {
		t.Error("the template leaves thinking out, and no dropped thinking token is counted")
	}
}
