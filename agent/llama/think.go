package llama

import (
	"slices"

	"meridian/agent/openai"
	"meridian/scheduler"
)

// thought follows one request's thinking: which of its tokens a reader sees as
// reasoning, when it has thought enough, and why.
type thought struct {
	ph    *phases
	marks *scheduler.Model
	id    scheduler.ID
	cap   int // the request's own bound of thinking tokens; 0: the scheduler's alone

	state  thinkState
	used   int     // thinking tokens, the end marker included
	inject []int32 // the end marker, when thinking is to end now
	why    string  // why that is so
	forced string  // why it was injected
	exited bool    // it ended before the request did
	held   []openai.Token
}

type thinkState uint8

const (
	seeking  thinkState = iota // nothing but a beginning of the start marker was decoded
	thinking                   // until the end marker
	answering
)

// follow starts with a prompt. A prompt whose last start marker comes after its
// last end marker leaves thinking open.
func (ph *phases) follow(m *scheduler.Model, prompt []int32, cap int) *thought {
	t := &thought{ph: ph, marks: m, cap: cap, id: ph.begin(m.Name, prompt)}
	switch {
	case len(m.Start) == 0:
		t.state = answering
	case lastIndex(prompt, m.Start) > lastIndex(prompt, m.End):
		t.state = thinking
	}
	return t
}

func lastIndex(s, sub []int32) int {
	if len(sub) == 0 {
		return -1
	}
	for i := len(s) - len(sub); i >= 0; i-- {
		if slices.Equal(s[i:i+len(sub)], sub) {
			return i
		}
	}
	return -1
}

// token takes one token in and returns those that a reader may see now: markers
// never, nor what may be the beginning of one.
func (t *thought) token(tok openai.Token) []openai.Token {
	was := t.state
	tok.Thinking = was == thinking
	if was == thinking {
		t.used++
	}
	t.apply(t.ph.step(scheduler.Input{Kind: scheduler.Tokens, ID: t.id, Tokens: []int32{tok.ID}}))
	all := append(t.held, tok)
	t.held = nil
	switch {
	case was == thinking:
		n := overlap(all, t.marks.End)
		if t.state == thinking {
			t.held = slices.Clone(all[len(all)-n:])
			if t.cap > 0 && t.used >= t.cap {
				t.force(t.marks.End, scheduler.HardCap)
			}
		}
		return all[:len(all)-n]
	case was == seeking && t.state == thinking:
		return nil // the start marker is whole
	case was == seeking && overlap(all, t.marks.Start) == len(all):
		t.held = all
		return nil
	case was == seeking:
		t.state = answering
	}
	return all
}

// overlap is the length of the longest end of s that begins the marker.
func overlap(s []openai.Token, marker []int32) int {
	for n := min(len(s), len(marker)); n > 0; n-- {
		same := true
		for i := range n {
			same = same && s[len(s)-n+i].ID == marker[i]
		}
		if same {
			return n
		}
	}
	return 0
}

// signal takes a probe in.
func (t *thought) signal(s scheduler.Signal) {
	t.apply(t.ph.step(scheduler.Input{Kind: scheduler.Probed, ID: t.id, Signal: s}))
}

func (t *thought) apply(events []scheduler.Event) {
	for i := range events {
		switch e := &events[i]; e.Kind {
		case scheduler.EnterThink:
			t.state = thinking
		case scheduler.ExitThink:
			t.state, t.exited = answering, true
		case scheduler.ForceBudget:
			t.force(e.Inject, e.Reason)
		}
	}
}

// force remembers the first reason to end the thinking.
func (t *thought) force(marker []int32, why scheduler.Reason) {
	if t.why == "" && len(marker) > 0 {
		t.inject, t.why = marker, why.String()
	}
}

// injected takes the marker that is to be appended now; nil if there is none.
func (t *thought) injected() []int32 {
	m := t.inject
	t.inject = nil
	if t.state != thinking {
		return nil // it ended by itself in the meantime
	}
	if m != nil {
		t.forced = t.why
	}
	return m
}

// rest returns what is still held at the end of the request.
func (t *thought) rest() []openai.Token {
	h := t.held
	t.held = nil
	return h
}

// end forgets the request.
func (t *thought) end() { t.ph.end(t.id) }

// next says how many tokens may be decoded before the thinking must be looked at
// again, at most n, and how many probabilities to ask for: not 0 for a probe.
func (t *thought) next(n int, c *Thinking) (tokens, probe int) {
	if c.Probe > 0 {
		every := int(c.Signals.ProbeInterval)
		if left := every - t.used%every; left == 1 {
			n, probe = 1, c.Probe
		} else {
			n = min(n, left-1)
		}
	}
	for _, limit := range []int{t.cap, int(c.Max)} {
		if limit > t.used {
			n = min(n, limit-t.used)
		}
	}
	return n, probe
}
