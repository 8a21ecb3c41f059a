package think

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Span is an even distribution of lengths in tokens, both ends included.
type Span struct {
	Least int `json:"least"`
	Most  int `json:"most"`
}

func (s Span) draw(r *rand.Rand) int { return s.Least + r.IntN(s.Most-s.Least+1) }

func (s Span) check(name string, least int) error {
	if s.Least < least || s.Most < s.Least || s.Most > 1<<20 {
		return fmt.Errorf("%s of %d to %d tokens: at least %d, at most %d", name, s.Least, s.Most, least, 1<<20)
	}
	return nil
}

// Workload is who asks for what. Arrivals are Poisson.
type Workload struct {
	Name           string  `json:"name"`
	ReasoningRatio float64 `json:"reasoning_ratio"`
	ChatPrompt     Span    `json:"chat_prompt"`
	ChatAnswer     Span    `json:"chat_answer"`
	Prompt         Span    `json:"reasoning_prompt"`
	Think          Span    `json:"reasoning_think"`
	Answer         Span    `json:"reasoning_answer"`
}

// Reference is the workload of ADR-0005: chat that should never stutter, beside reasoning.
func Reference() Workload {
	return Workload{
		Name: "reference", ReasoningRatio: 0.4,
		ChatPrompt: Span{50, 800}, ChatAnswer: Span{40, 240},
		Prompt: Span{100, 500}, Think: Span{600, 6000}, Answer: Span{60, 400},
	}
}

// AnswerHeavy thinks little and answers at length.
func AnswerHeavy() Workload {
	w := Reference()
	w.Name = "answer-heavy"
	w.Think, w.Answer = Span{200, 1500}, Span{300, 1500}
	return w
}

func (w *Workload) check() error {
	if !(w.ReasoningRatio >= 0 && w.ReasoningRatio <= 1) {
		return fmt.Errorf("a reasoning ratio of %v: it lies between 0 and 1", w.ReasoningRatio)
	}
	for _, s := range []struct {
		name  string
		span  Span
		least int
	}{{"chat prompts", w.ChatPrompt, 1}, {"chat answers", w.ChatAnswer, 1}, {"reasoning prompts", w.Prompt, 1}, {"thinking", w.Think, 1}, {"answers", w.Answer, 1}} {
		if err := s.span.check(s.name, s.least); err != nil {
			return err
		}
	}
	return nil
}

// longest is how many tokens a request may have.
func (w *Workload) longest() int {
	return max(w.ChatPrompt.Most+w.ChatAnswer.Most, w.Prompt.Most+w.Think.Most+w.Answer.Most)
}

// arrival is a request of the workload: how long each part will be is the request's own
// affair, so that every arm decodes the same tokens.
type arrival struct {
	at                    time.Duration
	prompt, think, answer int
	content               []int // what the prompt says, by number: trace.BlockTokens tokens each; nil: what no other says
}

// draw makes n requests at a rate a second. The same seed gives the same requests at any
// rate, closer together or further apart.
func (w *Workload) draw(seed uint64, n int, rate float64) []arrival {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]arrival, n)
	at := 0.0
	for i := range all {
		at += r.ExpFloat64() / rate
		a := arrival{at: time.Duration(at * float64(time.Second))}
		if r.Float64() < w.ReasoningRatio {
			a.prompt, a.think, a.answer = w.Prompt.draw(r), w.Think.draw(r), w.Answer.draw(r)
		} else {
			a.prompt, a.answer = w.ChatPrompt.draw(r), w.ChatAnswer.draw(r)
		}
		all[i] = a
	}
	return all
}
