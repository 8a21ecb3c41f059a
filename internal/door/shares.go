package door

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"meridian/wire"
)

// Shares counts what connections use of something, such as bytes or places. A source
// never has more than are free then, so that some that take all they can leave the part
// of one more.
type Shares struct {
	what  string
	limit int

	mu      sync.Mutex
	all     int
	waiting int
	of      map[netip.Addr]*share
}

// share is one source's; it is forgotten when it has nothing and waits for nothing.
type share struct {
	has   int
	queue []chan struct{} // closed when its turn comes
}

// NewShares makes one. what is in errors: "bytes of requests".
func NewShares(what string, limit int) *Shares {
	return &Shares{what: what, limit: limit, of: map[netip.Addr]*share{}}
}

// share is that of a source, and done is called when it was used. mu is held.
func (s *Shares) share(source netip.Addr) (sh *share, done func()) {
	sh = s.of[source]
	if sh == nil {
		sh = &share{}
		s.of[source] = sh
	}
	return sh, func() {
		if sh.has <= 0 && len(sh.queue) == 0 {
			delete(s.of, source)
		}
	}
}

func (s *Shares) fits(sh *share, n int) bool { return sh.has+n <= s.limit-s.all }

// Take takes n, or says at once why not.
func (s *Shares) Take(source netip.Addr, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, done := s.share(source)
	defer done()
	if !s.fits(sh, n) {
		return fmt.Errorf("its source has %d %s and wants %d more, %d are free: %w", sh.has, s.what, n, s.limit-s.all, wire.CodeBusy)
	}
	s.all += n
	sh.has += n
	return nil
}

// Wait takes 1 for a connection's source, as soon as there is one for it. Those of one
// source get it in turn. net.ErrClosed: the door has closed the connection.
func (s *Shares) Wait(c *Conn, within time.Duration) error {
	err := s.Take(c.source, 1) // who waits already does not fit
	if err == nil {
		return nil
	}
	turn := make(chan struct{})
	s.mu.Lock()
	sh, done := s.share(c.source)
	sh.queue = append(sh.queue, turn)
	s.waiting++
	s.grant() // what was given back since
	s.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-turn:
		return nil
	case <-timer.C:
		err = fmt.Errorf("none came free for %v: %w", within, err)
	case <-c.out:
		err = net.ErrClosed
	case <-c.door.done:
		err = net.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(sh.queue, turn)
	if i < 0 { // its turn came in the same moment
		return nil
	}
	sh.queue = slices.Delete(sh.queue, i, i+1)
	s.waiting--
	done()
	return err
}

// Give returns n of a source.
func (s *Shares) Give(source netip.Addr, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, done := s.share(source)
	s.all -= n
	sh.has -= n
	s.grant()
	done()
}

// grant lets those in who wait and fit: first of the source that has the fewest.
func (s *Shares) grant() {
	for s.waiting > 0 {
		var least *share
		for _, sh := range s.of {
			if len(sh.queue) > 0 && (least == nil || sh.has < least.has) {
				least = sh
			}
		}
		if least == nil || !s.fits(least, 1) {
			return
		}
		close(least.queue[0])
		least.queue = slices.Delete(least.queue, 0, 1)
		s.waiting--
		least.has++
		s.all++
	}
}

// Used is how much is taken.
func (s *Shares) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}
