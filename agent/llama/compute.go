package llama

import (
	"context"
	"time"

	"meridian/adapters/llamacpp"
)

// compute runs what the slot lacks through the model, and keeps the new blocks.
func (j *job) compute(ctx context.Context) error {
	held := min(j.held(), j.prompt-1)
	for at := held; at < j.prompt; {
		to := j.prompt
		if j.forPartner() {
			to = at + j.n.work.size(j.prompt-at)
		}
		done, err := j.computeTo(ctx, at, to)
		if err != nil {
			j.slot.cached = j.slot.cached[:0] // llama-server may have got anywhere
			return err
		}
		if at == held {
			j.cached = done.Cached
			j.verify(held, done.Cached)
		}
		j.computed += done.Computed
		j.n.stats.computedTokens.Add(uint64(done.Computed))
		j.slot.cached = append(j.slot.cached[:0], j.tokens[:to]...)
		at = to
	}
	if j.prefill == "" || j.computed > j.n.cfg.Remote {
		j.prefill = j.n.cfg.Agent
	}
	j.keepPrompt(ctx)
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
