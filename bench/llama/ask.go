package llama

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"meridian/agent/llama/pair"
	"meridian/agent/openai"
)

// Answer is one request's tokens, and what the node said of it.
type Answer struct {
	Tokens []string // as bytes
	Logs   []float64
	Text   string

	TTFT     time.Duration // as the client saw it
	Total    time.Duration
	Prompt   int    // tokens
	Cached   int    // of them
	Computed int    // of them, by the node that decoded
	Pulled   uint64 // bytes
	Prefill  string // the node that computed what was missing
	Node     string // that decoded
}

// tokenRate is the tokens a second after the first.
func (a *Answer) tokenRate() float64 {
	if len(a.Tokens) < 2 || a.Total <= a.TTFT {
		return 0
	}
	return float64(len(a.Tokens)-1) / (a.Total - a.TTFT).Seconds()
}

// Differs says where two answers differ in tokens or log-probabilities, bit by bit;
// empty if nowhere.
func (a *Answer) Differs(b *Answer) string {
	if len(a.Tokens) == 0 {
		return "there is no token"
	}
	for i := range min(len(a.Tokens), len(b.Tokens)) {
		if a.Tokens[i] != b.Tokens[i] {
			return fmt.Sprintf("token %d is %q and %q", i, a.Tokens[i], b.Tokens[i])
		}
	}
	if len(a.Tokens) != len(b.Tokens) {
		return fmt.Sprintf("%d and %d tokens", len(a.Tokens), len(b.Tokens))
	}
	if !slices.EqualFunc(a.Logs, b.Logs, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }) {
		return "the tokens are equal, log-probabilities differ in the last bits"
	}
	return ""
}

// Request is what is asked.
type Request struct {
	Tokens []int32 // the prompt; or
	Text   string
	Max    int
	Alone  bool // the node neither hands over nor asks its partner
}

// ask sends a request to a node's front.
func ask(ctx context.Context, n *pair.Node, model string, q Request) (*Answer, error) {
	body := map[string]any{"model": model, "temperature": 0, "max_tokens": q.Max, "logprobs": 0, "stream": true,
		"stream_options": map[string]bool{"include_usage": true}}
	body["prompt"] = any(q.Tokens)
	if q.Tokens == nil {
		body["prompt"] = q.Text
	}
	a := new(Answer)
	began := time.Now()
	err := openai.NewClient(openai.ClientConfig{URL: n.URL}).Stream(ctx, openai.Call{Path: "/v1/completions", Body: body, Hop: q.Alone}, func(c *openai.Chunk) error {
		return a.chunk(c, began)
	})
	a.Total = time.Since(began)
	return a, err
}

func (a *Answer) chunk(c *openai.Chunk, began time.Time) error {
	if c.Usage != nil {
		a.Prompt, a.Cached = c.Usage.PromptTokens, c.Usage.PromptDetails.CachedTokens
	}
	var m struct {
		ID       *int32   `json:"token_id"`
		Bytes    []byte   `json:"bytes"`
		LogProb  *float64 `json:"logprob"`
		Computed int      `json:"prompt_computed"`
		Pulled   uint64   `json:"pulled_bytes"`
		Prefill  string   `json:"prefill"`
		Node     string   `json:"node"`
	}
	if len(c.Meridian) > 0 {
		if err := json.Unmarshal(c.Meridian, &m); err != nil {
			return err
		}
	}
	switch {
	case m.ID != nil:
		a.Tokens = append(a.Tokens, string(m.Bytes))
		a.Text += string(m.Bytes)
		if m.LogProb != nil {
			a.Logs = append(a.Logs, *m.LogProb)
		}
	case m.Node != "":
		a.Computed, a.Pulled, a.Prefill, a.Node = m.Computed, m.Pulled, m.Prefill, m.Node
	}
	text := ""
	for i := range c.Choices {
		if t := c.Choices[i].Text; t != nil {
			text += *t
		}
		if l := c.Choices[i].LogProbs; l != nil && m.ID == nil {
			a.Tokens = append(a.Tokens, l.Tokens...)
			for _, p := range l.TokenLogProbs {
				if p != nil {
					a.Logs = append(a.Logs, *p)
				}
			}
		}
	}
	if m.ID == nil {
		a.Text += text
	}
	if a.TTFT == 0 && (text != "" || m.ID != nil) {
		a.TTFT = time.Since(began)
	}
	return nil
}
