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
	Name           string   `json:"name"`
	ReasoningRatio float64  `json:"reasoning_ratio"`
	ChatPrompt     Span     `json:"chat_prompt"`
	ChatAnswer     Span     `json:"chat_answer"`
	Prompt         Span     `json:"reasoning_prompt"`
	Think          Span     `json:"reasoning_think"`
	Answer         Span     `json:"reasoning_answer"`
	Dataset        *Dataset `json:"dataset,omitempty"` // in place of the spans that it has something of
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

// Of makes a workload of a data set: sharegpt's are the chat, math500's what is reasoned
// about, and of fast25's requests a share thinks before it answers. No data set says how
// long: thinking is drawn as in the reference workload, and so is what it has nothing of.
func Of(d *Dataset) Workload {
	w := Reference()
	w.Name, w.Dataset = d.Kind, d
	return w
}

// chats and thinkers say which requests are the data set's.
func (w *Workload) chats() bool    { return w.Dataset != nil && w.Dataset.Kind != Math500 }
func (w *Workload) thinkers() bool { return w.Dataset != nil && w.Dataset.Kind != ShareGPT }

func (w *Workload) check() error {
	if !(w.ReasoningRatio >= 0 && w.ReasoningRatio <= 1) {
		return fmt.Errorf("a reasoning ratio of %v: it lies between 0 and 1", w.ReasoningRatio)
	}
	if d := w.Dataset; d != nil && (d.Kind == ShareGPT && w.ReasoningRatio == 1 || d.Kind == Math500 && w.ReasoningRatio == 0) {
		return fmt.Errorf("a reasoning ratio of %v: no request would be of the data set, %s", w.ReasoningRatio, d.Kind)
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
	chat, thinker := w.ChatPrompt.Most+w.ChatAnswer.Most, w.Prompt.Most+w.Answer.Most
	if w.chats() {
		chat = w.Dataset.most()
	}
	if w.thinkers() {
		thinker = w.Dataset.most()
	}
	switch {
	case w.ReasoningRatio == 0:
		return chat
	case w.ReasoningRatio == 1:
		return thinker + w.Think.Most
	}
	return max(chat, thinker+w.Think.Most)
}

// fits says which request a cache of so many tokens cannot hold.
func (w *Workload) fits(cache int) error {
	if w.Dataset != nil {
		think := 0
		if w.thinkers() && w.ReasoningRatio > 0 {
			think = w.Think.Most
		}
		if err := w.Dataset.fits(think, cache); err != nil {
			return err
		}
	}
	if n := w.longest(); n >= cache {
		return fmt.Errorf("a request may have %d tokens, the cache has %d", n, cache)
	}
	return nil
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
	return w.drawUntil(seed, n, 0, rate)
}

// drawUntil makes those that come until then, and at most n; until 0 is no bound.
func (w *Workload) drawUntil(seed uint64, n int, until time.Duration, rate float64) []arrival {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []arrival
	if until == 0 {
		all = make([]arrival, 0, n)
	}
	next := w.times(r)
	for len(all) < n {
		at, row := next()
		a := arrival{at: time.Duration(at / rate * float64(time.Second))}
		if until > 0 && a.at > until {
			break
		}
		thinks := r.Float64() < w.ReasoningRatio
		switch {
		case thinks && w.thinkers(), !thinks && w.chats():
			if w.Dataset.Kind != Fast25 {
				row = r.IntN(len(w.Dataset.rows))
			}
			q := &w.Dataset.rows[row]
			a.prompt, a.answer, a.content = q.prompt, q.answer, q.content
			if thinks {
				a.think = w.Think.draw(r)
			}
		case thinks:
			a.prompt, a.think, a.answer = w.Prompt.draw(r), w.Think.draw(r), w.Answer.draw(r)
		default:
			a.prompt, a.answer = w.ChatPrompt.draw(r), w.ChatAnswer.draw(r)
		}
		all = append(all, a)
	}
	return all
}

// times are those of arrivals at one a second, with the entry of a trace that each is:
// Poisson's, or those of the trace from a place of the seed's on, and round.
func (w *Workload) times(r *rand.Rand) func() (at float64, row int) {
	at := 0.0
	if w.Dataset == nil || w.Dataset.Kind != Fast25 {
		return func() (float64, int) {
			at += r.ExpFloat64()
			return at, 0
		}
	}
	rows, span := w.Dataset.rows, w.Dataset.span
	second := float64(len(rows)) / float64(span) // requests in a nanosecond
	k := r.IntN(len(rows))
	from := rows[k].at
	return func() (float64, int) {
		if k == len(rows) {
			k, from = 0, from-span // the trace begins again
		}
		k++
		return float64(rows[k-1].at-from) * second, k - 1
	}
}
