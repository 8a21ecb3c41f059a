package llama

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"meridian/agent/config"
	"meridian/agent/llama/pair"
	"meridian/bench/measure"
)

// Options of a run.
type Options struct {
	Pair     pair.Options
	Prompts  int          // of the equality check
	Longest  int          // tokens of the longest of them
	Rounds   int          // of the time to first token
	Progress func(string) // what is measured now
}

// Defaults.
const (
	DefaultPrompts = 20
	DefaultLongest = 2000
	DefaultRounds  = 5

	shortest   = 50 // tokens
	answerLen  = 16 // tokens
	longPrompt = 1000
	steps      = 8
	stepPrompt = 200 // tokens of the first step
	stepInput  = 60  // tokens that each further step brings
	system     = 500
)

// Report is what a run measured.
type Report struct {
	Machine string `json:"machine"`
	Server  string `json:"llama_server_build"`
	Model   string `json:"model"`

	Equal []Equality `json:"equality"`
	First FirstToken `json:"first_token"`
	Chain Chain      `json:"agent_chain"`
	User  SecondUser `json:"second_user"`
}

// Equality compares the decode node's answer with the prefill node going on by
// itself.
type Equality struct {
	Prompt  int    `json:"prompt_tokens"`
	Cached  int    `json:"cached_tokens"` // at the decode node
	Pulled  uint64 `json:"pulled_bytes"`
	Differs string `json:"differs,omitempty"`
}

// FirstToken is the time to the first token of a long prompt.
type FirstToken struct {
	Prompt int     `json:"prompt_tokens"`
	Cold   float64 `json:"computed_seconds"` // by the decode node's own model
	Warm   float64 `json:"pulled_seconds"`   // its blocks were at the prefill node
	Pulled uint64  `json:"pulled_bytes"`
}

// Ratio is how many times faster the first token comes.
func (f FirstToken) Ratio() float64 {
	if f.Warm == 0 {
		return 0
	}
	return f.Cold / f.Warm
}

// Chain is an agent's steps, each on the other node than the one before, over the
// whole history.
type Chain struct {
	Steps    int   `json:"steps"`
	Prompt   []int `json:"prompt_tokens"`
	With     []int `json:"computed_with"`    // prompt tokens that went through a model
	Without  []int `json:"computed_without"` // the same steps between two servers as they are
	Computed struct {
		With    int `json:"with"`
		Without int `json:"without"`
	} `json:"computed"`
}

// SecondUser asks the other node with the system prompt of the first.
type SecondUser struct {
	System   int    `json:"system_tokens"`
	Prompt   int    `json:"prompt_tokens"`
	Cached   int    `json:"cached_tokens"`
	Computed int    `json:"computed_tokens"`
	Pulled   uint64 `json:"pulled_bytes"`
}

// runner is one run.
type runner struct {
	opt Options
	p   *pair.Pair
	raw *Plain // the tokenizer, and the server without Meridian
}

// Run starts a pair and plain servers, and measures.
func Run(ctx context.Context, opt Options) (rep Report, err error) {
	if opt.Progress == nil {
		opt.Progress = func(string) {}
	}
	opt.Progress("starting two nodes and a llama-server of their own kind")
	r := &runner{opt: opt}
	if r.raw, err = StartPlain(ctx, &opt.Pair); err != nil {
		return rep, err
	}
	defer r.raw.Close()
	if r.p, err = pair.Start(ctx, opt.Pair); err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, r.p.Close()) }()
	rep.Machine, _ = measure.Machine()
	rep.Model = opt.Pair.Name
	props, err := r.raw.API.Props(ctx)
	if err != nil {
		return rep, err
	}
	rep.Server = props.Build
	for _, step := range []struct {
		name string
		f    func(context.Context, *Report) error
	}{
		{"equality of what is decoded", r.equality},
		{"time to the first token", r.firstToken},
		{"an agent's steps", r.chain},
		{"a second user", r.secondUser},
	} {
		opt.Progress(step.name)
		if err := step.f(ctx, &rep); err != nil {
			return rep, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return rep, nil
}

// prompt makes n tokens of a text that no other seed shares.
func (r *runner) prompt(ctx context.Context, n int, seed string) ([]int32, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "Report %s.", seed)
	for i := 0; b.Len() < 8*n; i++ {
		fmt.Fprintf(&b, " Day %d at station %s: the wind was %d, the sea calm, and the keeper wrote about %s.", i+1, seed, (i*7+len(seed))%40, topics[i%len(topics)])
	}
	tokens, err := r.raw.API.Tokenize(ctx, b.String(), true, false)
	if err == nil && len(tokens) < n {
		err = fmt.Errorf("the tokenizer made %d tokens of %d bytes, wanted %d", len(tokens), b.Len(), n)
	}
	if err != nil {
		return nil, err
	}
	return tokens[:n], nil
}

var topics = []string{"ships", "birds", "the lamp", "letters from home", "the price of oil", "a storm long ago", "his garden"}

func (r *runner) ask(ctx context.Context, n *pair.Node, tokens []int32, max int, alone bool) (*Answer, error) {
	return ask(ctx, n, r.opt.Pair.Name, Request{Tokens: tokens, Max: max, Alone: alone})
}

func (r *runner) equality(ctx context.Context, rep *Report) error {
	for i := range r.opt.Prompts {
		n := shortest
		if r.opt.Prompts > 1 {
			n += i * (r.opt.Longest - shortest) / (r.opt.Prompts - 1)
		}
		tokens, err := r.prompt(ctx, n, fmt.Sprintf("E%d", i))
		if err != nil {
			return err
		}
		there, err := r.ask(ctx, r.p.Decode, tokens, answerLen, false)
		if err != nil {
			return err
		}
		here, err := r.ask(ctx, r.p.Prefill, tokens, answerLen, true)
		if err != nil {
			return err
		}
		rep.Equal = append(rep.Equal, Equality{Prompt: n, Cached: there.Cached, Pulled: there.Pulled, Differs: here.Differs(there)})
	}
	return nil
}

func (r *runner) firstToken(ctx context.Context, rep *Report) error {
	var cold, warm []float64
	f := FirstToken{Prompt: longPrompt}
	for i := range r.opt.Rounds {
		tokens, err := r.prompt(ctx, longPrompt, fmt.Sprintf("C%d", i))
		if err != nil {
			return err
		}
		a, err := r.ask(ctx, r.p.Decode, tokens, 1, true)
		if err != nil {
			return err
		}
		if a.Cached >= longPrompt/2 {
			return fmt.Errorf("a prompt that should be new had %d of %d tokens cached", a.Cached, longPrompt)
		}
		cold = append(cold, a.TTFT.Seconds())
		if tokens, err = r.prompt(ctx, longPrompt, fmt.Sprintf("W%d", i)); err != nil {
			return err
		}
		if _, err = r.ask(ctx, r.p.Prefill, tokens, 1, true); err != nil {
			return err
		}
		b, err := r.ask(ctx, r.p.Decode, tokens, 1, false)
		if err != nil {
			return err
		}
		if b.Computed > 0 || b.Pulled == 0 {
			return fmt.Errorf("the decode node computed %d tokens and pulled %d bytes of a prompt whose blocks the prefill node has", b.Computed, b.Pulled)
		}
		warm, f.Pulled = append(warm, b.TTFT.Seconds()), b.Pulled
	}
	f.Cold, f.Warm = measure.Median(cold), measure.Median(warm)
	rep.First = f
	return nil
}

func (r *runner) chain(ctx context.Context, rep *Report) error {
	other, err := StartPlain(ctx, &r.opt.Pair)
	if err != nil {
		return err
	}
	defer other.Close()
	history, err := r.prompt(ctx, stepPrompt, "A")
	if err != nil {
		return err
	}
	c := Chain{Steps: steps}
	for i := range steps {
		if i > 0 {
			input, err := r.prompt(ctx, stepInput, fmt.Sprintf("A%d", i))
			if err != nil {
				return err
			}
			history = append(history, input...)
		}
		node, server := r.p.Prefill, r.raw
		if i%2 == 1 {
			node, server = r.p.Decode, other
		}
		a, err := r.ask(ctx, node, history, answerLen, true)
		if err != nil {
			return err
		}
		b, ids, err := server.ask(ctx, history, answerLen)
		if err != nil {
			return err
		}
		c.Prompt, c.With, c.Without = append(c.Prompt, len(history)), append(c.With, a.Computed), append(c.Without, b.Computed)
		c.Computed.With += a.Computed
		c.Computed.Without += b.Computed
		// Both go on with the same history, that of the server without Meridian.
		history = append(history, ids...)
	}
	rep.Chain = c
	return nil
}

func (r *runner) secondUser(ctx context.Context, rep *Report) error {
	first, err := r.prompt(ctx, system, "S")
	if err != nil {
		return err
	}
	var last *Answer
	var n int
	for i, node := range []*pair.Node{r.p.Decode, r.p.Prefill} {
		own, err := r.prompt(ctx, stepInput, fmt.Sprintf("U%d", i))
		if err != nil {
			return err
		}
		tokens := append(slices.Clone(first), own...)
		if last, err = r.ask(ctx, node, tokens, answerLen, true); err != nil {
			return err
		}
		n = len(tokens)
	}
	rep.User = SecondUser{System: system, Prompt: n, Cached: last.Cached, Computed: last.Computed, Pulled: last.Pulled}
	return nil
}

// Err says what the run found wrong: a run that moved nothing, or other tokens.
func (rep Report) Err() error {
	var errs []error
	for _, e := range rep.Equal {
		if e.Differs != "" {
			errs = append(errs, fmt.Errorf("prompt of %d tokens: %s", e.Prompt, e.Differs))
		}
		if e.Pulled == 0 {
			errs = append(errs, fmt.Errorf("prompt of %d tokens: no byte was pulled", e.Prompt))
		}
	}
	return errors.Join(errs...)
}

// Rows is the report for people.
func (rep Report) Rows() [][]string {
	equal, full := 0, 0
	pulled := uint64(0)
	for _, e := range rep.Equal {
		if e.Differs == "" {
			equal++
		}
		if e.Cached == e.Prompt-1 {
			full++
		}
		pulled += e.Pulled
	}
	rows := [][]string{
		{"equality", fmt.Sprintf("%d of %d prompts of %d to %d tokens: tokens and log-probabilities bit-equal to the prefill node going on by itself", equal, len(rep.Equal), rep.Equal[0].Prompt, rep.Equal[len(rep.Equal)-1].Prompt)},
		{"cache_n = N-1", fmt.Sprintf("%d of %d; %s pulled", full, len(rep.Equal), config.FormatBytes(pulled))},
		{"time to first token", fmt.Sprintf("%s with %s of blocks at the prefill node, %s computed: %.0f times, %d tokens",
			short(rep.First.Warm), config.FormatBytes(rep.First.Pulled), short(rep.First.Cold), rep.First.Ratio(), rep.First.Prompt)},
		{fmt.Sprintf("%d agent steps", rep.Chain.Steps), fmt.Sprintf("%d prompt tokens computed with Meridian %v", rep.Chain.Computed.With, rep.Chain.With)},
		{"", fmt.Sprintf("%d without %v", rep.Chain.Computed.Without, rep.Chain.Without)},
		{"second user", fmt.Sprintf("%d of %d tokens from the cache, %d computed, at the other node (%s pulled); the system prompt has %d",
			rep.User.Cached, rep.User.Prompt, rep.User.Computed, config.FormatBytes(rep.User.Pulled), rep.User.System)},
	}
	return rows
}

func short(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Microsecond).String()
}

// Note says on what it was measured.
func (rep Report) Note() string {
	return fmt.Sprintf("%s; llama-server %s, model %s", rep.Machine, rep.Server, rep.Model)
}
