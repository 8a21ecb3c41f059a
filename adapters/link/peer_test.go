package link

import (
	"fmt"
	"sync"
	"testing"

	"meridian/wire"
)

// states keeps what an observer hears of peers' states.
type states struct {
	nobody
	mu    sync.Mutex
	heard []string
}

func (s *states) PeerState(peer string, st State, code wire.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, fmt.Sprint(peer, " ", st, " ", code))
}

// An observer hears of each state of a peer when it begins, and not again while it lasts.
func TestAPeersStateIsToldWhenItChanges(t *testing.T) {
	seen := &states{}
	n := start(t, 9, 90, "", func(c *Config) { c.Observer, c.Peers = seen, listed("a") })
	s, err := admitted(n, "a", 1, 10, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint8(2) {
		c, there := tcpPair(t, 0)
		defer func() { _ = there.Close() }()
		if err := s.addLane(i, &hello{conn: c, base: c}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		n.state("a")
	}
	s.drop(wire.CodeLaneLost)
	n.state("a")
	want := fmt.Sprint([]string{"a ready OK", "a connecting OK"})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if fmt.Sprint(seen.heard) != want {
		t.Errorf("heard %q, want %q", seen.heard, want)
	}
}
