package link

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// identity is who a peer proved to be.
type identity struct {
	name    string // its entry in Peers; else the start of its agent id
	who     string // what was proved: its entry in Peers; else where it comes from
	listed  bool
	agent   [16]byte
	inc     uint64
	tenants core.Tenants
	method  uint16 // proto.AuthX
}

// key is what a peer's sessions are counted by: a name on the allow list, else an
// agent of one origin.
func (id *identity) key() string {
	if id.listed {
		return id.name
	}
	return fmt.Sprintf("%s %x", id.who, id.agent)
}

// digest stands for a peer in handles: the agent id alone is what the peer says,
// and another one can say the same.
func (id *identity) digest() (d [16]byte) {
	sum := sha256.Sum256(append(id.agent[:], id.key()...))
	copy(d[:], sum[:])
	return d
}

// handle names a block of the session's peer.
func (s *session) handle(slot, gen uint32) fabric.Handle {
	return wire.Ref{Agent: s.digest, Inc: s.peer.inc, Slot: slot, Gen: gen}.Handle()
}

// made says whether a handle is of the session's peer and its incarnation.
func (s *session) made(r wire.Ref) bool {
	return r.Agent == s.digest && r.Inc == s.peer.inc && r.Gen != 0
}

// session is a core session with its lock and its lanes.
type session struct {
	node    *Node
	id      [16]byte
	peer    identity
	digest  [16]byte // the peer's
	entry   *Peer    // under which it was proved
	via     string
	addr    string // where the peer is
	dialled bool
	share   *quota.Hold // of an accepted one

	mu      sync.Mutex
	core    *core.Session
	takes   atomic.Bool // calls; stored at the end of each visit to the core
	lingers bool        // it has had lane 0
	retired bool        // it ends, and takes no new calls
	until   time.Time   // a certificate of its lanes ends; zero: there is none
	lanes   [proto.MaxLanes + 1]*lane
	ns      map[wire.Namespace]*nsEntry // what this side opened at the peer

	kick chan struct{} // a lane went, or the session: the dialler looks
}

// nsEntry is the answer to one OPEN.
type nsEntry struct {
	ready  chan struct{} // closed once the answer is there
	opened proto.Opened
	err    error
	until  time.Duration // a refusal is remembered until then
}

// gaveUp reports whether the question ended without an answer because of who
// asked it.
func (e *nsEntry) gaveUp() bool {
	c := wire.CodeOf(e.err)
	return e.until == 0 && (c == wire.CodeCancelled || c == wire.CodeDeadline)
}

// answeredOK reports whether the peer took the namespace.
func (e *nsEntry) answeredOK() bool {
	select {
	case <-e.ready:
		return e.err == nil
	default:
		return false
	}
}

func (n *Node) newSession(entry *Peer, id [16]byte, peer identity, via, addr string, dialled bool, theirs *proto.Hello) *session {
	spaces := &sessionNamespaces{n: n.cfg.Namespaces, peer: peer.account()}
	store := newSessionStore(n.cfg.Store, spaces, n.cfg.Agent, n.cfg.Incarnation)
	store.bridge = &bridge{n: n, hop: fabric.Hop{Fabric: label, Peer: peer.source()}}
	return &session{
		node: n, entry: entry, id: id, peer: peer, digest: peer.digest(), via: via, addr: addr, dialled: dialled,
		core: core.New(core.Config{
			Dialler: dialled, Store: store, Looker: store.bridge,
			Namespaces: spaces, Tenants: peer.tenants,
			Mine: n.cfg.Limits, Theirs: theirs.Limits,
			OneFlight: theirs.Features&proto.FeatureStanding != 0, Homes: standingHomes, HomeBytes: homeBytes(n.standing.Load()),
		}),
		ns:   map[wire.Namespace]*nsEntry{},
		kick: make(chan struct{}, 1),
	}
}

// homeBytes is what a session reserves ahead, by Config.Standing.
func homeBytes(standing int64) uint64 { return uint64(max(cmp.Or(standing, standingBytes), 0)) }

func (s *session) now() time.Duration { return s.node.cfg.Clock() }

// unlock ends a visit to the core, and writes what came of it.
func (s *session) unlock() {
	var buf [4]*lane
	s.flush(s.endVisit(buf[:0]), 1)
}

// endVisit ends a visit to the core: dead lanes are interrupted, what happened is
// told, and lanes that have something to send are appended to todo where the
// caller got the right to write.
func (s *session) endVisit(todo []*lane) []*lane {
	core.EachLane(s.core.TakeWake(), func(i uint8) {
		l := s.lanes[i]
		switch {
		case l == nil:
		case l.core.Dead():
			l.wake.Signal()
			interrupt(l.base)
		case l.take():
			todo = append(todo, l)
		}
	})
	events := s.core.TakeEvents()
	if takes := !s.retired && s.core.Ready(); takes != s.takes.Load() {
		s.takes.Store(takes)
	}
	s.mu.Unlock()
	for i := range events {
		s.tell(&events[i])
	}
	return todo
}

// tell logs and counts an event.
func (s *session) tell(e *core.Event) {
	n := s.node
	if e.Kind == core.EventServed {
		n.cfg.Observer.Transfer(Transfer{
			Peer: s.peer.name, In: e.Push, Served: true, Class: e.Class, Via: s.via,
			Items: e.Items, Bytes: e.Bytes, Took: e.Took, Code: e.Code, Refused: e.Refused,
		})
		return
	}
	if e.Kind == core.EventTurnedAway {
		n.cfg.Observer.Refusal(s.peer.name, e.Code)
		return
	}
	log := n.cfg.Log.With("peer", s.peer.name, "via", s.via)
	switch e.Kind {
	case core.EventLaneDead:
		log.Info("link lane is closed", "lane", e.Lane, "code", e.Code.String(), "why", e.Text)
	case core.EventPeerError:
		log.Warn("link peer closed a lane", "lane", e.Lane, "code", e.Code.String(), "why", e.Text)
		if p := n.Peer(s.peer.name); p != nil {
			p.wasTurnedAway(refusal{origin: origin{addr: s.addr}, at: s.now(), err: &RemoteError{Code: e.Code, Text: e.Text}})
		}
	case core.EventRefused:
		log.Warn("link lane refused", "lane", e.Lane, "code", e.Code.String(), "why", e.Text)
		n.refusals.Add(1)
		n.cfg.Observer.Refusal(s.peer.name, e.Code)
	case core.EventGoAway:
		log.Info("link peer is leaving", "in", e.Took, "code", e.Code.String(), "why", e.Text)
	case core.EventChecksum:
		log.Error("link body failed its checksum", "lane", e.Lane)
		if e.Push { // a pull's failure is in its items
			n.cfg.Observer.ChecksumFailure(s.peer.name)
		}
	case core.EventGone:
		log.Info("link session ended", "code", e.Code.String())
		n.forget(s)
	}
	s.poke()
}

// poke makes the dialler look at the session.
func (s *session) poke() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// addLane attaches a connection whose HELLOs are done. A lane of that number
// that is still there is one that the dialler has given up.
func (s *session) addLane(idx uint8, c *hello) error {
	s.mu.Lock()
	old := s.lanes[idx]
	if cl := s.core.Lane(idx); cl != nil {
		s.core.LaneDown(s.now(), cl, wire.CodeLaneLost)
	}
	if old != nil {
		old.wake.Signal()
		interrupt(old.base)
	}
	cl, err := s.core.AddLane(s.now(), idx, c.sp)
	if err == nil {
		s.lingers = s.lingers || idx == 0
		s.endsBy(c.conn)
		_ = c.base.SetDeadline(time.Time{})
		s.startLane(cl, c.conn, c.base)
	}
	s.unlock()
	return err
}

// dropIfUnused ends a session whose first lane did not come up.
func (s *session) dropIfUnused() {
	s.mu.Lock()
	used := s.lingers
	s.mu.Unlock()
	if !used {
		s.drop(wire.CodeLaneLost)
	}
}

// laneGone forgets a lane whose goroutines have ended.
func (s *session) laneGone(l *lane) {
	s.mu.Lock()
	if i := l.core.Index(); s.lanes[i] == l {
		s.lanes[i] = nil
	}
	s.mu.Unlock()
	s.poke()
}

// drop ends the session at once.
func (s *session) drop(code wire.Code) {
	s.mu.Lock()
	s.core.Drop(s.now(), code)
	s.unlock()
}

// leaving says whether the peer has said that it leaves.
func (s *session) leaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Leaving()
}

// ready says whether the session takes calls. It waits until a visit to the core
// is over: a call that has just ended may have ended the session too.
func (s *session) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.retired && s.core.Ready()
}

// leaves reports whether this side ends the session.
func (s *session) leaves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

// tick moves the session's time on.
func (s *session) tick(wall time.Time) {
	s.mu.Lock()
	if over := !s.until.IsZero() && wall.After(s.until) && !s.retired; over {
		defer s.retire(drainStill, fmt.Errorf("a certificate of the session was good until %s: %w", s.until.UTC().Format(time.DateTime), wire.CodeAuth))
	}
	s.core.Tick(s.now())
	if s.retired && s.core.Idle() {
		s.core.Drop(s.now(), wire.CodeDraining)
	}
	s.unlock()
}

// call runs one call until it is over, or ctx ends it.
func (s *session) call(ctx context.Context, c *core.Call) {
	c.Done = make(chan struct{})
	if c.Timeout == 0 {
		c.Timeout = timeout(ctx)
	}
	s.mu.Lock()
	s.core.Start(s.now(), c)
	var buf [4]*lane
	s.flush(s.endVisit(buf[:0]), callFrames)
	select {
	case <-c.Done:
		return
	case <-ctx.Done():
	}
	code := wire.CodeCancelled
	if ctx.Err() == context.DeadlineExceeded {
		code = wire.CodeDeadline
	}
	s.mu.Lock()
	s.core.Cancel(s.now(), c, code)
	s.unlock()
	<-c.Done
}

// timeout is what is left of ctx.
func timeout(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return time.Until(d)
	}
	return defaultTimeout
}

// open returns the peer's number for a namespace, and asks for it once.
func (s *session) open(ctx context.Context, ns wire.Namespace) (uint16, error) {
	s.mu.Lock()
	e := s.ns[ns]
	if e != nil && e.until != 0 && s.now() >= e.until {
		e = nil
	}
	if e != nil {
		s.mu.Unlock()
		select {
		case <-e.ready:
			if e.gaveUp() && ctx.Err() == nil {
				return s.open(ctx, ns) // who asked has left; this caller has not
			}
			return e.opened.NS, e.err
		case <-ctx.Done():
			return 0, fabric.ContextError(ctx, label)
		}
	}
	m, ok := s.node.cfg.Namespaces.Manifest(ns)
	if !ok || len(s.ns) >= proto.MaxNamespaces {
		s.mu.Unlock()
		return 0, wire.CodeNSUnknown
	}
	e = &nsEntry{ready: make(chan struct{})}
	s.ns[ns] = e
	s.mu.Unlock()
	c := &core.Call{Type: proto.TypeOpen, Manifest: m.Append(nil)}
	s.call(ctx, c)
	s.mu.Lock()
	e.opened = c.Opened
	switch {
	case c.Code == wire.CodeGeometry:
		e.err = &wire.GeometryError{Field: c.Opened.Field, Ours: c.Opened.Theirs, Theirs: c.Opened.Ours}
	case c.Code != wire.CodeOK:
		e.err = codeError(c.Code, c.Text)
	}
	switch {
	case c.Opened.Status == wire.CodeOK && e.err != nil:
		delete(s.ns, ns) // not answered at all: the next one asks again
	case e.err != nil:
		e.until = s.now() + refusedFor
	}
	s.mu.Unlock()
	close(e.ready)
	return e.opened.NS, e.err
}
