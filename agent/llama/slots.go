package llama

import (
	"context"
	"sync"
)

// slot is one sequence of llama-server's KV cache.
type slot struct {
	id     int
	cached []int32 // what its cache is known to begin with
	used   uint64  // order of last use
}

// slots hands the slots of one llama-server out, to one request at a time. Of the
// free ones a request gets the one that holds most of its prompt already, else
// the one that was unused for longest.
type slots struct {
	vacant chan struct{} // an entry for each free slot

	mu   sync.Mutex
	free []*slot
	tick uint64
	size int
}

func newSlots(n int) *slots {
	s := &slots{vacant: make(chan struct{}, n), size: n}
	for i := range n {
		s.free = append(s.free, &slot{id: i})
		s.vacant <- struct{}{}
	}
	return s
}

// take waits for a slot, and for no longer than the process lives. Who may wait is
// decided by turns.
func (s *slots) take(ctx context.Context, tokens []int32, gone <-chan struct{}) (*slot, error) {
	select {
	case <-s.vacant:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-gone:
		return nil, ErrDown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	best, most := 0, -1
	for i, f := range s.free {
		n := common(f.cached, tokens)
		if n > most || n == most && f.used < s.free[best].used {
			best, most = i, n
		}
	}
	f := s.free[best]
	s.free = append(s.free[:best], s.free[best+1:]...)
	return f, nil
}

// give takes a slot back.
func (s *slots) give(f *slot) {
	s.mu.Lock()
	s.tick++
	f.used = s.tick
	s.free = append(s.free, f)
	s.mu.Unlock()
	s.vacant <- struct{}{}
}

// busy is how many slots are in use.
func (s *slots) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size - len(s.free)
}

// common is the length of the longest common prefix.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
