package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"meridian/wire"
)

// shares are places for what is under way, of which one source has a part. Who finds
// none waits for a time.
type shares struct {
	what string
	all  chan struct{}
	part int
	wait time.Duration

	mu sync.Mutex
	of map[string]*portion
}

// portion is one source's; it is forgotten when nobody uses it.
type portion struct {
	places chan struct{}
	users  int
}

func newShares(what string, all, part int, wait time.Duration) *shares {
	return &shares{what: what, all: make(chan struct{}, all), part: part, wait: wait, of: map[string]*portion{}}
}

// take waits for a place, first among the source's own. give returns it.
func (s *shares) take(ctx context.Context, source string) (give func(), err error) {
	s.mu.Lock()
	p := s.of[source]
	if p == nil {
		p = &portion{places: make(chan struct{}, s.part)}
		s.of[source] = p
	}
	p.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(s.of, source)
		}
	}
	timer := time.NewTimer(s.wait)
	defer timer.Stop()
	for i, places := range []chan struct{}{p.places, s.all} {
		select {
		case places <- struct{}{}:
			continue
		case <-timer.C:
			whose := [...]string{"of one source address", "of all sources"}[i]
			err = fmt.Errorf("mooncake relay: %d %s %s are under way, and none ended for %v: %w", cap(places), s.what, whose, s.wait, wire.CodeBusy)
		case <-ctx.Done():
			err = fmt.Errorf("mooncake relay: waiting for a place: %w", wire.CodeStale)
		}
		if i == 1 {
			<-p.places
		}
		leave()
		return nil, err
	}
	return func() {
		<-s.all
		<-p.places
		leave()
	}, nil
}

func (s *shares) used() int { return len(s.all) }
