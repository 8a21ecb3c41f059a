package llama_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"meridian/agent/llama/pair"
	"meridian/agent/openai"
)

// answer is what one request to a front gave.
type answer struct {
	ids    []int32
	logs   []float64
	text   string
	think  string
	finish string
	usage  openai.Usage
	node   report
}

// report is the node's own.
type report struct {
	Node     string  `json:"node"`
	Prefill  string  `json:"prefill"`
	TTFT     float64 `json:"ttft_ms"`
	Cached   int     `json:"prompt_cached"`
	Computed int     `json:"prompt_computed"`
	Pulled   uint64  `json:"pulled_bytes"`
	Forced   string  `json:"forced"`
}

// ask sends a request to a node's front and gathers the answer. With hop the node
// answers by itself.
func ask(t *testing.T, n *pair.Node, hop bool, body map[string]any) (answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	path := "/v1/completions"
	if body["messages"] != nil {
		path = "/v1/chat/completions"
	}
	full := map[string]any{"model": "smollm2", "temperature": 0, "stream": true, "stream_options": map[string]bool{"include_usage": true}}
	for k, v := range body {
		full[k] = v
	}
	var a answer
	err := openai.NewClient(openai.ClientConfig{URL: n.URL}).Stream(ctx, openai.Call{Path: path, Body: full, Hop: hop}, func(c *openai.Chunk) error {
		if len(c.Meridian) > 0 {
			var tok struct {
				ID     *int32   `json:"token_id"`
				Log    *float64 `json:"logprob"`
				Bytes  []byte   `json:"bytes"`
				Forced bool     `json:"forced_token"`
			}
			if err := json.Unmarshal(c.Meridian, &tok); err != nil {
				return err
			}
			if tok.ID != nil {
				a.ids = append(a.ids, *tok.ID)
				a.text += string(tok.Bytes)
				if tok.Log != nil {
					a.logs = append(a.logs, *tok.Log)
				}
				return nil
			}
			if err := json.Unmarshal(c.Meridian, &a.node); err != nil {
				return err
			}
		}
		if c.Usage != nil {
			a.usage = *c.Usage
		}
		for _, o := range c.Choices {
			if o.Text != nil {
				a.text += *o.Text
			}
			if o.Delta != nil && o.Delta.Content != nil {
				a.text += *o.Delta.Content
			}
			if o.Delta != nil && o.Delta.ReasoningContent != nil {
				a.think += *o.Delta.ReasoningContent
			}
			if o.FinishReason != nil {
				a.finish = *o.FinishReason
			}
		}
		return nil
	})
	return a, err
}

func mustAsk(t *testing.T, n *pair.Node, hop bool, body map[string]any) answer {
	t.Helper()
	a, err := ask(t, n, hop, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// words is a prompt of about n tokens.
func words(n int, seed string) string {
	text := "The " + seed + " began like this."
	for i := range n / 9 {
		text += " In chapter " + string(rune('a'+i%26)) + " the " + seed + " went on and on,"
	}
	return text
}

// equal says where two answers differ in ids or log-probabilities: bit by bit.
func equal(a, b answer) string {
	if len(a.ids) == 0 || len(a.ids) != len(a.logs) {
		return fmt.Sprintf("%d ids and %d log-probabilities", len(a.ids), len(a.logs))
	}
	if !slices.Equal(a.ids, b.ids) {
		return fmt.Sprintf("ids %v and %v", a.ids, b.ids)
	}
	for i := range a.logs {
		if math.Float64bits(a.logs[i]) != math.Float64bits(b.logs[i]) {
			return fmt.Sprintf("log-probability %d: %v and %v", i, a.logs[i], b.logs[i])
		}
	}
	return ""
}

// The prompt goes through the model once, on the prefill node. What the decode
// node goes on with is bit-equal to the prefill node going on by itself.
func TestAPromptIsPrefilledOnOneNodeAndDecodedOnTheOther(t *testing.T) {
	p := startPair(t, nil)
	sizes := []int{50, 200, 331, 700}
	if os.Getenv("MERIDIAN_TEST_FULL") != "" {
		sizes = nil
		for n := 50; n <= 2000; n += 102 {
			sizes = append(sizes, n)
		}
	}
	for i, n := range sizes {
		body := map[string]any{"prompt": words(n, fmt.Sprintf("fox number %d", i)), "max_tokens": 12, "logprobs": 0}
		first := mustAsk(t, p.Decode, false, body)
		if first.node.Node != pair.Decode || first.node.Prefill != pair.Prefill || first.node.Computed != 0 || first.node.Pulled == 0 {
			t.Errorf("%d tokens: %+v; want them prefilled by %s and pulled", first.usage.PromptTokens, first.node, pair.Prefill)
		}
		if got, want := first.usage.PromptDetails.CachedTokens, first.usage.PromptTokens-1; got != want {
			t.Errorf("%d tokens: %d cached, want all but the last", first.usage.PromptTokens, got)
		}
		there, here := mustAsk(t, p.Decode, true, body), mustAsk(t, p.Prefill, true, body)
		if diff := equal(here, there); diff != "" {
			t.Errorf("%d tokens: %s", first.usage.PromptTokens, diff)
		}
		if first.text != there.text {
			t.Errorf("%d tokens: first %q, then %q", first.usage.PromptTokens, first.text, there.text)
		}
	}
}
