package mooncake

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/metadata"
	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/internal/door"
	"meridian/wire"
)

// The limits of the fabric.
const (
	maxItem  = 64<<20 + wire.HeaderLen // bytes
	maxBatch = 1024
	maxPeers = 64

	// maxBlocks bounds the index of one peer: the length of its memory is its own word.
	maxBlocks = 1 << 20
	via       = "tcp"
)

// PeerConfig is a listed peer.
type PeerConfig struct {
	Name    string
	Segment string // by which its segment is opened
}

// Config is what a Node needs.
type Config struct {
	Label string
	Peers []PeerConfig
	Lent  uint64 // bytes of each peer's first buffer that are this daemon's to write; 0: all
	Lanes int    // connections to each peer; 0: engine.DefaultLanes
	// Plane is the metadata server that peers and this daemon are found by; nil: there is
	// none, and a peer's name is the address of its handshake. The Node closes it.
	Plane metadata.Plane
	// Dial looks where an entry of the metadata server leads to.
	Dial metadata.Dialer
	// Notify has peers told of each block that was written into their memory. Their
	// engine keeps the messages until the application takes them.
	Notify bool
	// Allow are the addresses where a peer may say that its data plane is, besides those
	// of its segment's name.
	Allow []netip.Prefix
	Serve *ServeConfig // nil: nothing is served
	Log   *slog.Logger // nil: nothing is logged

	maxBlocks int // of one peer; a test has few
}

// Node is the fabric: all listed peers, each of which is a fabric of its own too.
type Node struct {
	lent.Group
	roster    atomic.Pointer[roster]
	changing  sync.Mutex     // whoever puts another roster in its place
	closed    bool           // under changing: no other comes
	running   sync.WaitGroup // the ends of peers that are listed no more
	store     *lent.Store
	cfg       Config
	initiator *engine.Initiator
	client    *handshake.Client
	server    *server
	allow     door.Ranges

	life context.Context // ends with Close
	end  context.CancelFunc

	planeOnce sync.Once

	count counters
}

var (
	_ fabric.Fabric      = (*Node)(nil)
	_ fabric.Finder      = (*Node)(nil)
	_ fabric.Dropper     = (*Node)(nil)
	_ fabric.Lister      = (*Node)(nil)
	_ fabric.Prober      = (*Node)(nil)
	_ fabric.Gate        = (*Node)(nil)
	_ fabric.Keeper      = (*Node)(nil)
	_ fabric.Transporter = (*Node)(nil)
)

// New makes the fabric, and opens what it serves. Peers are reached when they are
// first needed.
func New(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, client: &handshake.Client{}}
	if cfg.Log == nil {
		n.cfg.Log = slog.New(slog.DiscardHandler)
	}
	n.allow.Set(cfg.Allow)
	var resolver engine.Resolver = n.client
	if cfg.Plane != nil {
		resolver = cfg.Plane
		n.client.Dial = cfg.Dial
	}
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	n.initiator = engine.NewInitiator(engine.InitiatorConfig{Resolver: resolver, Lanes: cfg.Lanes, Dial: cfg.Dial, Allow: n.allow.Has})
	var served ServeConfig
	if cfg.Serve != nil {
		served = *cfg.Serve
	}
	n.store = lent.New(lent.Config{
		Tenant: served.Tenant, Tenants: served.Tenants,
		Label: cfg.Label, MaxItem: maxItem, MaxBatch: maxBatch, MaxBlocks: cmp.Or(cfg.maxBlocks, maxBlocks), Lanes: max(cfg.Lanes, 1), Rest: quarantineTime,
		Stored: n.tell, Failed: func(p lent.Peer, err error) {
			f := &p.(*peer).failures
			f.note(f.out, err)
		},
	}, nil)
	n.Group = n.store.All()
	n.roster.Store(&roster{})
	if cfg.Serve != nil {
		n.server = newServer(n, *cfg.Serve)
	}
	next, err := n.Prepare(cfg.Peers)
	if err == nil {
		err = next.Apply()
	}
	if err == nil && n.server != nil {
		err = n.server.open(ctx)
	}
	if err != nil {
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

// SetAllow changes who may connect, and where a peer may say that its data plane is. The
// connections of who may no more are closed. Those to peers are made again, by the new
// list, when their calls have ended.
func (n *Node) SetAllow(list []netip.Prefix) {
	n.allow.Set(list)
	n.initiator.Recheck()
	if s := n.server; s != nil {
		s.allow.Set(list)
		s.daemon.Recheck()
		s.target.Recheck()
	}
}

// Transports implements fabric.Transporter.
func (n *Node) Transports() []string { return []string{via} }

// Close ends calls under way, and what is served.
func (n *Node) Close() error {
	n.changing.Lock()
	n.closed = true
	n.changing.Unlock()
	n.end()
	n.store.Close()
	if n.server != nil {
		n.server.close()
	}
	n.running.Wait()
	n.initiator.Close()
	return n.closePlane()
}

// closePlane closes it once: the daemon closes what serves before it closes all.
func (n *Node) closePlane() (err error) {
	if n.cfg.Plane != nil {
		n.planeOnce.Do(func() { err = n.cfg.Plane.Close() })
	}
	return err
}

// handshakeOf is where a peer answers handshakes.
func (n *Node) handshakeOf(ctx context.Context, p *peer) (string, error) {
	if n.cfg.Plane == nil {
		return p.Segment, nil
	}
	at, err := n.cfg.Plane.Endpoint(ctx, p.Segment)
	return at.Addr(), err
}
