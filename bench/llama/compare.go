package llama

import (
	"context"
	"fmt"

	"meridian/agent/config"
	"meridian/agent/llama/pair"
)

// Comparison is one prompt by a pair, by its prefill node alone, and by a
// llama-server without Meridian.
type Comparison struct {
	Text  string       `json:"text"`
	Sides []Side       `json:"sides"`
	Equal []SideToSide `json:"equal"`
}

// Side is one way to answer.
type Side struct {
	Name       string  `json:"name"`
	TTFT       float64 `json:"ttft_seconds"`
	TokensRate float64 `json:"tokens_per_second"`
	Prompt     int     `json:"prompt_tokens"`
	Cached     int     `json:"cache_n"`
	Pulled     uint64  `json:"pulled_bytes"`
	Tokens     int     `json:"tokens"`
}

// SideToSide says whether two sides gave the same tokens.
type SideToSide struct {
	With    string `json:"with"`
	Differs string `json:"differs,omitempty"`
}

// noMeridian names the side of a llama-server without Meridian.
const noMeridian = "llama-server alone, cold"

// Compare answers a prompt in three ways, one after the other: so that none
// disturbs another.
func Compare(ctx context.Context, p *pair.Pair, o *pair.Options, prompt string, max int) (*Comparison, error) {
	raw, err := StartPlain(ctx, o)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	tokens, err := raw.API.Tokenize(ctx, prompt, true, true)
	if err != nil {
		return nil, err
	}
	split, err := ask(ctx, p.Decode, o.Name, Request{Tokens: tokens, Max: max})
	if err != nil {
		return nil, fmt.Errorf("with the split: %w", err)
	}
	alone, err := ask(ctx, p.Prefill, o.Name, Request{Tokens: tokens, Max: max, Alone: true})
	if err != nil {
		return nil, fmt.Errorf("by the prefill node: %w", err)
	}
	bare, _, err := raw.ask(ctx, tokens, max)
	if err != nil {
		return nil, fmt.Errorf("by llama-server alone: %w", err)
	}
	c := &Comparison{Text: split.Text, Sides: []Side{
		sideOf(split.where(), split),
		sideOf("the prefill node by itself", alone),
		sideOf(noMeridian, bare),
	}}
	c.Equal = []SideToSide{{"the prefill node by itself", alone.Differs(split)}, {noMeridian, bare.Differs(split)}}
	return c, nil
}

// where says which nodes did what.
func (a *Answer) where() string {
	if a.Prefill == "" || a.Prefill == "cache" {
		return "prompt cached, decode on " + a.Node
	}
	if a.Prefill == a.Node {
		return "no split: all on " + a.Node
	}
	return "prefill on " + a.Prefill + ", decode on " + a.Node
}

func sideOf(name string, a *Answer) Side {
	return Side{Name: name, TTFT: a.TTFT.Seconds(), TokensRate: a.tokenRate(), Prompt: a.Prompt, Cached: a.Cached, Pulled: a.Pulled, Tokens: len(a.Tokens)}
}

// Ask is one prompt with the split.
func Ask(ctx context.Context, p *pair.Pair, o *pair.Options, prompt string, max int) (*Comparison, error) {
	a, err := ask(ctx, p.Decode, o.Name, Request{Text: prompt, Max: max})
	if err != nil {
		return nil, err
	}
	return &Comparison{Text: a.Text, Sides: []Side{sideOf(a.where(), a)}}, nil
}

// Table is the comparison for people.
func (c *Comparison) Table() (head []string, rows [][]string, note string) {
	head = []string{"way", "TTFT", "tokens/s", "prompt", "cache_n", "pulled", "tokens"}
	for _, s := range c.Sides {
		rows = append(rows, []string{s.Name, short(s.TTFT), fmt.Sprintf("%.1f", s.TokensRate), fmt.Sprint(s.Prompt), fmt.Sprint(s.Cached), config.FormatBytes(s.Pulled), fmt.Sprint(s.Tokens)})
	}
	for _, e := range c.Equal {
		verdict := "tokens and log-probabilities are bit-equal"
		if e.Differs != "" {
			verdict = e.Differs
			if e.With == noMeridian {
				verdict += "; rare and no fault: a cold llama-server computes the last prompt token in another batch shape"
			}
		}
		note += "against " + e.With + ": " + verdict + "\n"
	}
	return head, rows, note
}
