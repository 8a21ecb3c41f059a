package real

import (
	"fmt"
	"slices"
	"time"

	"meridian/agent/llama/pair"
	"meridian/bench/think"
)

// Arm is a node, and how it schedules.
type Arm struct {
	Name   string `json:"name"`
	Policy string `json:"policy,omitempty"` // scheduler.policy of a node that is started
	Front  string `json:"front,omitempty"`  // URL of a node that runs already, instead
}

// Options of a run.
type Options struct {
	Arms  []Arm        // the first is what the others are compared with
	Node  pair.Options // of the nodes that are started
	Token string       // bearer token of fronts that run already; empty: none

	Workload    think.Workload // lengths of prompts are in words; the ratio is of the background
	Interactive int            // clients at the same time
	Background  int            // likewise
	Requests    int            // of each client in a round
	Rounds      int
	Seed        uint64
	Storm       Storm

	FirstAnswer time.Duration // SLOs, as those of think.Options
	ThinkPace   time.Duration
	OutputPace  time.Duration
	Bound       time.Duration

	Within   time.Duration // bounds each half of what one arm does in a round
	Progress func(string)  // nil: nobody is told
}

// Storm is a stream into which long prompts come, once its first token is there. All of
// them are computed in every arm, if need be after the stream.
type Storm struct {
	Answer  int        `json:"answer_tokens"` // of the stream; 0: there is no storm
	Clients int        `json:"clients"`       // that send long prompts
	Prompts int        `json:"prompts"`       // of each client, one after the other
	Prompt  think.Span `json:"prompt_words"`
}

// Workload is small enough for a model on two processors.
func Workload() think.Workload {
	return think.Workload{
		Name: "llama", ReasoningRatio: 0.4,
		ChatPrompt: think.Span{Least: 20, Most: 60}, ChatAnswer: think.Span{Least: 24, Most: 48},
		Prompt: think.Span{Least: 50, Most: 150}, Think: think.Span{Least: 32, Most: 96}, Answer: think.Span{Least: 16, Most: 32},
	}
}

// Policies are those that are compared unless others are named.
func Policies() []string { return []string{"fcfs", "output-first"} }

// Defaults of Options but for the arms and their nodes. The SLOs are those of a model on
// two processors that eight requests share.
func Defaults() Options {
	return Options{
		Workload: Workload(), Interactive: 2, Background: 6, Requests: 2, Rounds: 5, Seed: 1,
		Storm:       Storm{Answer: 64, Clients: 2, Prompts: 6, Prompt: think.Span{Least: 200, Most: 300}},
		FirstAnswer: 5 * time.Second, ThinkPace: 400 * time.Millisecond, OutputPace: 200 * time.Millisecond, Bound: 400 * time.Millisecond,
		Within: 10 * time.Minute,
	}
}

// ArmsOf are arms of nodes that are started, one for each policy. A policy twice compares
// the machine with itself.
func ArmsOf(policies []string) (arms []Arm) {
	for i, p := range policies {
		name := p
		if slices.Contains(policies[:i], p) {
			name = fmt.Sprintf("%s#%d", p, i+1)
		}
		arms = append(arms, Arm{Name: name, Policy: p})
	}
	return arms
}

// Bounds of a run.
const (
	maxArms     = 8
	maxClients  = 64
	maxRequests = 1000
	maxRounds   = 100
)

// Check says which option cannot be.
func (o *Options) Check() error {
	w := &o.Workload
	switch {
	case len(o.Arms) == 0 || len(o.Arms) > maxArms:
		return fmt.Errorf("%d arms: from 1 to %d", len(o.Arms), maxArms)
	case o.Interactive < 1 || o.Background < 0 || o.Interactive+o.Background > maxClients:
		return fmt.Errorf("%d interactive and %d background clients: 1 and 0 at least, %d together at most", o.Interactive, o.Background, maxClients)
	case o.Requests < 1 || o.Requests > maxRequests:
		return fmt.Errorf("%d requests of each client: from 1 to %d", o.Requests, maxRequests)
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return fmt.Errorf("%d rounds: from 1 to %d", o.Rounds, maxRounds)
	case !(w.ReasoningRatio >= 0 && w.ReasoningRatio <= 1):
		return fmt.Errorf("a reasoning ratio of %v: it lies between 0 and 1", w.ReasoningRatio)
	case o.Storm.Answer < 0 || o.Storm.Answer > 0 && (o.Storm.Clients < 1 || o.Storm.Prompts < 1) || o.Storm.Clients > maxClients || o.Storm.Prompts > 1000:
		return fmt.Errorf("a storm of %d prompts of each of %d clients while %d tokens are answered", o.Storm.Prompts, o.Storm.Clients, o.Storm.Answer)
	case o.FirstAnswer <= 0 || o.ThinkPace <= 0 || o.OutputPace <= 0 || o.Bound <= o.OutputPace:
		return fmt.Errorf("SLOs of %v to the first answer, %v and %v a token, and a bound of %v: all are above 0, and the bound above the pace of output", o.FirstAnswer, o.ThinkPace, o.OutputPace, o.Bound)
	case o.Within <= 0:
		return fmt.Errorf("%v for an arm's part of a round: it must be above 0", o.Within)
	}
	for i, a := range o.Arms {
		if a.Name == "" || slices.ContainsFunc(o.Arms[:i], func(b Arm) bool { return b.Name == a.Name }) {
			return fmt.Errorf("arm %d is called %q: each has a name of its own", i+1, a.Name)
		}
	}
	for _, s := range []struct {
		name string
		span think.Span
	}{{"chat prompts", w.ChatPrompt}, {"chat answers", w.ChatAnswer}, {"reasoning prompts", w.Prompt}, {"thinking", w.Think}, {"answers", w.Answer}, {"prompts of the storm", o.Storm.Prompt}} {
		if s.span.Least < 1 || s.span.Most < s.span.Least {
			return fmt.Errorf("%s of %d to %d: 1 at least", s.name, s.span.Least, s.span.Most)
		}
	}
	if longest, most := o.longest(), o.Node.Context; o.starts() && longest > most {
		return fmt.Errorf("a request may have %d tokens, a slot has %d", longest, most)
	}
	return nil
}

// starts says whether any node is started here.
func (o *Options) starts() bool {
	return slices.ContainsFunc(o.Arms, func(a Arm) bool { return a.Front == "" })
}

// longest is how many tokens a request may have, the template's with it. A word may be two
// tokens.
func (o *Options) longest() int {
	const template, tokensAWord = 64, 2
	w := &o.Workload
	return template + max(tokensAWord*w.ChatPrompt.Most+w.ChatAnswer.Most, tokensAWord*w.Prompt.Most+w.Think.Most+w.Answer.Most+markerRoom, tokensAWord*o.Storm.Prompt.Most+1)
}
