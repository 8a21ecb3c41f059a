package link

import (
	"testing"
	"time"

	"meridian/wire"
)

// A refused connection of a listed peer shows in its state for turnedAwayFor; one of
// somebody else is told of for a minute.
func TestARefusalIsToldOfForItsTime(t *testing.T) {
	n, now := clocked(t, func(c *Config) { c.Peers = listed("a") })
	n.refused(refusal{origin: origin{addr: "there:1", source: "there"}, entry: "a", err: wire.CodeAuth})
	n.refused(refusal{origin: origin{addr: "elsewhere:1", source: "elsewhere"}, err: wire.CodeAuth})
	n.refused(refusal{origin: origin{addr: "gone:1", source: "gone"}, err: wire.CodeLaneLost})
	state := func() State { st, _, _ := n.Peer("a").status(); return st }
	began := now.Load()
	for _, c := range []struct {
		after time.Duration
		state State
		told  int
	}{
		{0, StateRefused, 1}, {turnedAwayFor - 1, StateRefused, 1}, {turnedAwayFor, StateConnecting, 1},
		{newsFor - 1, StateConnecting, 1}, {newsFor, StateConnecting, 0},
	} {
		now.Store(began + int64(c.after))
		if st, told := state(), n.Refusals(); st != c.state || len(told) != c.told {
			t.Errorf("after %v: a is %v, and told is %+v", c.after, st, told)
		}
	}
}
