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

// staging is a window through which bytes go to and come from peers.
type staging struct {
	mem []byte

	mu     sync.Mutex
	space  *lent.Space
	freed  chan struct{} // closed when something was given back
	lost   uint64        // bytes that transfers have whose caller has gone, or that rest
	spoilt func()        // more than half is lost
}

func newStaging(mem []byte, spoilt func()) *staging {
	return &staging{mem: mem, space: lent.NewSpace(uint64(len(mem))), freed: make(chan struct{}), spoilt: spoilt}
}

// take waits for n bytes, until quit is closed.
func (s *staging) take(ctx context.Context, n uint64, quit <-chan struct{}) (wire.Span, error) {
	for {
		s.mu.Lock()
		at, ok := s.space.Take(n)
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

// try takes n bytes where they are free.
func (s *staging) try(n uint64) (wire.Span, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.space.Take(n)
}

func (s *staging) give(at wire.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (s *staging) find(at wire.Span, quiet bool) {
	if !quiet {
		time.AfterFunc(restTime, func() { s.find(at, true) })
		return
	}
	s.mu.Lock()
	s.lost -= at.Len
	s.mu.Unlock()
	s.give(at)
}
