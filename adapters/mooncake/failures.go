package mooncake

import (
	"errors"
	"maps"
	"sync"

	"meridian/fabric"
	"meridian/wire"
)

var _ fabric.Failing = (*Node)(nil)

// failures counts by reason what failed with one peer.
type failures struct {
	mu      sync.Mutex
	in, out map[wire.Code]uint64
}

func newFailures() failures {
	return failures{in: map[wire.Code]uint64{}, out: map[wire.Code]uint64{}}
}

// note counts an error. That a block is there already, or that a caller gave up, is no
// failure of a peer.
func (f *failures) note(of map[wire.Code]uint64, err error) {
	if err == nil || errors.Is(err, wire.CodeExists) || errors.Is(err, wire.CodeCancelled) {
		return
	}
	f.mu.Lock()
	of[wire.CodeOf(err)]++
	f.mu.Unlock()
}

// Failures implements fabric.Failing.
func (n *Node) Failures() []fabric.Failures {
	peers := n.roster.Load().peers
	out := make([]fabric.Failures, len(peers))
	for i, p := range peers {
		p.failures.mu.Lock()
		out[i] = fabric.Failures{Peer: p.Name(), In: maps.Clone(p.failures.in), Out: maps.Clone(p.failures.out)}
		p.failures.mu.Unlock()
	}
	return out
}
