package llama_test

import (
	"context"
	"encoding/json"
	"math"
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
				ID  *int32   `json:"token_id"`
				Log *float64 `json:"logprob"`
			}
			if err := json.Unmarshal(c.Meridian, &tok); err != nil {
				return err
			}
			if tok.ID != nil {
				a.ids = append(a.ids, *tok.ID)
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
			if o.LogProbs != nil {
				for _, p := range o.LogProbs.TokenLogProbs {
					if p == nil {
						a.logs = append(a.logs, math.NaN())
					} else {
						a.logs = append(a.logs, *p)
					}
				}
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

func TestAPromptIsPrefilledOnOneNodeAndDecodedOnTheOther(t *testing.T) {
	p := startPair(t, nil)
	prompt := words(200, "fox")
	b := mustAsk(t, p.Decode, false, map[string]any{"prompt": prompt, "max_tokens": 24, "logprobs": 0})
	a := mustAsk(t, p.Prefill, true, map[string]any{"prompt": prompt, "max_tokens": 24, "logprobs": 0})
	t.Logf("decode: %+v", b)
	t.Logf("prefill alone: %+v", a)
}
