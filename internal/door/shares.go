package door

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/blocks/quota"
	"meridian/internal/halfopen"
)

// Common is what all doors of a daemon have together: the shares of what their
// connections use.
type Common struct {
	book *quota.Book

	mu sync.Mutex
	of map[quota.Resource]*Shares
}

// NewCommon makes one whose limits are those of a book; nil: there are none.
func NewCommon(book *quota.Book) *Common {
	if book == nil {
		book = &quota.Book{}
	}
	return &Common{book: book, of: map[quota.Resource]*Shares{}}
}

// Of are the shares of a resource. A nil Common has no limits.
func (c *Common) Of(r quota.Resource) *Shares {
	if c == nil {
		c = NewCommon(nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[r] == nil {
		c.of[r] = &Shares{book: c.book, what: r, queues: map[quota.Holder][]*waiter{}}
	}
	return c.of[r]
}

// Shares gives connections of a resource what the book lets their sources have, and has
// those wait who find none.
type Shares struct {
	book   *quota.Book
	what   quota.Resource
	silent halfopen.Table // connections that are counted here and have not proved themselves

	waiting atomic.Int64
	mu      sync.Mutex
	queues  map[quota.Holder][]*waiter // none is empty
}

// waiter waits for its turn.
type waiter struct {
	n    uint64
	turn chan struct{} // closed when part is set
	part Part
}

// Part is an amount that was taken. The zero Part is nothing.
type Part struct {
	of   *Shares
	hold *quota.Hold
}

// Give gives the part back; only the first call counts. Those who wait come in.
func (p Part) Give() {
	if p.of == nil {
		return
	}
	p.hold.Give()
	if p.of.waiting.Load() == 0 {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.grant()
}

// Take takes n for a source, or says at once why not.
func (s *Shares) Take(source quota.Holder, n uint64) (Part, error) {
	hold, err := s.book.Take(s.what, n, source, quota.Total)
	if err != nil {
		return Part{}, err
	}
	return Part{s, hold}, nil
}

// Try takes n for a connection's source where Wait would not wait.
func (s *Shares) Try(c *Conn, n uint64) (Part, bool) {
	hold, err := s.book.Try(s.what, n, c.source, quota.Total) // who waits already does not fit
	return Part{s, hold}, err == nil
}

// Wait takes n for a connection's source, as soon as there is so much for it. Those of
// one source get it in turn. net.ErrClosed: the door has closed the connection.
func (s *Shares) Wait(c *Conn, n uint64, within time.Duration) (Part, error) {
	if part, ok := s.Try(c, n); ok {
		return part, nil
	}
	w := &waiter{n: n, turn: make(chan struct{})}
	s.mu.Lock()
	s.queues[c.source] = append(s.queues[c.source], w)
	s.waiting.Add(1)
	s.grant() // what was given back since
	s.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	late := false
	select {
	case <-w.turn:
		return w.part, nil
	case <-timer.C:
		late = true
	case <-c.out:
	case <-c.door.done:
	}
	if !s.leave(c.source, w) { // its turn came in the same moment
		return w.part, nil
	}
	if !late {
		return Part{}, net.ErrClosed
	}
	part, err := s.Take(c.source, n) // a reload may have raised the limit
	if err != nil {
		err = fmt.Errorf("none came free for %v: %w", within, err)
	}
	return part, err
}

// leave takes a waiter out; false: it has had its turn.
func (s *Shares) leave(source quota.Holder, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queues[source], w)
	if i >= 0 {
		s.remove(source, i)
	}
	return i >= 0
}

// remove: mu is held.
func (s *Shares) remove(source quota.Holder, i int) {
	s.waiting.Add(-1)
	if s.queues[source] = slices.Delete(s.queues[source], i, i+1); len(s.queues[source]) == 0 {
		delete(s.queues, source)
	}
}

// grant lets those in who wait and fit: first of the source that has the fewest. mu is
// held.
func (s *Shares) grant() {
	for len(s.queues) > 0 {
		var least quota.Holder
		has := uint64(0)
		for source := range s.queues {
			if n := s.book.Used(s.what, source); least == (quota.Holder{}) || n < has {
				least, has = source, n
			}
		}
		w := s.queues[least][0]
		hold, err := s.book.Try(s.what, w.n, least, quota.Total)
		if err != nil {
			return
		}
		w.part = Part{s, hold}
		close(w.turn)
		s.remove(least, 0)
	}
}

// Used is how much is taken.
func (s *Shares) Used() uint64 { return s.book.Used(s.what, quota.Total) }
