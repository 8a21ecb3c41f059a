package nixl

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/internal/child"
	"meridian/internal/door"
	"meridian/wire"
)

// The limits of the fabric.
const (
	maxItem   = 64<<20 + wire.HeaderLen // bytes
	maxBatch  = 1024
	maxPeers  = 64
	maxBlocks = 1 << 20 // in one peer

	// quarantineTime is how long memory of a peer rests whose write ended with nobody
	// knowing what of it is still under way.
	quarantineTime = 2 * time.Minute

	// MinStaging is twice the smallest transfers of one call, since a peer has half of the
	// staging at most.
	MinStaging = 2 * movesATime * leastMove
	// DefaultStaging has room for the largest ones of two calls with a peer.
	DefaultStaging = 4 * movesATime * mostMove
)

// PeerConfig is a listed peer.
type PeerConfig struct {
	Name    string
	Address string // HOST:PORT of its agent's listener, or by what it is found and its agent's name
}

// Store is what serving needs of *blocks.Store.
type Store interface {
	NewOwner(pid int) blocks.Owner
	NewOwnerFor(who quota.Holder, pid int) blocks.Owner
	Drop(o blocks.Owner)
	Lookup(ns wire.Namespace, chain []wire.Key, v []blocks.View) int
	Acquire(o blocks.Owner, v []blocks.View, ttl time.Duration, hold bool) (blocks.Lease, error)
	Release(o blocks.Owner, l blocks.Lease)
	Payload(v blocks.View) []byte
	Pulled(refs []wire.Ref)
}

// Observer hears what happens. Calls may be concurrent and must not block.
type Observer struct {
	// Changed is for a peer that came or went.
	Changed func()
	// Moved is a block that a peer brought (in) or took, by the transport via.
	Moved func(peer string, in bool, via string, bytes uint64, took time.Duration)
	// Refused is a request that was turned away: of a listed peer, or of who came to the
	// listener from an address.
	Refused func(who string, listed bool, err error)
	// Wrong is a payload that a peer brought and that did not match its checksum.
	Wrong func(peer string)
}

// Config is what a Node needs.
type Config struct {
	Label   string
	Agent   string // the begin of our agents' names
	Helper  HelperConfig
	Peers   []PeerConfig
	Window  uint64 // bytes of the window of each peer
	Staging uint64 // bytes, at least MinStaging
	Lanes   int    // calls that move bytes side by side
	// Notify has peers told of each block that was written into their memory.
	Notify bool
	// Tenants are those whose blocks peers may bring and take. NIXL proves none.
	Tenants []string

	// Listen is HOST:PORT of the listener to which agents send their metadata, and which
	// they ask for ours; "": there is none. Allow may use it, besides loopback.
	Listen string
	Allow  []netip.Prefix
	Doors  *door.Common // the shares of its connections, and of frames that have not come whole
	// TCPStore and Etcd are where agents look for ours, and where listed ones have
	// theirs; nil: nowhere. The Node closes them.
	TCPStore, Etcd plane.Store
	// Reap has the metadata of listed agents taken out of etcd when they are dead.
	Reap     bool
	reapTime time.Duration // 0: reapTime
	harmRest time.Duration // 0: harmRest

	Store    Store
	Windows  *window.Table
	Tenant   func(ns wire.Namespace) (string, bool)
	Observer Observer
	Gateway  fabric.Gateway // nil: none
}

// Node is the fabric: all listed peers, each of which is a fabric of its own too.
type Node struct {
	lent.Group
	cfg   Config
	store *lent.Store
	inbox *inbox
	allow door.Ranges

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup

	publishing sync.Mutex // our metadata

	changing sync.Mutex // the peers
	closed   bool       // under changing
	roster   atomic.Pointer[roster]

	draining atomic.Bool
	doing    atomic.Int64 // requests of peers that are done now
	restarts atomic.Uint64
	count    counters

	mu      sync.Mutex
	session *session // nil: there is none, and down says why
	down    error
	turn    chan struct{}         // closed when session changes
	there   map[plane.Store]error // of the last look whether ours are there
}

// New makes the fabric. The helper starts by itself, and again when it dies: Usable says
// how it stands.
func New(ctx context.Context, cfg Config) (*Node, error) {
	if len(cfg.Peers) > maxPeers {
		return nil, &fabric.Error{Code: wire.CodeConfig, Fabric: cfg.Label, Text: "peers", Have: maxPeers, Need: uint64(len(cfg.Peers))}
	}
	if cfg.Gateway == nil {
		cfg.Gateway = fabric.NoGateway{}
	}
	n := &Node{cfg: cfg, down: errors.New(program + " is being started"), turn: make(chan struct{}), there: map[plane.Store]error{}}
	n.allow.Set(cfg.Allow)
	n.inbox = newInbox(n)
	if err := n.inbox.listen(ctx, cfg.Listen); err != nil {
		return nil, errors.Join(err, n.closeStores())
	}
	n.life, n.end = context.WithCancel(context.Background())
	n.store = lent.New(lent.Config{
		Label: cfg.Label, MaxItem: maxItem, MaxBatch: maxBatch, MaxBlocks: maxBlocks, Lanes: max(cfg.Lanes, 1), Rest: quarantineTime, Stored: n.tell,
		Tenant: cfg.Tenant, Tenants: cfg.Tenants,
	}, nil)
	n.Group = n.store.All()
	peers := make([]*peer, len(cfg.Peers))
	for i, c := range cfg.Peers {
		peers[i] = newPeer(n, c)
	}
	n.enlist(peers, &roster{})
	n.running.Go(n.supervise)
	for _, store := range n.stores() {
		n.running.Go(func() { n.advertise(store) })
	}
	return n, nil
}

// advice is what a user can do about a helper that dies.
func advice(d *child.Death) string {
	switch {
	case len(d.Lacks) > 0:
		return "the wheels' UCX needs AVX: use a NIXL that was built for this processor"
	case d.Signal == 0:
		return "correct what it names in the fabric's table"
	}
	return "try another release of nixl-cu12, or another transport in environment (UCX_TLS)"
}

// supervise keeps a helper running until Close, or until it is clear that none will run.
func (n *Node) supervise() {
	r := child.Restarts{Name: program, Advice: advice, Most: n.cfg.Helper.rest}
	log := n.cfg.Helper.Log
	for n.life.Err() == nil {
		began := time.Now()
		s, err := n.openSession(n.life)
		if err == nil {
			log.Info("NIXL serves", "agent", s.agent, "library", s.library, "backend", n.cfg.Helper.Backend)
			n.publish(s, nil)
			select {
			case <-s.quit:
			case <-n.life.Done():
				s.process.end(errors.New("the fabric is closed"))
			}
			err = s.err()
			n.publish(nil, err)
			s.close()
		}
		if n.life.Err() != nil {
			break
		}
		n.restarts.Add(1)
		pause, failure := r.After(err, s != nil, time.Since(began))
		if failure != nil {
			log.Error("NIXL cannot be used, and is not tried again until the daemon is started again", "err", failure.Err, "what_to_do", failure.Advice)
			n.publish(nil, failure)
			return
		}
		log.Error("NIXL's helper is down", "err", err, "next_try_in", pause)
		n.publish(nil, err)
		select {
		case <-n.life.Done():
		case <-time.After(pause):
		}
	}
}

func (n *Node) publish(s *session, down error) {
	n.mu.Lock()
	n.session, n.down = s, down
	close(n.turn)
	n.turn = make(chan struct{})
	n.mu.Unlock()
	n.changed()
}

func (n *Node) changed() { n.cfg.Observer.Changed() }

// await waits for a helper that serves; nil: the context has ended.
func (n *Node) await(ctx context.Context) *session {
	for {
		n.mu.Lock()
		s, turn := n.session, n.turn
		n.mu.Unlock()
		if s != nil {
			return s
		}
		select {
		case <-ctx.Done():
			return nil
		case <-turn:
		}
	}
}

// Enabled is nil while there is a helper, and else says why there is none.
func (n *Node) Enabled() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// Usable says whether one peer at least can be asked.
func (n *Node) Usable(ns wire.Namespace) error {
	if down := n.Enabled(); down != nil {
		return &fabric.Error{Code: wire.CodeUnreachable, Fabric: n.cfg.Label, Cause: down}
	}
	return n.Group.Usable(ns)
}

// Allows reports whether a source address may use the listener: loopback, and what is
// listed.
func (n *Node) Allows(source netip.Addr) bool { return source.IsLoopback() || n.allow.Has(source) }

// SetAllow changes who may use the listener, also by connections that are open.
func (n *Node) SetAllow(list []netip.Prefix) {
	n.allow.Set(list)
	n.inbox.door.Recheck()
}

// Close ends calls under way, the peers' connections and the helper.
func (n *Node) Close() error {
	n.changing.Lock()
	n.closed = true
	n.changing.Unlock()
	n.end()
	n.store.Close()
	n.inbox.door.Close()
	n.running.Wait()
	return n.closeStores()
}
