package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"meridian/adapters/link"
	"meridian/agent/llama"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// reason is one cause for not being ready, with a stable id.
type reason struct{ id, text string }

// selfTest moves one checked block over each path before the daemon calls
// itself ready: through the arena at start, and over the link each time a peer
// becomes ready.
type selfTest struct {
	mu    sync.Mutex
	arena error
	ran   bool
	paths map[string]pathResult // by peer or fabric name
	wake  chan struct{}
}

func newSelfTest() *selfTest {
	return &selfTest{paths: map[string]pathResult{}, wake: make(chan struct{}, 1)}
}

type pathResult struct {
	inc  uint64 // of the peer that was tested
	via  string
	gbps float64
	err  error
}

const (
	selfTestEvery   = time.Second // retries of paths that failed
	selfTestTimeout = 5 * time.Second
	selfTestBody    = 64 << 10
)

// poke makes the loop look at once. It never blocks.
func (s *selfTest) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run tests the arena once, and each path until ctx ends.
func (s *selfTest) run(ctx context.Context, a *Agent) {
	err := a.testArena()
	s.mu.Lock()
	s.arena, s.ran = err, true
	s.mu.Unlock()
	t := time.NewTicker(selfTestEvery)
	defer t.Stop()
	for ready := false; ; {
		s.probe(ctx, a)
		if now := len(a.unready()) == 0; now != ready {
			ready = now
			a.log.Info("readiness changed", "ready", ready)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-t.C:
		}
	}
}

// probe tests each ready path once an incarnation of the other side, and counts
// the incarnations.
func (s *selfTest) probe(ctx context.Context, a *Agent) {
	for _, info := range a.readyPeers() {
		last, ok := s.path(info.Name)
		if ok && last.inc != info.Inc {
			a.metrics.incarnations.WithLabelValues(a.metrics.peer(info.Name)).Inc()
		}
		if ok && last.err == nil && last.inc == info.Inc {
			continue
		}
		s.record(ctx, a, info.Name, info.Inc, a.node.Peer(info.Name))
	}
	for name, pr := range a.probers() {
		if last, seen := s.path(name); !seen || last.err != nil {
			s.record(ctx, a, name, 0, pr)
		}
	}
}

// probers are the fabrics, peers excluded, that can be tested.
func (a *Agent) probers() map[string]fabric.Prober {
	out := map[string]fabric.Prober{}
	for _, name := range a.fabrics.Names() {
		f, _ := a.fabrics.Get(name)
		if _, isPeer := f.(*link.Peer); isPeer {
			continue
		}
		if pr, ok := f.(fabric.Prober); ok {
			out[name] = pr
		}
	}
	return out
}

// record tests one path and keeps the result.
func (s *selfTest) record(ctx context.Context, a *Agent, name string, inc uint64, p fabric.Prober) {
	ctx, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	r := pathResult{inc: inc}
	r.via, r.gbps, r.err = p.Probe(ctx, "")
	if r.err != nil {
		a.logLimited(slog.LevelWarn, "selftest."+name, "self-test of a path failed", "path", name, "err", r.err)
	} else {
		a.log.Info("path works", "path", name, "transport", r.via, "gbytes_per_second", r.gbps)
	}
	s.mu.Lock()
	s.paths[name] = r
	s.mu.Unlock()
}

func (s *selfTest) path(name string) (pathResult, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.paths[name]
	return r, ok
}

// testArena stores a block of random bytes in a namespace of its own, reads it
// back and drops it.
func (a *Agent) testArena() error {
	m := wire.Manifest{Tenant: "meridian.selftest", Model: a.id.name}
	ns := m.Namespace()
	if err := a.store.AddNamespace(ns, m.TenantID()); err != nil {
		return err
	}
	o := a.store.NewOwner(0)
	defer a.store.Drop(o)
	body := make([]byte, min(selfTestBody, a.cfg.KVMemory.Capacity/64))
	if _, err := rand.Read(body); err != nil {
		return err
	}
	v, err := a.store.Reserve(o, ns, []uint32{uint32(len(body))}, selfTestTimeout)
	if err != nil {
		return err
	}
	key := wire.KeyOf(ns, body[:32])
	c := blocks.Commit{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: key, Len: uint32(len(body)), Att: wire.AttestProducer}
	if err := a.store.Ingest(o, body, &c); err != nil {
		return err
	}
	defer a.store.Discard(ns, []wire.Key{key})
	got := []blocks.View{{NS: ns, Key: key}}
	lease, err := a.store.Acquire(o, got, selfTestTimeout, false)
	if err != nil {
		return err
	}
	defer a.store.Release(o, lease)
	if got[0].Err != nil {
		return got[0].Err
	}
	_, stored, err := wire.Decode(a.store.Payload(got[0]), wire.Strict, wire.MaxBody)
	if err != nil {
		return err
	}
	if !bytes.Equal(stored, body) {
		return fmt.Errorf("the arena gave other bytes than were stored: %w", wire.CodeChecksum)
	}
	return nil
}

// unready lists why the daemon is not ready; empty when it is.
func (a *Agent) unready() []reason {
	var out []reason
	if drainState(a.drain.Load()) != serving {
		out = append(out, reason{"draining", "the daemon is leaving"})
	}
	s := a.selftest
	s.mu.Lock()
	ran, arena := s.ran, s.arena
	s.mu.Unlock()
	switch {
	case !ran:
		out = append(out, reason{"selftest.running", "the self-test has not ended"})
	case arena != nil:
		out = append(out, reason{"selftest.arena", arena.Error()})
	}
	for _, name := range slices.Sorted(maps.Keys(a.probers())) {
		if r, ok := s.path(name); ok && r.err != nil {
			out = append(out, reason{"selftest.fabric", name + ": " + r.err.Error()})
		} else if !ok && ran {
			out = append(out, reason{"selftest.running", "the self-test of " + name + " has not ended"})
		}
	}
	if f := a.llama.Load(); f != nil {
		if err := f.node.Down(); err != nil {
			id := "llama.down"
			if errors.Is(err, llama.ErrFailed) {
				id = "llama.failed"
			}
			out = append(out, reason{id, err.Error()})
		}
	}
	ready, failed := s.judge(a.readyPeers())
	out = append(out, failed...)
	if need := int(a.live.readyMinPeers.Load()); ready < need {
		out = append(out, reason{"peers.too_few", fmt.Sprintf("%d of %d peers are ready, agent.ready_min_peers is %d", ready, len(a.cfg.Link.Peers), need)})
	}
	return out
}

// judge counts the peers whose path works, and lists those whose does not. A
// path that was tested for an earlier incarnation has not been tested.
func (s *selfTest) judge(peers []link.PeerInfo) (ready int, failed []reason) {
	for _, p := range peers {
		switch r, ok := s.path(p.Name); {
		case !ok || r.inc != p.Inc:
		case r.err != nil:
			failed = append(failed, reason{"selftest.link", p.Name + ": " + r.err.Error()})
		default:
			ready++
		}
	}
	return ready, failed
}
