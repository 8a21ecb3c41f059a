package llama_test

import (
	"testing"

	"meridian/agent/llama/pair"
)

// A real llama-server with one slot: what is in the background gives it up, and goes on
// bit-equally from the blocks that it left.
func TestAPreemptedRequestGoesOnBitEqually(t *testing.T) {
	p := startPair(t, func(o *pair.Options) {
		o.Slots = 1
		o.Extra = "[scheduler]\nmin_residency = \"1ms\"\n"
	})
	n := p.Decode
	body := map[string]any{"prompt": words(100, "harbour"), "max_tokens": 120, "logprobs": 0}
	whole := mustAsk(t, n, true, body)
	body["service_tier"] = "flex"
	decoded := series(t, n, "meridian_llama_decoded_tokens_total")
	done := make(chan answer, 1)
	go func() { done <- mustAsk(t, n, true, body) }()
	for i := range 2 {
		want := decoded + float64(10+30*i)
		eventually(t, func() string {
			if series(t, n, "meridian_llama_decoded_tokens_total") < want && len(done) == 0 {
				return "the request does not come that far"
			}
			return ""
		})
		mustAsk(t, n, true, map[string]any{"prompt": words(40, "bell"), "max_tokens": 4})
	}
	parts := <-done
	if diff := equal(whole, parts); diff != "" {
		t.Errorf("preempted: %s", diff)
	}
	if got := series(t, n, `meridian_llama_preempted_total{class="background",policy="output-first"}`); got < 1 {
		t.Error("nothing was preempted")
	}
	if got := series(t, n, "meridian_llama_bad_blocks_total"); got != 0 {
		t.Errorf("%g bad blocks", got)
	}
	eventually(t, func() string { return idle(t, n) })
}
