package relay

import (
	"maps"
	"sync"

	"meridian/fabric"
	"meridian/wire"
)

// counts are what was carried for one source, or for all that have no name.
type counts struct {
	mu sync.Mutex
	n  fabric.Relayed
}

// usual are the reasons that are counted from the start, at 0.
var usual = []wire.Code{
	wire.CodeAuth, wire.CodeTooMany, wire.CodeInvalid, wire.CodeUnsupported, wire.CodeStale, wire.CodeBusy, wire.CodeNoProgress,
	wire.CodeLaneLost, wire.CodeUnreachable, wire.CodeDenied, wire.CodeDraining, wire.CodeState, wire.CodeChecksum,
}

func newCounts(source string) *counts {
	c := &counts{n: fabric.Relayed{Source: source, Refused: map[wire.Code]uint64{}}}
	for _, code := range usual {
		c.n.Refused[code] = 0
	}
	return c
}

// of are the counts of a source, as admit calls it.
func (r *Relay) of(source string) *counts {
	r.allowed.RLock()
	defer r.allowed.RUnlock()
	if c := r.counts[source]; c != nil {
		return c
	}
	return r.counts[Others]
}

func (c *counts) add(f func(n *fabric.Relayed)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.n)
}

// refused counts, and tells, what was turned away.
func (r *Relay) refused(source string, err error) {
	code, count := wire.CodeOf(err), r.of(source)
	count.add(func(n *fabric.Relayed) { n.Refused[code]++ })
	r.cfg.Refused(source, count.n.Source == source, err)
}

// Relayed implements fabric.Relay.
func (r *Relay) Relayed() []fabric.Relayed {
	r.allowed.RLock()
	defer r.allowed.RUnlock()
	out := make([]fabric.Relayed, 0, len(r.names))
	for _, name := range r.names {
		c := r.counts[name]
		c.mu.Lock()
		n := c.n
		n.Refused = maps.Clone(n.Refused)
		c.mu.Unlock()
		out = append(out, n)
	}
	return out
}
