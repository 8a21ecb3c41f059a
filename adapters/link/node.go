package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"meridian/adapters/link/internal/core"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Node is this agent's end of every link.
type Node struct {
	cfg   Config
	ctx   context.Context
	stop  context.CancelFunc
	peers []*Peer // in the order of Config.Peers

	running  sync.WaitGroup // every goroutine of the node
	refusals atomic.Uint64  // connections and lanes
	hot      atomic.Int32   // readers and workers of lanes that do not wait
	procs    int            // processors that Go may use

	mu        sync.Mutex
	sessions  map[[16]byte]*session
	listeners []net.Listener
	opening   map[net.Conn]struct{} // accepted or dialled, HELLO not through
	closed    bool
	draining  bool
}

// New makes a node and begins to dial its peers. It serves nobody before Listen.
func New(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, sessions: map[[16]byte]*session{}, opening: map[net.Conn]struct{}{}, procs: runtime.GOMAXPROCS(0)}
	n.ctx, n.stop = context.WithCancel(context.Background())
	for _, p := range cfg.Peers {
		n.peers = append(n.peers, newPeer(n, p))
	}
	n.running.Add(1)
	go n.ticker()
	for _, p := range n.peers {
		if p.cfg.Addr != "" {
			n.running.Add(1)
			go p.keepConnected()
		}
	}
	return n, nil
}

// Listen takes peers at address: tcp://host:port, tls://host:port or
// unix:///path; port 0 takes a free one, which the result tells.
func (n *Node) Listen(address string) (net.Addr, error) {
	a, err := parseAddr(address)
	if err != nil {
		return nil, err
	}
	switch {
	case a.network == viaTLS && n.cfg.TLS == nil:
		return nil, fmt.Errorf("link listen %s: no certificate: %w", address, wire.CodeConfig)
	case a.network == viaTCP && !a.loopback() && !n.cfg.Insecure:
		return nil, fmt.Errorf("link listen %s: beyond loopback it takes tls:// or insecure = true: %w", address, wire.CodeConfig)
	}
	network := "tcp"
	if a.network == viaUnix {
		network = "unix"
	}
	if a.network == viaUnix {
		removeStale(a.target)
	}
	lc := net.ListenConfig{KeepAlive: -1}
	l, err := lc.Listen(n.ctx, network, a.target)
	if err != nil {
		return nil, fmt.Errorf("link listen %s: %w", address, err)
	}
	if a.network == viaUnix {
		if err := os.Chmod(a.target, 0o600); err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("link listen %s: %w", address, err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_ = l.Close()
		return nil, fmt.Errorf("link listen %s: %w", address, net.ErrClosed)
	}
	n.listeners = append(n.listeners, l)
	n.running.Add(1)
	go n.accept(l, a.network)
	return l.Addr(), nil
}

// removeStale takes a socket file away that nobody listens at any more.
func removeStale(path string) {
	if st, err := os.Lstat(path); err != nil || st.Mode().Type() != os.ModeSocket {
		return
	}
	c, err := net.DialTimeout("unix", path, dialTimeout)
	if err == nil {
		_ = c.Close()
		return
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		_ = os.Remove(path)
	}
}

// accept takes connections, at most MaxUnopened whose HELLO is not through.
func (n *Node) accept(l net.Listener, via string) {
	defer n.running.Done()
	slots := make(chan struct{}, proto.MaxUnopened)
	for {
		c, err := l.Accept()
		if err != nil {
			if n.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			n.cfg.Log.Warn("link accept", "err", err)
			select { // out of descriptors: give some time to free them
			case <-n.ctx.Done():
				return
			case <-time.After(redialMin):
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			n.refusals.Add(1)
			n.cfg.Observer.Refusal("", wire.CodeTooMany)
			_ = c.Close()
			continue
		}
		if !n.beginOpening(c) {
			_ = c.Close()
			<-slots
			continue
		}
		go func() {
			defer n.running.Done()
			n.welcome(c, via, func() { <-slots })
		}()
	}
}

// beginOpening registers a connection, so that Close can end its HELLO. The
// caller owes running.Done.
func (n *Node) beginOpening(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.opening[c] = struct{}{}
	n.running.Add(1)
	return true
}

func (n *Node) endOpening(c net.Conn) {
	n.mu.Lock()
	delete(n.opening, c)
	n.mu.Unlock()
}

// welcome brings an accepted connection through HELLO and to its session.
func (n *Node) welcome(c net.Conn, via string, free func()) {
	defer free()
	defer n.endOpening(c)
	_ = c.SetDeadline(time.Now().Add(proto.HelloTimeout))
	n.tune(c)
	h := &hello{conn: c, base: c, via: via}
	if via == viaTLS {
		tc := tls.Server(c, n.cfg.TLS.server())
		h.conn = tc
		if err := tc.Handshake(); err != nil {
			n.refused("", c, fmt.Errorf("tls: %w: %w", err, wire.CodeAuth))
			_ = c.Close()
			return
		}
	}
	id, theirs, err := n.acceptHello(h)
	if err == nil {
		err = n.join(h, id, theirs)
	}
	if err != nil {
		n.refused(id.name, c, err)
		h.refuse(err)
	}
}

func (n *Node) refused(peer string, c net.Conn, err error) {
	n.cfg.Log.Warn("link connection refused", "peer", peer, "from", c.RemoteAddr().String(), "code", wire.CodeOf(err).String(), "err", err)
	n.refusals.Add(1)
	n.cfg.Observer.Refusal(peer, wire.CodeOf(err))
}

// join attaches an accepted lane to its session, or begins one.
func (n *Node) join(h *hello, id identity, theirs *proto.Hello) error {
	n.adopt(id)
	n.mu.Lock()
	s := n.sessions[theirs.Session]
	switch {
	case n.closed || n.draining:
		n.mu.Unlock()
		return fmt.Errorf("this agent is leaving: %w", wire.CodeDraining)
	case s != nil && (s.dialled || s.peer.agent != id.agent || s.peer.inc != id.inc || s.peer.name != id.name):
		n.mu.Unlock()
		return fmt.Errorf("the session is another peer's: %w", wire.CodeAuth)
	case s == nil && theirs.Lane != 0:
		n.mu.Unlock()
		return fmt.Errorf("the session is gone: %w", wire.CodeState)
	case s == nil:
		if full, spare := n.sessionsOf(id.agent); full {
			n.mu.Unlock()
			if spare == nil {
				return fmt.Errorf("%d sessions of one peer: %w", proto.MaxSessions, wire.CodeTooMany)
			}
			spare.drop(wire.CodeTooMany)
			return n.join(h, id, theirs)
		}
		s = n.newSession(theirs.Session, id, h.via, h.base.RemoteAddr().String(), false, theirs.Limits)
		n.sessions[s.id] = s
	}
	n.mu.Unlock()
	if err := s.addLane(theirs.Lane, h); err != nil {
		return err
	}
	n.state(s.peer.name)
	return nil
}

// sessionsOf says whether a peer has as many accepted sessions as it may, and
// which of them has lost its lane 0 and only lingers.
func (n *Node) sessionsOf(agent [16]byte) (full bool, spare *session) {
	count := 0
	for _, s := range n.sessions {
		if s.peer.agent != agent || s.dialled {
			continue
		}
		count++
		s.mu.Lock()
		if s.core.Lane(0) == nil {
			spare = s
		}
		s.mu.Unlock()
	}
	return count >= proto.MaxSessions, spare
}

// knows reports whether an accepted session of that id lives.
func (n *Node) knows(id [16]byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sessions[id]
	return s != nil && !s.dialled
}

// adopt drops every session of an earlier incarnation of a peer that has just
// proved a later one.
func (n *Node) adopt(id identity) {
	for _, s := range n.allSessions() {
		if s.peer.agent == id.agent && s.peer.inc != id.inc {
			n.cfg.Log.Info("link peer restarted", "peer", s.peer.name, "was", s.peer.inc, "is", id.inc)
			n.cfg.Observer.PeerState(s.peer.name, StateConnecting, wire.CodeIncarnation)
			s.drop(wire.CodeIncarnation)
		}
	}
}

func (n *Node) allSessions() []*session {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*session, 0, len(n.sessions))
	for _, s := range n.sessions {
		all = append(all, s)
	}
	return all
}

// forget takes a session that has ended out.
func (n *Node) forget(s *session) {
	n.mu.Lock()
	if n.sessions[s.id] == s {
		delete(n.sessions, s.id)
	}
	n.mu.Unlock()
	n.state(s.peer.name)
}

// ticker moves the sessions' time on.
func (n *Node) ticker() {
	defer n.running.Done()
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		for _, s := range n.allSessions() {
			s.mu.Lock()
			s.core.Tick(s.now())
			s.unlock()
		}
	}
}

// tune sets what a lane's socket needs.
func (n *Node) tune(c net.Conn) {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tc.SetNoDelay(true)
	if n.cfg.Congestion == "" {
		return
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, n.cfg.Congestion)
	})
	if err != nil {
		n.cfg.Log.Warn("link congestion control", "want", n.cfg.Congestion, "err", err)
	}
}

// server is the acceptor's TLS configuration.
func (t *TLS) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{t.Certificate},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: t.CA, SessionTicketsDisabled: true,
	}
}

// client is the dialler's; name is the peer's, which its certificate must have.
func (t *TLS) client(name string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{t.Certificate}, RootCAs: t.CA, ServerName: name,
	}
}

// Peer returns the peer of that name, or nil.
func (n *Node) Peer(name string) *Peer {
	for _, p := range n.peers {
		if p.cfg.Name == name {
			return p
		}
	}
	return nil
}

// Drain takes no new requests, tells the peers, and waits until what runs has
// ended or ctx has. Close follows.
func (n *Node) Drain(ctx context.Context) {
	n.mu.Lock()
	n.draining = true
	n.mu.Unlock()
	ms := uint32(timeout(ctx) / time.Millisecond)
	for _, s := range n.allSessions() {
		s.mu.Lock()
		s.core.GoAway(s.now(), ms, wire.CodeDraining, "")
		s.unlock()
	}
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for !n.idle() {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (n *Node) idle() bool {
	for _, s := range n.allSessions() {
		s.mu.Lock()
		idle := s.core.Idle()
		s.mu.Unlock()
		if !idle {
			return false
		}
	}
	return true
}

// Close ends every session and waits until no goroutine and no memory of the
// node is in use. Idempotent.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.listeners {
		_ = l.Close()
	}
	for c := range n.opening {
		_ = c.Close()
	}
	n.mu.Unlock()
	n.stop()
	for _, s := range n.allSessions() {
		s.drop(wire.CodeUnreachable)
	}
	n.running.Wait()
	return nil
}

// Stats are the counts of all sessions together. All but Totals are zero when
// nothing runs.
type Stats struct {
	Sessions, Lanes            int
	Calls, Waiting, Served     int
	Refs                       int // reads, writes and hashes under way
	CallBytes, ServedBytes     uint64
	BytesIn, BytesOut          uint64
	RequestsIn, RequestsOut    uint64
	ChecksumFailures, Refusals uint64
}

// Stats counts.
func (n *Node) Stats() Stats {
	st := Stats{Refusals: n.refusals.Load()}
	for _, s := range n.allSessions() {
		s.mu.Lock()
		c := s.core.Stats()
		for _, l := range s.lanes {
			if l != nil {
				st.Lanes++
			}
		}
		s.mu.Unlock()
		st.Sessions++
		st.add(c)
	}
	return st
}

func (st *Stats) add(c core.Stats) {
	st.Calls += c.Calls
	st.Waiting += c.Waiting
	st.Served += c.Served
	st.Refs += c.Refs
	st.CallBytes += c.CallBytes
	st.ServedBytes += c.ServedBytes
	st.BytesIn += c.Totals.BytesIn
	st.BytesOut += c.Totals.BytesOut
	st.RequestsIn += c.Totals.RequestsIn
	st.RequestsOut += c.Totals.RequestsOut
	st.ChecksumFailures += c.Totals.ChecksumFailures
}
