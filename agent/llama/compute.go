package llama

import (
	"context"
	"errors"
	"time"

	"meridian/adapters/llamacpp"
)

// compute runs what the slot lacks of the prompt through the model, and keeps the new
// blocks.
func (j *job) compute(ctx context.Context) error {
	if err := j.computeFrom(ctx, min(j.held(), j.prompt-1), j.prompt); err != nil {
		return err
	}
	if j.prefill == "" || j.computed > j.n.cfg.Remote {
		j.prefill = j.n.cfg.Agent
	}
	j.keepPrompt(ctx)
	return nil
}

// computeFrom has the slot hold the first n tokens; it holds held of them. It goes in
// pieces, as the scheduler says.
func (j *job) computeFrom(ctx context.Context, held, n int) error {
	first := true
	for at := held; at < n; {
		tokens, err := j.turn.ask(ctx, toPrefill, n-at, j.s.proc.Gone)
		if errors.Is(err, errLeave) {
			if err := j.leave(ctx); err != nil {
				return err
			}
			return j.bringBack(ctx, n)
		}
		if err != nil {
			return err
		}
		if j.forPartner() {
			tokens = min(tokens, j.n.work.size(n-at))
		}
		done, err := j.computeTo(ctx, at, at+tokens)
		if err != nil {
			j.slot.cached = j.slot.cached[:0] // llama-server may have got anywhere
			return err
		}
		if first {
			first = false
			if j.computed == 0 && j.drawn == 0 {
				j.cached = done.Cached
			}
			j.verify(held, done.Cached)
		}
		if j.drawn == 0 {
			j.computed += done.Computed
		}
		j.n.stats.computedTokens.Add(uint64(done.Computed))
		at += tokens
		j.slot.cached = append(j.slot.cached[:0], j.tokens[:at]...)
		j.turn.ran(tokens, 0, j.turn.phase)
	}
	j.turn.filled(n)
	return nil
}

// forPartner says whether another node waits for this job.
func (j *job) forPartner() bool { return j.r == nil || j.r.Hop }

// computeTo has the slot hold the first to tokens; it holds at of them. What the
// server says of its progress measures its pace, and shows that it works.
func (j *job) computeTo(ctx context.Context, at, to int) (llamacpp.Done, error) {
	w := &j.n.work
	s := w.begin(w.prompt(to - at))
	defer s.end()
	since, have := time.Now(), at
	return j.s.api.Prefill(ctx, llamacpp.Completion{Prompt: j.tokens[:to], Slot: j.slot.id}, func(n int) {
		n = min(n, to)
		w.measured(n-have, time.Since(since))
		since, have = time.Now(), n
		s.next(w.prompt(to - have))
	})
}
