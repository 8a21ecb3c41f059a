package nixl

import (
	"context"
	"fmt"
	"sync"
	"time"

	"meridian/fabric/lent"
	"meridian/wire"
)

// restTime is how long staging rests whose transfer failed while it was under way: the
// library does not say when the last of its parts has ended.
const restTime = 30 * time.Second

// staging is a window through which bytes go to and come from peers. One peer has half of it
// at most: one that hangs keeps no other waiting, and does not cost the helper.
type staging struct {
	mem []byte

	mu     sync.Mutex
	space  *lent.Space
	held   map[*peer]uint64 // what each one has of it
	freed  chan struct{}    // closed when something was given back
	lost   uint64           // bytes that transfers have whose caller has gone, or that rest
	spoilt func()           // more than half is lost
}

func newStaging(mem []byte, spoilt func()) *staging {
	return &staging{mem: mem, space: lent.NewSpace(uint64(len(mem))), held: map[*peer]uint64{}, freed: make(chan struct{}), spoilt: spoilt}
}

// left is what a peer may have besides what it has.
func (s *staging) left(p *peer) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leftLocked(p)
}

// leftLocked is never below 0: what is given out is rounded up.
func (s *staging) leftLocked(p *peer) uint64 {
	half := s.space.Size / 2
	return half - min(s.held[p], half)
}

// take waits for n bytes for a peer, until quit is closed.
func (s *staging) take(ctx context.Context, p *peer, n uint64, quit <-chan struct{}) (wire.Span, error) {
	for {
		s.mu.Lock()
		at, ok := s.takeLocked(p, n)
		freed := s.freed
		s.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return wire.Span{}, fmt.Errorf("%d bytes of staging: %w", n, ctx.Err())
		case <-quit:
			return wire.Span{}, fmt.Errorf("%s ended: %w", program, wire.CodeUnreachable)
		case <-freed:
		}
	}
}

// try takes n bytes for a peer where they are free.
func (s *staging) try(p *peer, n uint64) (wire.Span, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(p, n)
}

func (s *staging) takeLocked(p *peer, n uint64) (wire.Span, bool) {
	if n > s.leftLocked(p) {
		return wire.Span{}, false
	}
	at, ok := s.space.Take(n)
	if ok {
		s.held[p] += at.Len
	}
	return at, ok
}

func (s *staging) give(p *peer, at wire.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[p] -= at.Len; s.held[p] == 0 {
		delete(s.held, p)
	}
	s.space.Give(at)
	close(s.freed)
	s.freed = make(chan struct{})
}

// lose says that a part cannot be used for a while.
func (s *staging) lose(at wire.Span) {
	s.mu.Lock()
	s.lost += at.Len
	spoilt := s.lost > s.space.Size/2
	s.mu.Unlock()
	if spoilt {
		s.spoilt()
	}
}

// find gives a lost part back, after a rest where its transfer may still be under way.
func (s *staging) find(p *peer, at wire.Span, quiet bool) {
	if !quiet {
		time.AfterFunc(restTime, func() { s.find(p, at, true) })
		return
	}
	s.mu.Lock()
	s.lost -= at.Len
	s.mu.Unlock()
	s.give(p, at)
}
