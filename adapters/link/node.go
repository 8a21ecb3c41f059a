package link

import (
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/internal/halfopen"
	"meridian/internal/socketfile"
	"meridian/wire"
)

// Node is this agent's end of every link.
type Node struct {
	cfg      Config // but for what the roster has
	ctx      context.Context
	stop     context.CancelFunc
	roster   atomic.Pointer[roster] // stored under mu
	standing atomic.Int64           // Config.Standing, as Apply last said

	running  sync.WaitGroup // every goroutine of the node
	refusals atomic.Uint64  // connections and lanes
	hot      atomic.Int32   // readers and workers of lanes that do not wait
	procs    int            // processors that Go may use

	counting sync.Mutex
	callable atomic.Pointer[callable] // stored under counting

	places      halfopen.Table // accepted connections whose HELLOs are not through
	turningAway chan struct{}  // connections that are being told why they were refused

	mu         sync.Mutex
	listensTLS bool
	sessions   map[[16]byte]*session
	listeners  []net.Listener
	opening    map[net.Conn]struct{}  // accepted or dialled, HELLO not through
	past       map[string][]displaced // by identity.key
	twins      []*Duplicate           // the oldest first
	strangers  []Refused              // the oldest first
	closed     bool
	draining   bool
}

// New makes a node and begins to dial its peers. It serves nobody before Listen.
func New(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, sessions: map[[16]byte]*session{}, opening: map[net.Conn]struct{}{}, past: map[string][]displaced{},
		turningAway: make(chan struct{}, maxTurningAway), procs: runtime.GOMAXPROCS(0),
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	r := n.newRoster(Update{Peers: cfg.Peers, Tenants: cfg.Tenants, PSK: cfg.PSK, TLS: cfg.TLS}, nil)
	n.roster.Store(r)
	n.standing.Store(cfg.Standing)
	n.recount(nil)
	n.running.Add(1)
	go n.ticker()
	for _, p := range r.peers {
		n.dial(p)
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
	case a.network == viaTLS && n.roster.Load().tls == nil:
		return nil, fmt.Errorf("link listen %s: no certificate: %w", address, wire.CodeConfig)
	case a.network == viaTCP && !a.loopback() && !n.cfg.Insecure:
		return nil, fmt.Errorf("link listen %s: beyond loopback it takes tls:// or insecure = true: %w", address, wire.CodeConfig)
	}
	var l net.Listener
	if a.network == viaUnix {
		l, err = socketfile.ListenNet(a.target, n.socketMode(), unixBacklog)
	} else {
		lc := net.ListenConfig{KeepAlive: -1}
		l, err = lc.Listen(n.ctx, "tcp", a.target)
	}
	if err != nil {
		return nil, fmt.Errorf("link listen %s: %w", address, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_ = l.Close()
		return nil, fmt.Errorf("link listen %s: %w", address, net.ErrClosed)
	}
	n.listeners = append(n.listeners, l)
	n.listensTLS = n.listensTLS || a.network == viaTLS
	n.running.Add(1)
	go n.accept(l, a.network)
	return l.Addr(), nil
}

// socketMode is that of a Unix socket: for the daemon's own user, unless others are
// listed. Then everybody may knock, and the credentials decide.
func (n *Node) socketMode() fs.FileMode {
	if slices.ContainsFunc(n.cfg.UIDs, func(uid uint32) bool { return uid != uint32(os.Getuid()) }) {
		return 0o666
	}
	return 0o600
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

// knows reports whether an accepted session of that id lives.
func (n *Node) knows(id [16]byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sessions[id]
	return s != nil && !s.dialled
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
		s.entry.dropSession(s)
	}
	n.mu.Unlock()
	s.share.Give()
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
		wall := n.cfg.Wall()
		for _, s := range n.allSessions() {
			s.tick(wall)
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
	return n.roster.Load().byName[name]
}

// peers are those of the configuration, in its order.
func (n *Node) peers() []*Peer { return n.roster.Load().peers }

// Drain takes no new requests, tells the peers, and waits until what runs has
// ended, nothing has moved for drainStill, or ctx ends. Close follows.
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
	idle, last := n.going()
	since := n.cfg.Clock()
	for !idle {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		var moves uint64
		idle, moves = n.going()
		if now := n.cfg.Clock(); moves != last {
			last, since = moves, now
		} else if now-since >= drainStill {
			n.cfg.Log.Info("link drain: what still runs has not moved, and is not waited for", "for", drainStill)
			return
		}
	}
}

// going says whether nothing runs, and gives a number that changes while something
// moves.
func (n *Node) going() (idle bool, moves uint64) {
	idle = true
	for _, s := range n.allSessions() {
		s.mu.Lock()
		idle = idle && s.core.Idle()
		moves += s.core.Moves()
		s.mu.Unlock()
	}
	return idle, moves
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

// Stats counts all sessions together.
func (n *Node) Stats() fabric.Stats {
	st := fabric.Stats{Refusals: n.refusals.Load()}
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
		add(&st, c)
	}
	return st
}

func add(st *fabric.Stats, c core.Stats) {
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
