package link

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// State is where this agent stands with a peer.
type State = fabric.PeerState

// The states. See PeerInfo.Code and Text.
const (
	StateConnecting = fabric.PeerConnecting
	StateReady      = fabric.PeerReady
	StateRefused    = fabric.PeerRefused
	StateDraining   = fabric.PeerDraining
)

// Peer is one entry of the allow list, and the fabric that leads to it.
type Peer struct {
	node *Node
	cfg  PeerConfig
	home uint64        // where its keys are
	kick chan struct{} // the dialler looks again

	closed   atomic.Bool
	sessions atomic.Pointer[[]*session] // stored under node.mu
	shown    *session                   // that node.callable was made with; under node.counting

	mu         sync.Mutex
	dialled    *session
	agent      [16]byte // last proved
	refusal    error    // why the last try to dial failed
	turnedAway *refusal // its last connection that was refused; may be nil
	changed    chan struct{}
	told       State
}

func newPeer(n *Node, cfg PeerConfig) *Peer {
	p := &Peer{
		node: n, cfg: cfg, home: homeOf(cfg.Name), kick: make(chan struct{}, 1), changed: make(chan struct{}), agent: cfg.Agent,
	}
	p.sessions.Store(&[]*session{})
	return p
}

// session is the session that calls go over, or why there is none.
func (p *Peer) session() (*session, error) {
	if s := p.choose((*session).ready); s != nil {
		return s, nil
	}
	if p.closed.Load() {
		return nil, &fabric.Error{Code: wire.CodeUnreachable, Fabric: label, Text: "peer " + p.cfg.Name + " is closed"}
	}
	p.mu.Lock()
	refusal := p.refusal
	p.mu.Unlock()
	return nil, &fabric.Error{Code: wire.CodeUnreachable, Fabric: label, Text: "peer " + p.cfg.Name, Cause: refusal}
}

// Ready waits until calls can be made, or ctx ends; the error then says why not.
func (p *Peer) Ready(ctx context.Context) error {
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		_, err := p.session()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return err
		}
	}
}

// state works out the state of every peer of that name anew, and tells who
// waits for it.
func (n *Node) state(name string) {
	p := n.Peer(name)
	if p == nil {
		return
	}
	n.recount(p)
	st, code, _ := p.status()
	p.mu.Lock()
	close(p.changed)
	p.changed = make(chan struct{})
	news := p.told != st
	p.told = st
	if st == StateReady {
		p.turnedAway = nil
	}
	p.mu.Unlock()
	if news {
		n.cfg.Log.Info("link peer", "peer", name, "state", st.String(), "code", code.String())
		n.cfg.Observer.PeerState(name, st, code)
	}
}

// status is the peer's state, and for a refused one why.
func (p *Peer) status() (State, wire.Code, string) {
	if _, err := p.session(); err == nil {
		return StateReady, wire.CodeOK, ""
	}
	p.mu.Lock()
	s, refusal, turnedAway := p.dialled, p.refusal, p.turnedAway
	p.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		_, dead := s.core.Dead()
		leaving := s.core.Leaving() && !dead
		s.mu.Unlock()
		if leaving {
			return StateDraining, wire.CodeDraining, "the peer is leaving"
		}
	}
	code := wire.CodeOf(refusal)
	reached := code != wire.CodeOK && code != wire.CodeUnreachable && code != wire.CodeLaneLost
	switch {
	case reached:
		return StateRefused, code, reasonOf(refusal)
	case turnedAway != nil && p.node.cfg.Clock()-turnedAway.at < turnedAwayFor:
		return StateRefused, wire.CodeOf(turnedAway.err), "its connection from " + turnedAway.addr + " was refused: " + reasonOf(turnedAway.err)
	case refusal == nil:
		return StateConnecting, wire.CodeOK, ""
	}
	return StateConnecting, code, reasonOf(refusal)
}

// reasonOf is an error's text for where its code is told beside it: "why: AUTH" next to
// AUTH would say it twice.
func reasonOf(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+wire.CodeOf(err).String())
}

// PeerInfo is what Peers tells about a peer.
type PeerInfo struct {
	Name      string
	Agent     [16]byte
	Inc       uint64
	Addr      string // as configured, else where it comes from
	State     State
	Code      wire.Code // why it is not ready
	Text      string
	Transport string // really used: tcp, tls, unix; empty while not connected
	Auth      string // how it proved itself
	Dialled   bool   // this side dialled the session in use
	Lanes     int    // data lanes that are up
	RTT       time.Duration
	Tenants   []string // proved; "*" where any is taken

	Namespaces []NamespaceInfo
}

// NamespaceInfo is what a peer said to OPEN.
type NamespaceInfo struct {
	NS   wire.Namespace
	Code wire.Code
	Text string // GEOMETRY: field and both values
}

// Peers tells about every peer, those that only dial us included.
func (n *Node) Peers() []PeerInfo {
	var out []PeerInfo
	for _, p := range n.peers() {
		out = append(out, p.info())
	}
	for _, s := range n.allSessions() {
		if !s.dialled && n.Peer(s.peer.name) == nil {
			i := PeerInfo{Name: s.peer.name, Addr: s.addr}
			s.describe(&i)
			switch {
			case s.ready():
				i.State = StateReady
			case s.leaves():
				i.State, i.Code, i.Text = StateDraining, wire.CodeDraining, "the session is to end"
			}
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b PeerInfo) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (p *Peer) info() PeerInfo {
	i := PeerInfo{Name: p.cfg.Name, Addr: p.cfg.Addr, Tenants: p.cfg.Tenants}
	p.mu.Lock()
	i.Agent = p.agent
	s, turnedAway := p.dialled, p.turnedAway
	p.mu.Unlock()
	i.State, i.Code, i.Text = p.status()
	if use, err := p.session(); err == nil {
		s = use
	}
	if s != nil {
		s.describe(&i)
	}
	switch {
	case i.Addr != "":
	case i.State == StateReady && s != nil: // it may have gone since status looked
		i.Addr = s.addr
	case i.State == StateRefused && turnedAway != nil:
		i.Addr = turnedAway.addr
	}
	return i
}

// describe fills in what a session knows.
func (s *session) describe(i *PeerInfo) {
	i.Agent, i.Inc, i.Transport, i.Dialled = s.peer.agent, s.peer.inc, s.via, s.dialled
	i.Auth = methodName(s.peer.method)
	i.Tenants = s.peer.tenants.Names
	if s.peer.tenants.All {
		i.Tenants = []string{"*"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.Lanes, i.RTT = s.core.DataLanes(), s.core.RTT()
	for ns, e := range s.ns {
		if len(i.Namespaces) == maxInfoNamespaces {
			break
		}
		select {
		case <-e.ready:
			ni := NamespaceInfo{NS: ns, Code: wire.CodeOf(e.err)}
			if e.err != nil {
				ni.Text = e.err.Error()
			}
			i.Namespaces = append(i.Namespaces, ni)
		default:
		}
	}
	slices.SortFunc(i.Namespaces, func(a, b NamespaceInfo) int { return slices.Compare(a.NS[:], b.NS[:]) })
}

// Name is the peer's entry in the configuration.
func (p *Peer) Name() string { return p.cfg.Name }
