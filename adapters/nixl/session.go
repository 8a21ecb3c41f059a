package nixl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/adapters/nixl/plane"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/window"
	"meridian/fabric/lent"
	"meridian/internal/child"
	"meridian/wire"
)

// stagingWindow is the number of the staging in the helper; windows of peers follow.
const stagingWindow = 0

// session is a helper that serves, and the windows that it has. Its agent's name is used
// once.
type session struct {
	*process
	node    *Node
	stage   *staging
	leave   func() // the staging
	loading sync.Mutex

	inviting sync.Mutex // one window at a time
	mu       sync.Mutex
	blob     []byte // what peers load: it gives no right to the staging
	guests   map[*peer]guest
	spares   map[string]guest // by name of a peer: no peer has been told of them
	retired  int              // windows of peers that are gone
	owners   []blocks.Owner
	last     uint32               // number of a window
	names    map[string]*peer     // of agents that are loaded, or about to be
	forgot   map[string]time.Time // when an agent was forgotten, a moment ago
	closed   bool
	users    sync.WaitGroup // of the windows
}

// guest is the window of a listed peer.
type guest struct {
	owner blocks.Owner
	w     window.Window
	at    uint64 // its address in the helper
}

// openSession starts a helper and gives it its windows.
func (n *Node) openSession(ctx context.Context) (*session, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &session{node: n, guests: map[*peer]guest{}, spares: map[string]guest{}, names: map[string]*peer{}, forgot: map[string]time.Time{}, leave: func() {}}
	var err error
	if s.process, err = startProcess(ctx, &n.cfg.Helper, fmt.Sprintf("meridian-%s-%x", n.cfg.Agent, id), s.deliver); err != nil {
		return nil, err
	}
	s.process.mu.Lock()
	s.process.uses = s.chosen
	s.process.mu.Unlock()
	if err := s.openWindows(ctx); err != nil {
		s.end(err)
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) openWindows(ctx context.Context) error {
	for _, p := range s.node.roster.Load().peers {
		if err := s.open(ctx, p); err != nil {
			return err
		}
	}
	if err := s.learn(ctx); err != nil {
		return err
	}
	owner := s.node.cfg.Store.NewOwner(0)
	w, _, err := s.openWindow(ctx, owner, stagingWindow, s.node.cfg.Staging)
	if err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	mem, leave, err := s.node.cfg.Windows.Own(owner, w.Addr, w.Len)
	if err != nil {
		return err
	}
	s.leave = leave
	s.stage = newStaging(mem, func() {
		go s.end(errors.New("more than half of the staging is held by transfers that do not end"))
	})
	return nil
}

// openWindow makes a window and hands it to the helper.
func (s *session) openWindow(ctx context.Context, owner blocks.Owner, number uint32, n uint64, who ...quota.Holder) (w window.Window, at uint64, err error) {
	s.mu.Lock()
	s.owners = append(s.owners, owner)
	s.mu.Unlock()
	if w, err = s.node.cfg.Windows.Open(owner, window.Spec{Bytes: n, TTL: window.Forever, Map: true, For: who}); err != nil {
		return w, 0, &child.Ours{Err: err}
	}
	at, err = s.mapWindow(ctx, number, w, number == stagingWindow)
	return w, at, err
}

// close gives the windows of a helper that is dead back.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.users.Wait()
	s.leave()
	for _, o := range s.owners {
		s.node.cfg.Windows.Drop(o)
		s.node.cfg.Store.Drop(o)
	}
}

// enter keeps the windows until users.Done.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.users.Add(1)
	}
	return !s.closed
}

// deliver hands a notification to the peer whose agent has the name. NIXL proves no name:
// what a peer may ask for by it is only about that peer.
func (s *session) deliver(name string, text []byte) {
	s.mu.Lock()
	p := s.names[name]
	s.mu.Unlock()
	if p == nil || !p.hear(s, string(text)) {
		s.node.count.refusals.Add(1)
	}
}

// chosen hears which transports UCX has chosen for a peer.
func (s *session) chosen(m *control.Uses) {
	s.mu.Lock()
	p := s.names[m.Peer]
	s.mu.Unlock()
	if p != nil {
		p.chosen(ways{m.Read, m.Write})
	}
}

// claim takes an agent's name for a peer: no two peers have one.
func (s *session) claim(name string, p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch other := s.names[name]; {
	case name == s.agent:
		return fmt.Errorf("its agent has this daemon's name %q: %w", name, wire.CodeConfig)
	case other != nil:
		return fmt.Errorf("its agent has the name %q, which that of peer %s has too: %w", name, other.PeerConfig.Name, wire.CodeConfig)
	}
	s.names[name] = p
	return nil
}

func (s *session) disclaim(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, name)
}

// errHarm is metadata that the helper has not survived: the library asserts what it does not
// check.
var errHarm = errors.New("the helper died, or hung, while it loaded this agent's metadata")

// load makes a peer's agent known: one at a time, since UCX does not survive two of one. So
// it is known whose metadata were loaded when the helper died.
func (s *session) load(ctx context.Context, m plane.Metadata, blob []byte) error {
	if err := s.rested(ctx, m.Agent); err != nil {
		return err
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if err := s.err(); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	loaded, err := ask[*control.Loaded](within, s.process, &control.Load{Blob: blob}, -1)
	if err != nil && ctx.Err() == nil && (s.err() != nil || within.Err() != nil) {
		return fmt.Errorf("%w: %w", errHarm, err)
	}
	if err == nil && loaded.Peer != m.Agent {
		err = fmt.Errorf("nixl: %q was loaded as %q: %w", m.Agent, loaded.Peer, wire.CodeInvalid)
	}
	return err
}

// forget makes it unknown. It says nothing of its success: the agent may be gone already.
func (s *session) forget(name string) {
	s.loading.Lock()
	defer s.loading.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, _ = ask[*control.Done](ctx, s.process, &control.Forget{Peer: name}, -1)
	s.forgotten(name)
}

// notify sends a peer's agent a text.
func (s *session) notify(ctx context.Context, name, text string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := ask[*control.Done](ctx, s.process, &control.Notify{Peer: name, Text: []byte(text)}, -1)
	return err
}

// piece is a part of a transfer: our bytes, and where they are in the peer.
type piece struct {
	b    []byte
	addr uint64
	op   *lent.Op
	of   int // op's number
}

// flight is a transfer under way, through a part of the staging.
type flight struct {
	of     int // its number in the call
	pieces []piece
	parts  []control.Part
	at     wire.Span
	ended  chan<- landing // to its caller

	mu        sync.Mutex
	answer    control.Message
	abandoned bool // its caller has gone
}

// carry has the helper read or write pieces, through the staging, some transfers at a time.
// end hears of each once; quiet says of an error that nothing is under way.
func (s *session) carry(ctx context.Context, p *peer, agent string, write bool, moves [][]piece, end func(i int, quiet bool, err error)) {
	next := 0
	rest := func(err error) {
		for ; next < len(moves); next++ {
			end(next, true, err)
		}
	}
	if !s.enter() {
		rest(s.err())
		return
	}
	defer s.users.Done()
	got := make(chan landing, movesATime)
	var under []*flight
	c := course{pace: p.pace(write)}
	land := func(f *flight, m control.Message) {
		_, bad := m.(*control.Failed)
		c.ended(!bad)
		quiet, err := s.land(p, f, write, m)
		end(f.of, quiet, err)
	}
	for next < len(moves) || len(under) > 0 {
		if next < len(moves) && len(under) < movesATime {
			// Who has staging does not wait for more of it: all might.
			f, err := s.depart(ctx, p, agent, write, moves[next], len(under) == 0, landing{of: next}, got)
			if f != nil || err != nil {
				if err != nil {
					end(next, true, err)
				} else {
					under = append(under, f)
					c.begun(f.bytes())
				}
				next++
				continue
			}
		}
		l, err := s.wait(ctx, got, c.due())
		if err != nil {
			for _, f := range under {
				if m := f.abandon(func() { p.late(1); s.stage.lose(f.at) }); m != nil {
					land(f, m)
				} else {
					end(f.of, false, err)
				}
			}
			rest(err)
			return
		}
		i := slices.IndexFunc(under, func(f *flight) bool { return f.of == l.of })
		f := under[i]
		under = slices.Delete(under, i, i+1)
		land(f, l.m)
	}
}

func (f *flight) bytes() (n uint64) {
	for i := range f.parts {
		n += f.parts[i].Len
	}
	return n
}

// depart begins a transfer. Without an error and a flight there is no staging for it, where
// it may not wait for that.
func (s *session) depart(ctx context.Context, p *peer, agent string, write bool, pieces []piece, waits bool, l landing, got chan<- landing) (*flight, error) {
	f := &flight{of: l.of, pieces: pieces, parts: make([]control.Part, len(pieces)), ended: got}
	var total uint64
	for i, one := range pieces {
		f.parts[i] = control.Part{Off: total, Addr: one.addr, Len: uint64(len(one.b))}
		total += uint64(len(one.b))
	}
	at, ok := s.stage.try(p, total)
	if !ok && !waits {
		return nil, nil
	}
	if !ok {
		var err error
		if at, err = s.stage.take(ctx, p, total, s.quit); err != nil {
			return nil, err
		}
	}
	f.at = at
	for i, one := range pieces {
		f.parts[i].Off += at.Off
		if write {
			copy(s.stage.mem[f.parts[i].Off:], one.b)
		}
	}
	m := &control.Move{Write: write, Window: stagingWindow, Peer: agent, Parts: f.parts}
	if err := s.begin(m, -1, func(m control.Message) { s.landed(p, f, m) }); err != nil {
		s.stage.give(p, at)
		return nil, err
	}
	return f, nil
}

// land takes the bytes of a transfer that has ended, and gives its staging back.
func (s *session) land(p *peer, f *flight, write bool, answer control.Message) (quiet bool, err error) {
	failed, bad := answer.(*control.Failed)
	switch {
	case !bad && !write:
		for i, one := range f.pieces {
			copy(one.b, s.stage.mem[f.parts[i].Off:])
		}
		fallthrough
	case !bad, failed.Quiet:
		s.stage.give(p, f.at)
	default:
		s.stage.lose(f.at)
		s.stage.find(p, f.at, false)
	}
	if bad {
		return failed.Quiet, s.refused(failed)
	}
	return true, nil
}

// abandon is what a caller does that waits no more; it gets the answer where that came
// meanwhile.
func (f *flight) abandon(lost func()) control.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer == nil {
		f.abandoned = true
		lost()
	}
	return f.answer
}

// landed is the end of a transfer. One whose caller has gone gives its staging back.
func (s *session) landed(p *peer, f *flight, m control.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.abandoned {
		f.answer = m
		f.ended <- landing{f.of, m}
		return
	}
	p.late(-1)
	failed, bad := m.(*control.Failed)
	s.stage.find(p, f.at, !bad || failed.Quiet)
}
