package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"meridian/adapters/link"
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

type pathResult struct {
	inc  uint64
	via  string
	gbps float64
	err  error
}

const (
	selfTestEvery   = time.Second // retries of paths that failed
	selfTestTimeout = 5 * time.Second
	selfTestBody    = 64 << 10
)

func (s *selfTest) poke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wake == nil {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run returns the self-test's loop for a.
func (s *selfTest) run(a *Agent) func(ctx context.Context) {
	s.paths, s.wake = map[string]pathResult{}, make(chan struct{}, 1)
	return func(ctx context.Context) {
		err := a.testArena()
		s.mu.Lock()
		s.arena, s.ran = err, true
		s.mu.Unlock()
		t := time.NewTicker(selfTestEvery)
		defer t.Stop()
		for announced := false; ; {
			s.probe(ctx, a)
			if !announced && len(a.unready()) == 0 {
				announced = true
				_ = notify("READY=1")
				a.log.Info("ready")
			}
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			case <-t.C:
			}
		}
	}
}

// probe tests each ready path once an incarnation of the other side.
func (s *selfTest) probe(ctx context.Context, a *Agent) {
	for _, info := range a.readyPeers() {
		s.mu.Lock()
		last, ok := s.paths[info.Name]
		s.mu.Unlock()
		if ok && last.err == nil && last.inc == info.Inc {
			continue
		}
		s.record(ctx, a, info.Name, info.Inc, a.node.Peer(info.Name))
	}
	for _, name := range a.fabrics.Names() {
		f, _ := a.fabrics.Get(name)
		pr, ok := f.(fabric.Prober)
		if _, isPeer := f.(*link.Peer); !ok || isPeer {
			continue
		}
		s.mu.Lock()
		last, seen := s.paths[name]
		s.mu.Unlock()
		if !seen || last.err != nil {
			s.record(ctx, a, name, 0, pr)
		}
	}
}

func (s *selfTest) record(ctx context.Context, a *Agent, name string, inc uint64, p fabric.Prober) {
	ctx, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	r := pathResult{inc: inc}
	r.via, r.gbps, r.err = p.Probe(ctx, "")
	if r.err != nil {
		a.logLimited("selftest."+name, "self-test of a path failed", "path", name, "err", r.err)
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
	s := &a.selftest
	s.mu.Lock()
	ran, arena := s.ran, s.arena
	s.mu.Unlock()
	switch {
	case !ran:
		out = append(out, reason{"selftest.running", "the self-test has not ended"})
	case arena != nil:
		out = append(out, reason{"selftest.arena", arena.Error()})
	}
	ready := 0
	for _, p := range a.readyPeers() {
		if r, ok := s.path(p.Name); ok && r.err != nil {
			out = append(out, reason{"selftest.link", p.Name + ": " + r.err.Error()})
		} else if ok {
			ready++
		}
	}
	if need := a.cfg.Agent.ReadyMinPeers; ready < need {
		out = append(out, reason{"peers.too_few", fmt.Sprintf("%d of %d peers are ready, agent.ready_min_peers is %d", ready, len(a.cfg.Link.Peers), need)})
	}
	return out
}
