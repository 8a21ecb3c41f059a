package llama_test

import (
	"context"
	"testing"
	"time"

	"meridian/agent/llama/pair"
	"meridian/bench/llama"
	"meridian/internal/invariants/leak"
	"meridian/internal/realpart/llamanode"
)

func TestMain(m *testing.M) {
	llamanode.Play()
	leak.Main(m)
}

// What the benchmark claims, with fewer prompts: that the answers are equal, that
// steps between nodes compute less, and that a second user finds the first one's
// prompt.
func TestWhatASplitSavesIsMeasuredOnTheRealModel(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	rep, err := llama.Run(ctx, llama.Options{Pair: llamanode.Options(t), Prompts: 3, Longest: 300, Rounds: 1, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rep.Rows() {
		t.Log(row)
	}
	if err := rep.Err(); err != nil {
		t.Error(err)
	}
	for _, e := range rep.Equal {
		if e.Cached != e.Prompt-1 {
			t.Errorf("prompt of %d: %d cached", e.Prompt, e.Cached)
		}
	}
	if c := rep.Chain.Computed; c.With == 0 || c.With*10 > c.Without*8 {
		t.Errorf("an agent's steps computed %d tokens with and %d without", c.With, c.Without)
	}
	if u := rep.User; u.Cached < u.System-16 || u.Pulled == 0 {
		t.Errorf("second user: %+v", u)
	}
}

func TestAPromptIsComparedWithTheNodeAloneAndWithABareServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	o := llamanode.Options(t)
	p, err := pair.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	prompt := "The lighthouse keeper wrote a letter to his sister about the storm, the ships, the birds and the lamp that had gone out in the night before the harbour was full of boats and of men who sang."
	c, err := llama.Compare(ctx, p, &o, prompt, 12)
	if err != nil {
		t.Fatal(err)
	}
	if c.Equal[0].Differs != "" {
		t.Errorf("against the prefill node by itself: %s", c.Equal[0].Differs)
	}
	if s := c.Sides[0]; s.Pulled == 0 || s.Cached != s.Prompt-1 || s.Tokens != 12 || s.TTFT <= 0 || s.TokensRate <= 0 {
		t.Errorf("with the split: %+v", s)
	}
	if s := c.Sides[2]; s.Cached != 0 || s.Pulled != 0 || s.Tokens != 12 {
		t.Errorf("without Meridian: %+v", s)
	}
}
