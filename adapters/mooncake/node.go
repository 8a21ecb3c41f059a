package mooncake

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/maphash"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/stranger"
	"meridian/adapters/mooncake/metadata"
	"meridian/fabric"
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
}

// group is some of the listed peers as one fabric: all of them, or one.
type group struct {
	node  *Node
	peers []*peer // ascending by name
}

// Node is the fabric: all listed peers, each of which is a fabric of its own too.
type Node struct {
	group
	each      map[string]*onePeer
	cfg       Config
	initiator *engine.Initiator
	client    *handshake.Client
	seed      maphash.Seed
	server    *server
	maxBlocks int // of one peer; a test has few
	allow     metadata.Ranges

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup

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
	n := &Node{cfg: cfg, client: &handshake.Client{}, seed: maphash.MakeSeed(), each: map[string]*onePeer{}, maxBlocks: maxBlocks}
	if cfg.Log == nil {
		n.cfg.Log = slog.New(slog.DiscardHandler)
	}
	n.allow.Set(cfg.Allow)
	var resolver engine.Resolver = n.client
	if cfg.Plane != nil {
		resolver = cfg.Plane
		n.client.Dial = cfg.Dial
	}
	if len(cfg.Peers) > maxPeers {
		_ = n.closePlane()
		return nil, &fabric.Error{Code: wire.CodeConfig, Fabric: cfg.Label, Text: "peers", Have: maxPeers, Need: uint64(len(cfg.Peers))}
	}
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	n.initiator = engine.NewInitiator(engine.InitiatorConfig{Resolver: resolver, Lanes: cfg.Lanes, Dial: cfg.Dial, Allow: n.allow.Has})
	for _, p := range cfg.Peers {
		n.peers = append(n.peers, newPeer(n, p))
	}
	n.group = group{n, n.peers}
	slices.SortFunc(n.peers, func(a, b *peer) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range n.peers {
		n.each[p.Name] = &onePeer{group{n, []*peer{p}}}
	}
	if cfg.Serve != nil {
		var err error
		if n.server, err = n.serve(ctx, *cfg.Serve); err != nil {
			_ = n.Close()
			return nil, err
		}
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

// Label is the name of the fabric's table.
func (g *group) Label() string { return g.node.cfg.Label }

// Caps says that blocks are verified when they are pulled.
func (g *group) Caps() fabric.Caps {
	return fabric.Caps{Verified: true, MaxItem: maxItem, MaxBatch: maxBatch, Lanes: max(g.node.cfg.Lanes, 1)}
}

// Transports implements fabric.Transporter.
func (g *group) Transports() []string { return []string{via} }

func (n *Node) enter() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return &fabric.Error{Code: wire.CodeUnreachable, Fabric: n.cfg.Label, Text: "the fabric is closed"}
	}
	n.calls.Add(1)
	return nil
}

// begin says of each item why it cannot be looked at, and keeps the rules of Item. The
// context ends with the fabric too.
func (g *group) begin(ctx context.Context, it []fabric.Item) (within context.Context, leave func()) {
	within, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.node.life, cancel)
	entered := g.node.enter()
	ended := fabric.ContextError(ctx, g.node.cfg.Label)
	for i := range it {
		err := cmp.Or(entered, ended)
		if err == nil && i >= maxBatch {
			err = &fabric.Error{Code: wire.CodeTooMany, Fabric: g.node.cfg.Label, Have: maxBatch, Need: uint64(len(it))}
		}
		it[i].Via, it[i].Loose, it[i].Err = via, false, err
	}
	return within, func() {
		stop()
		cancel()
		for i := range it {
			if it[i].Err != nil {
				it[i].Head = wire.Header{}
			}
		}
		if entered == nil {
			g.node.calls.Done()
		}
	}
}

// part is what one peer has of a batch.
type part struct {
	items   []*fabric.Item
	heads   []wire.Header
	entries []*entry
}

// together runs f for each peer's part at the same time, and sets what it says.
func together(parts map[*peer]*part, f func(p *peer, of *part) []error) {
	var wg sync.WaitGroup
	for p, of := range parts {
		wg.Go(func() {
			for i, err := range f(p, of) {
				of.items[i].Err = err
				p.failures.note(p.failures.out, err)
			}
		})
	}
	wg.Wait()
}

func partOf(parts map[*peer]*part, p *peer) *part {
	if parts[p] == nil {
		parts[p] = &part{}
	}
	return parts[p]
}

// Push writes each payload that passes the strict reader into the memory of its peer.
func (g *group) Push(ctx context.Context, it []fabric.Item) {
	for i := range it {
		it[i].H = fabric.Handle{}
	}
	ctx, leave := g.begin(ctx, it)
	defer leave()
	parts := map[*peer]*part{}
	for i := range it {
		if it[i].Err != nil {
			continue
		}
		it[i].Err = g.accept(&it[i], parts)
	}
	together(parts, func(p *peer, of *part) []error { return p.push(ctx, of.items, of.heads) })
}

// accept checks a payload and adds it to its peer's part.
func (g *group) accept(it *fabric.Item, parts map[*peer]*part) error {
	if len(it.M.B) > maxItem {
		return &fabric.Error{Code: wire.CodeTooLarge, Fabric: g.node.cfg.Label, Have: maxItem, Need: uint64(len(it.M.B))}
	}
	head, _, err := wire.Decode(it.M.B, wire.Strict, wire.MaxBody)
	if err != nil {
		return err
	}
	p := g.home(it.NS, it.Key)
	if p == nil {
		return &fabric.Error{Code: wire.CodeUnreachable, Fabric: g.node.cfg.Label, Text: "no peer is listed"}
	}
	of := partOf(parts, p)
	of.items, of.heads = append(of.items, it), append(of.heads, head)
	return nil
}

// home is the peer that a block goes to: the one with the highest hash of those that
// can be used now.
func (g *group) home(ns wire.Namespace, key wire.Key) (best *peer) {
	var most uint64
	for _, usable := range []bool{true, false} {
		for i, p := range g.peers {
			if usable && p.usable() != nil {
				continue
			}
			if h := g.weight(ns, key, i); best == nil || h > most {
				best, most = p, h
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

func (g *group) weight(ns wire.Namespace, key wire.Key, i int) uint64 {
	var h maphash.Hash
	h.SetSeed(g.node.seed)
	_, _ = h.Write(ns[:])
	_, _ = h.Write(key[:])
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(i)))
	return h.Sum64()
}

// where is the peer that has what an item names.
func (g *group) where(it *fabric.Item) (*peer, *entry) {
	for _, p := range g.peers {
		if e := p.find(it); e != nil {
			return p, e
		}
	}
	return nil, nil
}

// use is where, and keeps the memory of what it found until leave.
func (g *group) use(it *fabric.Item) (*peer, *entry) {
	for _, p := range g.peers {
		if e := p.use(it); e != nil {
			return p, e
		}
	}
	return nil, nil
}

func (g *group) absent() error { return &fabric.Error{Code: wire.CodeAbsent, Fabric: g.node.cfg.Label} }

// Pull reads each payload out of the memory of its peer, and hashes it where it lies.
func (g *group) Pull(ctx context.Context, it []fabric.Item) {
	ctx, leave := g.begin(ctx, it)
	defer leave()
	parts := map[*peer]*part{}
	for i := range it {
		it[i].Proof = wire.Verified{}
		if it[i].Err != nil {
			continue
		}
		p, e := g.use(&it[i])
		switch {
		case e == nil:
			it[i].Err = g.absent()
		case uint64(len(it[i].M.B)) < e.size():
			p.endUse(e)
			it[i].Err = &fabric.Error{Code: wire.CodeTooLarge, Fabric: g.node.cfg.Label, Have: uint64(len(it[i].M.B)), Need: e.size()}
		default:
			of := partOf(parts, p)
			of.items, of.entries = append(of.items, &it[i]), append(of.entries, e)
		}
	}
	together(parts, func(p *peer, of *part) []error {
		defer func() {
			for _, e := range of.entries {
				p.endUse(e)
			}
		}()
		return p.pull(ctx, of.items, of.entries)
	})
}

// Find looks into the index.
func (g *group) Find(ctx context.Context, it []fabric.Item) {
	_, leave := g.begin(ctx, it)
	defer leave()
	for i := range it {
		if it[i].Err != nil {
			continue
		}
		p, e := g.where(&it[i])
		if e == nil || !p.sound(e) {
			it[i].Err = g.absent()
			continue
		}
		it[i].H, it[i].Head, it[i].Att = e.h, e.head, e.att
	}
}

// Drop forgets blocks; their memory is used again.
func (g *group) Drop(ctx context.Context, it []fabric.Item) {
	_, leave := g.begin(ctx, it)
	defer leave()
	for i := range it {
		if it[i].Err != nil {
			continue
		}
		if p, e := g.where(&it[i]); e == nil || !p.drop(e) {
			it[i].Err = g.absent()
		}
	}
}

// List calls f for each block of the index.
func (g *group) List(ctx context.Context, f func(fabric.Item) bool) error {
	if err := g.node.enter(); err != nil {
		return err
	}
	defer g.node.calls.Done()
	for _, p := range g.peers {
		for _, e := range p.all() {
			if err := fabric.ContextError(ctx, g.node.cfg.Label); err != nil {
				return err
			}
			if !f(fabric.Item{NS: e.ns, Key: e.key, Tier: e.tier, H: e.h, Head: e.head, Att: e.att, Via: via}) {
				return nil
			}
		}
	}
	return nil
}

func (p *peer) all() []*entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*entry, 0, len(p.byH))
	for _, e := range p.byH {
		if !e.wrong {
			out = append(out, e)
		}
	}
	return out
}

// Usable says whether one peer at least can be asked.
func (g *group) Usable(wire.Namespace) error {
	var last error
	for _, p := range g.peers {
		if last = p.usable(); last == nil {
			return nil
		}
	}
	if last == nil {
		last = &fabric.Error{Code: wire.CodeUnreachable, Fabric: g.node.cfg.Label, Text: "no peer is listed"}
	}
	return last
}

// Keeps says that the block is still in the index: a peer whose restart was noticed
// has lost its blocks, and one that overwrote a block has lost this.
func (g *group) Keeps(h fabric.Handle) bool {
	p, e := g.where(&fabric.Item{H: h})
	return p != nil && p.sound(e) && p.usable() == nil
}

// Quiesce has nothing to wait for: memory is touched only while a call runs.
func (g *group) Quiesce(ctx context.Context) error { return fabric.ContextError(ctx, g.node.cfg.Label) }

// Close ends calls under way, and what is served.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.end()
	if n.server != nil {
		n.server.close()
	}
	n.initiator.Close()
	n.calls.Wait()
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

// Probe writes 64 KiB into the memory of a peer, reads them back and compares them; ""
// is the first peer.
func (g *group) Probe(ctx context.Context, name string) (string, float64, error) {
	for _, p := range g.peers {
		if p.Name != name && name != "" {
			continue
		}
		if err := g.node.enter(); err != nil {
			return "", 0, err
		}
		defer g.node.calls.Done()
		if err := fabric.ContextError(ctx, g.node.cfg.Label); err != nil {
			return "", 0, err
		}
		took, size, err := p.probe(ctx)
		p.failures.note(p.failures.out, err)
		if err != nil || took <= 0 {
			return via, 0, err
		}
		return via, float64(size) / took.Seconds() / 1e9, nil
	}
	return "", 0, &fabric.Error{Code: wire.CodeUnreachable, Fabric: g.node.cfg.Label, Text: "no peer " + stranger.Quote(name) + " is listed"}
}
