package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"time"

	"meridian/agent/llama"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// reason is one cause for not being ready, with a stable id.
type reason struct{ id, text string }

// selfTest moves one checked block over each path before the daemon calls
// itself ready: through the arena at start, and over a fabric each time that one
// of its peers becomes ready. Paths are tested side by side, so that one that
// hangs holds up nobody.
type selfTest struct {
	mu    sync.Mutex
	arena error
	ran   bool
	paths map[string]pathResult // by registry name
	busy  map[string]bool       // under test
	wake  chan struct{}
}

func newSelfTest() *selfTest {
	return &selfTest{paths: map[string]pathResult{}, busy: map[string]bool{}, wake: make(chan struct{}, 1)}
}

type pathResult struct {
	inc  uint64 // of the peer that was tested
	lent lent   // the memory that the peer had lent
	via  string
	gbps float64
	err  error
	full bool // the other side answered that it has no room for the block: the path works, bytes were not tried
	at   time.Time
}

// lent is memory of a peer.
type lent struct{ place, size uint64 }

// path is one way out of the daemon: a peer of a fabric, or a fabric without
// peers that can be tested.
type path struct {
	name string // in the registry
	inc  uint64 // of the peer
	lent lent   // the memory that it has lent
	err  error  // why it cannot be called; nil: it can
	pr   fabric.Prober
	must bool // of a relay: its fabric does nothing else
}

const (
	selfTestEvery   = time.Second // retries of paths that failed
	fullAgain       = time.Minute // and of those on which the other side had no room
	selfTestTimeout = 5 * time.Second
	selfTestWidth   = 8 // paths under test at the same time
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
		s.probe(a)
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

// probe starts the test of each path that can be called and was not tested in
// this incarnation of its other side, nor with the memory that this lends now, and counts the incarnations. What is known
// of paths that are gone is forgotten.
func (s *selfTest) probe(a *Agent) {
	paths := a.paths()
	s.keep(paths)
	for _, p := range paths {
		if p.err != nil || p.pr == nil {
			continue
		}
		restarted, begun := s.begin(p, time.Now())
		if restarted {
			_, peer := fabric.SplitName(p.name)
			a.metrics.incarnations.WithLabelValues(a.metrics.peer(peer)).Inc()
		}
		if begun {
			a.background(func(ctx context.Context) { s.record(ctx, a, p) })
		}
	}
}

// keep forgets the results of all other paths.
func (s *selfTest) keep(paths []path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.paths) <= len(paths) {
		return
	}
	is := make(map[string]bool, len(paths))
	for _, p := range paths {
		is[p.name] = true
	}
	maps.DeleteFunc(s.paths, func(name string, _ pathResult) bool { return !is[name] })
}

// begin says whether a path is to be tested now, and whether the peer has
// restarted since the last test. What does not begin for want of room is looked
// at again when another test ends.
func (s *selfTest) begin(p path, now time.Time) (restarted, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, seen := s.paths[p.name]
	same := seen && last.inc == p.inc
	switch asBefore := same && last.lent == p.lent; {
	case s.busy[p.name] || len(s.busy) >= selfTestWidth:
		return false, false
	case asBefore && last.full && now.Sub(last.at) < fullAgain,
		asBefore && !last.full && last.err == nil,
		same && last.err != nil && now.Sub(last.at) < selfTestEvery:
		return false, false
	default:
		s.busy[p.name] = true
		return seen && !same, true
	}
}

// paths are all ways out of the daemon, by registry name.
func (a *Agent) paths() []path {
	var out []path
	for name, f := range a.whole {
		if g, made := f.(fabric.Peered); made {
			_, relay := f.(fabric.Relay)
			for _, p := range g.Peers() {
				if p.Listed {
					one := path{name: fabric.PeerName(name, p.Name), inc: p.Inc, lent: lent{p.Place, p.Memory}, err: p.Err(), must: relay}
					one.pr, _ = g.Peer(p.Name).(fabric.Prober)
					out = append(out, one)
				}
			}
			continue
		}
		if pr, ok := f.(fabric.Prober); ok {
			out = append(out, path{name: name, pr: pr})
		}
	}
	return out
}

// record tests one path and keeps the result.
func (s *selfTest) record(ctx context.Context, a *Agent, p path) {
	ctx, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	r := pathResult{inc: p.inc, lent: p.lent}
	r.via, r.gbps, r.err = a.mover.Probe(ctx, p.name, p.pr)
	r.at = time.Now()
	// A test must not make the peer evict blocks that somebody may want.
	if r.full = wire.CodeOf(r.err) == wire.CodeFull; r.full {
		a.logLimited(slog.LevelInfo, "selftest."+p.name, "path works, and its peer has no room for the self-test's block", "path", p.name, "transport", r.via, "why", r.err)
		r.err = nil
	} else if r.err != nil {
		a.logLimited(slog.LevelWarn, "selftest."+p.name, "self-test of a path failed", "path", p.name, "err", r.err)
	} else {
		a.log.Info("path works", "path", p.name, "transport", r.via, "gbytes_per_second", math.Round(1000*r.gbps)/1000)
	}
	s.mu.Lock()
	s.paths[p.name] = r
	delete(s.busy, p.name)
	s.mu.Unlock()
	s.poke()
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
	defer a.store.RemoveNamespace(ns) // its tenant would be guaranteed a part of the arena
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
	if f := a.llama.Load(); f != nil {
		if err := f.node.Down(); err != nil {
			id := "llama.down"
			if errors.Is(err, llama.ErrFailed) {
				id = "llama.failed"
			}
			out = append(out, reason{id, err.Error()})
		}
	}
	paths := a.paths()
	ready, failed := s.judge(paths, ran)
	out = append(out, failed...)
	if need := int(a.live.readyMinPeers.Load()); ready < need {
		out = append(out, reason{"peers.too_few", fmt.Sprintf("%d of %d peers are ready, agent.ready_min_peers is %d", ready, listed(paths), need)})
	}
	return out
}

// listed is how many of the paths lead to a peer.
func listed(paths []path) int {
	n := 0
	for _, p := range paths {
		if _, peer := fabric.SplitName(p.name); peer != "" {
			n++
		}
	}
	return n
}

// judge counts the peers whose path works, and lists the paths that do not. A path
// that was tested for an earlier incarnation has not been tested; a fabric
// without peers must be, once the self-test runs. A relay's target must be reached: its
// sources would find nothing.
func (s *selfTest) judge(paths []path, ran bool) (ready int, failed []reason) {
	for _, p := range paths {
		of, peer := fabric.SplitName(p.name)
		r, ok := s.path(p.name)
		switch {
		case peer == "" && ok && r.err != nil:
			failed = append(failed, reason{"selftest.fabric", p.name + ": " + r.err.Error()})
		case peer == "" && !ok && ran:
			failed = append(failed, reason{"selftest.running", "the self-test of " + p.name + " has not ended"})
		case p.must && p.err != nil:
			failed = append(failed, reason{"selftest." + of, p.err.Error()})
		case peer == "" || p.err != nil || !ok || r.inc != p.inc:
		case r.err != nil:
			failed = append(failed, reason{"selftest." + of, peer + ": " + r.err.Error()})
		default:
			ready++
		}
	}
	return ready, failed
}
