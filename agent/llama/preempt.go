package llama

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

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
	err = j.turn.leave(ctx, j.tokens, j.s.proc.Gone, j.unread.read)
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

// show emits a token. A client that does not read would keep a request in the background
// from its next boundary, where a slot changes hands; so once another is to have the slot,
// the tokens that are still to come before it wait for their reader in memory.
func (j *job) show(t openai.Token, emit func(openai.Token) error) error {
	j.turn.reads()
	defer j.turn.awaits()
	if j.turn.class == Interactive {
		return emit(t)
	}
	idle, err := j.unread.put(t, emit)
	for err == nil && !j.turn.isLeaving() {
		select {
		case <-idle:
			return j.unread.read()
		case <-j.turn.leaves:
		}
	}
	return err
}

// maxUnread bounds the tokens that wait for their reader. A quantum has at most 1,024.
const maxUnread = 2048

// unread are tokens that a client has not read yet, in order. A goroutine writes them, and
// ends when all are written or one is lost. How long that takes is the front's business.
type unread struct {
	mu   sync.Mutex
	wait []openai.Token
	idle chan struct{} // closed when nothing is being written; nil: nothing ever was
	busy bool
	err  error // what emit has said, after which nothing is written
}

// put adds a token. idle is closed when it, and what was put meanwhile, is written or lost.
func (o *unread) put(t openai.Token, emit func(openai.Token) error) (idle <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return nil, o.err
	case len(o.wait) >= maxUnread:
		return nil, &openai.Error{Status: http.StatusRequestTimeout, Type: "server_error", Code: "client_does_not_read",
			Message: fmt.Sprintf("another request is to have the slot, and the client has not read %d tokens", len(o.wait))}
	}
	o.wait = append(o.wait, t)
	if !o.busy {
		o.busy, o.idle = true, make(chan struct{})
		go o.write(emit)
	}
	return o.idle, nil
}

func (o *unread) write(emit func(openai.Token) error) {
	for {
		o.mu.Lock()
		if o.err != nil || len(o.wait) == 0 {
			o.busy, o.wait = false, nil
			close(o.idle)
			o.mu.Unlock()
			return
		}
		t := o.wait[0]
		o.wait = o.wait[1:]
		o.mu.Unlock()
		if err := emit(t); err != nil {
			o.mu.Lock()
			o.err = err
			o.mu.Unlock()
		}
	}
}

// read waits until nothing waits for its reader any more.
func (o *unread) read() error {
	o.mu.Lock()
	idle := o.idle
	o.mu.Unlock()
	if idle == nil {
		return nil
	}
	<-idle
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
