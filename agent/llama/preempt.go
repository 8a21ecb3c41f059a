package llama

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"meridian/agent/openai"
)

// A request that is preempted has its KV stored as blocks of the daemon, the short one
// at the end too, and takes them back into whatever slot it gets: states of its own
// would need a bound of their own, and nobody else could read them. What the daemon has
// evicted meanwhile is computed anew. Where its slot is free again before another has
// used it, nothing is read.

// awaitTurn waits until the job may decode, and for how many tokens. It gives the slot
// up and takes another as the scheduler says.
func (j *job) awaitTurn(ctx context.Context) (tokens int, err error) {
	for {
		n, err := j.turn.ask(ctx, toDecode, j.n.cfg.Quantum, j.s.proc.Gone)
		if !errors.Is(err, errLeave) {
			return n, err
		}
		j.remember()
		if err := j.leave(ctx); err != nil {
			return 0, err
		}
		if err := j.bringBack(ctx, len(j.tokens)-1); err != nil {
			return 0, err
		}
	}
}

// leave stores what the slot holds of the job, and waits for another slot.
func (j *job) leave(ctx context.Context) error {
	n := j.held()
	first, err := j.missing(ctx, j.keys(n, true))
	if err == nil && first >= 0 && n > 0 {
		err = j.save(ctx, n, first, j.tier(), true)
	}
	if err != nil && ctx.Err() == nil {
		j.n.log.Warn("the KV of a preempted request was not kept, and is computed anew", "tokens", n, "err", err)
	}
	j.slot = nil
	err = j.turn.leave(ctx, j.tokens, j.s.proc.Gone)
	j.slot = j.turn.slot
	return err
}

// bringBack has the slot hold the first n tokens again, once the job has one.
func (j *job) bringBack(ctx context.Context, n int) error {
	j.verified, j.expect = false, min(n, len(j.tokens)-1)
	held := min(j.held(), n)
	if held < n {
		if found := min(j.find(ctx, n), n); found > held {
			held = j.restore(ctx, found)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if held < n {
		return j.computeFrom(ctx, held, n)
	}
	j.turn.filled(n)
	return nil
}

// unreadTime is how long the client of a request in the background may leave a token
// unread once another request is to have the slot.
const unreadTime = time.Second

// show emits a token. A client that does not read keeps it from its next boundary, where a
// slot changes hands; so a request in the background ends then, and gives its slot up
// while its last token is still being written.
func (j *job) show(t openai.Token, emit func(openai.Token) error) error {
	j.turn.reads()
	defer j.turn.awaits()
	if j.turn.class == Interactive {
		return emit(t)
	}
	var err error
	done := make(chan struct{})
	go func() {
		err = emit(t)
		close(done)
	}()
	select {
	case <-done:
		return err
	case <-j.turn.leaves:
	}
	patience := time.NewTimer(unreadTime)
	defer patience.Stop()
	select {
	case <-done:
		return err
	case <-patience.C:
	}
	j.unread = done
	return &openai.Error{Status: http.StatusRequestTimeout, Type: "server_error", Code: "client_does_not_read",
		Message: fmt.Sprintf("another request is to have the slot, and for %v the client has not read what it was sent", unreadTime)}
}

// written waits until nothing is written to the client any more. The front bounds it.
func (j *job) written() {
	if j.unread != nil {
		<-j.unread
	}
}
