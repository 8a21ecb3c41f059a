package llama

import (
	"context"

	"meridian/agent/openai"
	"meridian/scheduler"
)

// thought follows one request's thinking: which of its tokens a reader sees as
// reasoning, when it has thought enough, and why. What the scheduler's Watch
// holds back, the daemon is not told either, since a marker in other tokens than
// its own must be told by its own.
type thought struct {
	*scheduler.Watch[openai.Token]
	untold []int32
}

// follow starts with a request's prompt.
func (s *server) follow(p *prompt, c *Config) *thought {
	return &thought{Watch: scheduler.NewWatch[openai.Token](s.models, scheduler.WatchOptions{
		Model: c.Name, Open: p.open, Budget: p.budget, MaxThink: c.Thinking.Max, Signals: s.rules,
	})}
}

// token takes one token in, and returns what a reader may see now and what the
// daemon is to be told.
func (t *thought) token(tok openai.Token, m *scheduler.Model) (show []openai.Token, tell []int32) {
	opened, closed := t.Opened(), t.Closed()
	show = shown(t.Token(tok, tok.ID, tok.Bytes))
	t.untold = append(t.untold, tok.ID)
	if t.Opened() != opened {
		tell, t.untold = append(tell, m.Start...), t.untold[:0]
	}
	if t.Closed() != closed {
		tell, t.untold = append(tell, m.End...), t.untold[:0]
	}
	if !t.Holds() {
		tell, t.untold = append(tell, t.untold...), t.untold[:0]
	}
	return show, tell
}

// shown are pieces as tokens. A token's probability goes with its first piece.
func shown(pieces []scheduler.Piece[openai.Token]) []openai.Token {
	out := make([]openai.Token, 0, len(pieces))
	for _, p := range pieces {
		t := p.Token
		t.Bytes, t.Thinking = p.Text, p.Think
		if !p.First {
			t.HasLogProb, t.Top = false, nil
		}
		out = append(out, t)
	}
	return out
}

// next says how many tokens may be decoded before the thinking must be looked at
// again, at most n, and how many probabilities to ask for: not 0 for a probe.
func (t *thought) next(n int, c *Thinking) (tokens, probe int) {
	n = min(n, max(t.Left(), 1))
	if c.Probe == 0 || t.Phase() == scheduler.OutputDecode {
		return n, 0
	}
	every := int(c.Signals.ProbeInterval)
	switch left := every - t.Used()%every; {
	case t.Phase() == scheduler.Prefill:
		return min(n, max(every-1, 1)), 0
	case left == 1:
		return 1, c.Probe
	default:
		return min(n, left-1), 0
	}
}

// forced is why the node ended the thinking; empty: it did not.
func (t *thought) forced() string {
	if why := t.Forced(); why != scheduler.NoReason {
		return why.String()
	}
	return ""
}

// force ends the thinking where the scheduler wants that: it appends the end
// marker, or what the model has left out of it, if there is room for so many
// tokens.
func (j *job) force(ctx context.Context, room int, emit func(openai.Token) error) error {
	f, ok := j.think.Force()
	if !ok {
		return nil
	}
	for _, t := range shown(f.Shown) {
		if err := j.give(t, emit); err != nil {
			return err
		}
	}
	ids := f.IDs
	if ids == nil {
		var err error
		if ids, err = j.s.api.Tokenize(ctx, f.Text, false, true); err != nil {
			return err
		}
	}
	j.n.stats.force(f.Reason.String())
	j.n.log.Info("thinking was ended", "request", j.r.ID, "reason", f.Reason, "thinking_tokens", j.think.Used())
	if len(ids) > room { // the request ends here, within its thinking
		ids = ids[:max(room, 0)]
	}
	j.tokens = append(j.tokens, ids...)
	j.think.untold = j.think.untold[:0]
	j.part = j.part[:0] // what it thought last may be part of a character, which nothing completes
	j.tell(j.s.marks.End)
	return nil
}
