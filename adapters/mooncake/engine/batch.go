package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"meridian/wire"
)

// Op is one read or write: len(B) bytes at Addr in the peer's numbering. Err says what
// became of it.
type Op struct {
	Addr uint64
	B    []byte
	Err  error
}

// piece is what one request carries of an operation.
type piece struct {
	op    *Op
	at    int
	n     int
	again bool // it was made once
}

func (p piece) addr() uint64 { return p.op.Addr + uint64(p.at) }
func (p piece) body() []byte { return p.op.B[p.at:][:p.n] }

// Read copies from the peer into each B; after an error what is in B is undefined.
func (s *Segment) Read(ctx context.Context, ops []Op) { s.run(ctx, ops, false) }

// Write copies each B to the peer. It is done when the peer has said that the bytes are
// in place; after an error some may be. Nothing is sent again that could arrive later
// than what the caller writes next.
func (s *Segment) Write(ctx context.Context, ops []Op) { s.run(ctx, ops, true) }

// run spreads the requests of a batch over as many lanes as there are. No memory is
// touched after it has returned.
func (s *Segment) run(ctx context.Context, ops []Op, write bool) {
	pieces, bytes, most, perLane := make([]piece, 0, len(ops)), 0, maxRequest, laneBytes
	if d, _ := s.Descriptor(); !d.Acked() { // each request waits for a connection of its own
		most, perLane = maxUnacked, 1
	}
	for i := range ops {
		op := &ops[i]
		op.Err = nil
		n := uint64(len(op.B))
		if n == 0 { // Mooncake's targets refuse it
			continue
		}
		if op.Addr+n-1 < op.Addr {
			op.Err = fmt.Errorf("mooncake: %d bytes at %#x are beyond 2^64: %w", n, op.Addr, wire.CodeInvalid)
			continue
		}
		bytes += len(op.B)
		for at := 0; at < len(op.B); at += most {
			pieces = append(pieces, piece{op: op, at: at, n: min(most, len(op.B)-at)})
		}
	}
	if len(pieces) == 0 {
		return
	}
	b := &batch{s: s, write: write, left: pieces}
	var wg sync.WaitGroup
	for range min(len(pieces), cap(s.busy), (bytes+perLane-1)/perLane) - 1 {
		wg.Go(func() { b.work(ctx) })
	}
	b.work(ctx)
	wg.Wait()
}

// batch is what the workers of a call share.
type batch struct {
	s     *Segment
	write bool

	mu   sync.Mutex
	left []piece
	lost bool // a lane was
}

// more reports whether there may be a next one.
func (b *batch) more() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.left) > 0
}

// careful reports whether a lane was lost: then one request at a time is made, so that
// each has its own answer.
func (b *batch) careful() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// back puts pieces in front of the others.
func (b *batch) back(p ...piece) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = slices.Concat(p, b.left)
}

// next is a piece of an operation that has not failed, which also counts its others out.
func (b *batch) next() (piece, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.left) > 0 {
		p := b.left[0]
		b.left = b.left[1:]
		if p.op.Err == nil {
			return p, true
		}
	}
	return piece{}, false
}

func (b *batch) fail(p piece, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.op.Err == nil {
		p.op.Err = err
	}
}

// work takes pieces while there are any, over one lane at a time.
func (b *batch) work(ctx context.Context) {
	select {
	case b.s.busy <- struct{}{}:
	case <-ctx.Done():
		b.drop(ctx)
		return
	}
	defer func() { <-b.s.busy }()
	for b.more() {
		if ctx.Err() != nil {
			b.drop(ctx)
			return
		}
		l, reused, err := b.s.lane(ctx)
		if err != nil {
			if p, ok := b.next(); ok {
				b.after(ctx, []piece{p}, err, false)
			}
			continue
		}
		stop := context.AfterFunc(ctx, l.close)
		left, err := l.run(b)
		if !stop() || err != nil {
			l.close()
		} else {
			b.s.giveBack(l)
		}
		if len(left) > 0 {
			b.after(ctx, left, err, reused || l.done > 0)
		}
	}
}

// after decides what becomes of requests whose lane was lost; err is about the first.
func (b *batch) after(ctx context.Context, left []piece, err error, reused bool) {
	first, behind := left[0], left[1:]
	b.mu.Lock()
	b.lost = true
	b.mu.Unlock()
	switch {
	case errors.Is(err, errRejected): // the peer begins nothing behind what it refuses
		b.fail(first, b.say(ctx, first, err))
		b.back(behind...)
	case !first.again && b.mayTryAgain(ctx, first, err, reused):
		left[0].again = true
		b.back(left...)
	default:
		b.fail(first, b.say(ctx, first, err))
		if !b.write {
			b.back(behind...)
			return
		}
		for _, p := range behind { // some of it may still arrive
			b.fail(p, b.say(ctx, p, err))
		}
	}
}

// mayTryAgain says whether a request that failed can be made once more: the peer has
// ended the connection, so it does nothing more with what it got by it, or there was
// no connection. Where the peer was restarted meanwhile, a read goes to the new place
// if the same addresses are registered there; a write does not, since only the caller
// knows what they are now.
func (b *batch) mayTryAgain(ctx context.Context, p piece, err error, reused bool) bool {
	lost := errors.Is(err, wire.CodeLaneLost) && (reused || !b.write)
	if ctx.Err() != nil || !lost && !unreachable(err) {
		return false
	}
	_, before := b.s.Descriptor()
	if b.s.Refresh(ctx) != nil {
		return false
	}
	d, after := b.s.Descriptor()
	if before == after {
		return lost // a place that cannot be reached was just tried
	}
	return !b.write && d.Covers(p.addr(), uint64(p.n))
}

// say is an error of the contract: what ended the context comes first.
func (b *batch) say(ctx context.Context, p piece, err error) error {
	what := header{addr: p.op.Addr + uint64(p.at), size: uint64(p.n), write: b.write}.String()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("mooncake: %s of %s: %w: %w", what, b.s.Name, wire.CodeOf(ctx.Err()), ctx.Err())
	case errors.Is(err, errRejected):
		return &RejectedError{Request: what, Segment: b.s.Name}
	}
	return fmt.Errorf("%s of %s: %w", what, b.s.Name, err)
}

// drop fails what is left, since the context has ended.
func (b *batch) drop(ctx context.Context) {
	for p, ok := b.next(); ok; p, ok = b.next() {
		b.fail(p, b.say(ctx, p, ctx.Err()))
	}
}
