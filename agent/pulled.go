package agent

import (
	"context"
	"slices"
	"time"

	"meridian/fabric"
)

// pulledEvery is how often a drain looks whether blocks are pinned still.
const pulledEvery = 20 * time.Millisecond

// waitPulled waits until peers have pulled what engines have pinned for them, or
// handed off: a peer that was told of the leave takes nothing any more. Where no peer is
// there, nobody comes. A quarter of the time until ctx ends is left for what follows.
func (a *Agent) waitPulled(ctx context.Context) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)*3/4)
		defer cancel()
	}
	tick := time.NewTicker(pulledEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		n := a.store.Stats().Pins
		if n == 0 || !slices.ContainsFunc(a.peers(), func(p fabric.Peer) bool { return p.State == fabric.PeerReady }) {
			return
		}
		if first {
			a.log.Info("draining: peers may pull what is pinned", "blocks", n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			a.log.Warn("draining: blocks are pinned that no peer has pulled", "blocks", n)
			return
		}
	}
}
