package mooncake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/internal/door"
	"meridian/wire"
)

// Store is what serving needs of *blocks.Store.
type Store interface {
	NewOwnerFor(who quota.Holder, pid int) blocks.Owner
	Drop(o blocks.Owner)
	Lookup(ns wire.Namespace, chain []wire.Key, v []blocks.View) int
	Acquire(o blocks.Owner, v []blocks.View, ttl time.Duration, hold bool) (blocks.Lease, error)
	Release(o blocks.Owner, l blocks.Lease)
	Payload(v blocks.View) []byte
	Pulled(refs []wire.Ref)
}

// ServeConfig is what peers may do here.
type ServeConfig struct {
	Listen    string      // HOST:PORT of the handshake
	Data      string      // HOST:PORT of the data plane
	Advertise string      // host that peers connect to; "": that of Listen
	Window    uint64      // bytes of the window of each listed peer
	Segment   string      // the name on the metadata server; "": HOST:PORT of the handshake
	Epoch     uint64      // of this start: grows with each; for the metadata server
	Lend      *LendConfig // nil: this daemon is no storage node
	// Allow are the source addresses that may connect; none: the same host only.
	Allow []netip.Prefix
	// Tenants are those whose blocks peers may bring and take. Mooncake proves none.
	Tenants []string

	Doors   *door.Common // nil: there are no limits
	Store   Store
	Windows *window.Table
	Tenant  func(ns wire.Namespace) (string, bool)

	Observer Observer
	Gateway  fabric.Gateway // nil: none
}

// Observer hears what peers do. Calls may be concurrent and must not block.
type Observer struct {
	// Moved is a block that a peer brought (in) or took.
	Moved func(peer string, in bool, bytes uint64, took time.Duration)
	// Refused is a connection or request that was turned away, of a listed peer or of
	// somebody else.
	Refused func(peer string, listed bool, err error)
	// Wrong is a payload that a peer brought and that did not match its checksum.
	Wrong func(peer string)
}

const (
	leaseTime  = time.Minute      // for a block while it is written to a peer
	getTime    = 20 * time.Second // for a block that a peer asked for; its engine waits for 60 s
	getsOfPeer = 4                // at a time

	// notifiesOfPeer bounds those that are done at a time: each may hash a payload, and
	// each ends with a notify to the peer, which may take its time. One more is refused
	// without.
	notifiesOfPeer = 64
)

// server is the serving half of a Node.
type server struct {
	ServeConfig
	node  *Node
	allow door.Ranges

	data, at netip.AddrPort
	sources
	daemon    *handshake.Server
	target    *engine.Target
	publisher *metadata.Publisher // nil: there is no metadata server
	storage   *storage            // nil: nothing is lent
	began     string              // the timestamp of our descriptor
	doing     atomic.Int64        // notifies that are being done
	drains    atomic.Bool
}

// guest is a listed peer as it comes in.
type guest struct {
	*peer
	owner  blocks.Owner
	window window.Window
	gets   chan struct{} // a place for each request that runs
	tasks  chan struct{} // a place for each notify that is being done

	mu    sync.Mutex
	ended bool // it is listed no more
	doing sync.WaitGroup
}

// enter lets a notify in; false: the peer is listed no more. leave is g.doing.Done.
func (g *guest) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.doing.Add(1)
	}
	return !g.ended
}

// newServer makes one that listens nowhere.
func newServer(n *Node, c ServeConfig) *server {
	if c.Gateway == nil {
		c.Gateway = fabric.NoGateway{}
	}
	s := &server{ServeConfig: c, node: n, began: time.Now().UTC().Format("2006-01-02 15:04:05.000000")}
	s.allow.Set(c.Allow)
	s.target = engine.NewTarget(engine.TargetConfig{Memory: s, Admit: s.admit, Refused: s.refused, Served: n.count.served, Doors: c.Doors})
	s.daemon = handshake.NewServer(handshake.Config{Descriptor: s.descriptor, Notified: s.notified, Admit: s.admit, Refused: s.refused, Doors: c.Doors})
	return s
}

// open opens the ports. The windows of listed peers are there.
func (s *server) open(ctx context.Context) error {
	s.keepLooking(ctx)
	err := s.lend()
	if err != nil {
		return fmt.Errorf("store_node_bytes: %w", err)
	}
	if s.data, err = s.target.Listen(ctx, s.Data); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	if s.at, err = s.daemon.Listen(ctx, s.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if s.node.cfg.Plane != nil {
		s.publisher = metadata.Keep(ctx, s.node.cfg.Plane, s.node.cfg.Log, time.After, s.published)
	}
	return s.offer(ctx)
}

// invite gives a listed peer its window.
func (s *server) invite(p *peer) (g *guest, err error) {
	who := quota.Holder{Kind: quota.Peer, Name: p.Name()}
	g = &guest{peer: p, owner: s.Store.NewOwnerFor(who, 0), gets: make(chan struct{}, getsOfPeer), tasks: make(chan struct{}, notifiesOfPeer)}
	g.window, err = s.Windows.Open(g.owner, window.Spec{
		Bytes: s.Window, TTL: window.Forever, Read: true, Write: true, Peers: []string{p.Name()}, For: []quota.Holder{who},
	})
	if err != nil {
		s.dismiss(g)
		return nil, fmt.Errorf("peer %s: %w", p.Name(), err)
	}
	return g, nil
}

// dismiss ends a peer's window, so that late writes are refused, and then what it has of
// the store, once its notifies are done.
func (s *server) dismiss(g *guest) {
	s.Windows.Drop(g.owner)
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.doing.Wait()
	s.Store.Drop(g.owner)
}

// guest is the listed peer of a name, as it comes in; nil: there is none.
func (s *server) guest(name string) *guest { return s.node.roster.Load().guests[name] }

// admit says who comes from an address: a listed peer, or somebody who may look.
func (s *server) admit(source netip.Addr) (string, error) {
	source = source.WithZone("")
	switch g := s.from(source); {
	case !source.IsLoopback() && !s.allow.Has(source):
	case g != nil:
		return g.Name(), nil
	default:
		return source.String(), nil
	}
	return source.String(), fmt.Errorf("mooncake: source address %v is in none of the ranges of allow: %w", source, wire.CodeAuth)
}

// ourHost is where peers connect to.
func (s *server) ourHost() string {
	if s.Advertise != "" {
		return s.Advertise
	}
	return s.at.Addr().String()
}

func (s *server) ourName() string {
	if s.Segment != "" {
		return s.Segment
	}
	return segment.Name(s.ourHost(), s.at.Port())
}

// descriptor is our segment as a peer sees it: its own window, if it is listed.
func (s *server) descriptor(name string) segment.Descriptor {
	if g := s.guest(name); g != nil {
		return s.describe(g.window)
	}
	return s.describe(window.Window{})
}

func (s *server) describe(w window.Window) segment.Descriptor {
	d := segment.Descriptor{
		Name: s.ourName(), Protocols: []string{segment.TCP}, DataHost: s.ourHost(), DataPort: s.data.Port(), Proto: engine.ProtoOurs,
		Timestamp: s.began,
	}
	if w.Len > 0 {
		d.Buffers = []segment.Buffer{{Name: d.Name, Addr: w.Addr, Len: w.Len}}
	}
	d.Buffers = append(d.Buffers, s.storage.buffers(d.Name)...)
	return d
}

// published is what the metadata server is to have: one descriptor for all peers.
func (s *server) published() metadata.Node {
	return metadata.Node{At: metadata.Endpoint{Host: s.ourHost(), Port: s.at.Port(), Epoch: s.Epoch}, Segment: s.describe(s.node.roster.Load().common)}
}

// own is an address as its peer means it. A metadata server has one descriptor for all,
// so that each peer reaches its own window by the one address that stands there.
func (s *server) own(g *guest, addr uint64) uint64 {
	common := s.node.roster.Load().common
	if g != nil && addr-common.Addr < common.Len {
		return g.window.Addr + (addr - common.Addr)
	}
	return addr
}

// Enter implements engine.Memory.
func (s *server) Enter(peer string, addr, n uint64, write bool) (b []byte, leave func(wrote uint64), err error) {
	if b, leave, err, ours := s.storage.enter(peer, addr, n, write); ours {
		return b, leave, err
	}
	return s.Windows.Enter(peer, s.own(s.guest(peer), addr), n, write)
}

func (s *server) refused(peer string, err error) {
	s.node.count.refusals.Add(1)
	g := s.guest(peer)
	if g != nil {
		g.failures.note(g.failures.in, err)
	}
	s.Observer.Refused(peer, g != nil, err)
}

// notified does what a peer asks for, before it is answered. All lines are checked before
// anything is done.
func (s *server) notified(c *door.Conn, n handshake.Notify) error {
	list, err := parseMessages(n.Text)
	if err != nil {
		return err
	}
	g := s.guest(c.Peer)
	if g == nil || !g.enter() {
		return fmt.Errorf("mooncake: a notify of %s, which is not listed: %w", c.Peer, wire.CodeDenied)
	}
	defer g.doing.Done()
	select {
	case g.tasks <- struct{}{}:
		defer func() { <-g.tasks }()
	default:
		return fmt.Errorf("mooncake: %d notifies of peer %s are being done, limit %d: %w", notifiesOfPeer, g.Name(), notifiesOfPeer, wire.CodeBusy)
	}
	s.doing.Add(1)
	defer s.doing.Add(-1)
	for _, m := range list {
		if err := s.mayAsk(m); err != nil {
			return err
		}
	}
	return s.does(g, list)
}

// mayAsk says whether a peer may ask for that, now.
func (s *server) mayAsk(m message) error {
	if s.drains.Load() {
		return fmt.Errorf("mooncake: notify to %s: %w", m.verb, wire.CodeDraining)
	}
	tenant, known := s.Tenant(m.ns)
	if !known || !slices.Contains(s.Tenants, tenant) { // whether it exists is not told
		return fmt.Errorf("mooncake: notify to %s: namespace %v is not open here for peers: %w", m.verb, m.ns, wire.CodeNSUnknown)
	}
	return nil
}

// does does one thing after the other, and tells the peer what became of each: its engine
// does not tell the application whether a notify was refused. The error is the last one;
// the others are counted here.
func (s *server) does(g *guest, list []message) (failed error) {
	lines := make([]string, len(list))
	for i, m := range list {
		began := time.Now()
		body, err := s.one(g, m)
		if err == nil {
			s.Observer.Moved(g.Name(), m.verb == verbPut, body, time.Since(began))
		} else {
			if failed != nil {
				s.refused(g.Name(), failed)
			}
			failed = err
		}
		lines[i] = m.notice().Answer(wire.CodeOf(err))
	}
	s.node.send(g.listed, g.peer, strings.Join(lines, "\n"), len(lines))
	return failed
}

func (s *server) one(g *guest, m message) (body uint64, err error) {
	if m.verb == verbGet {
		return s.get(g, m)
	}
	if g.listed.Err() != nil || s.drains.Load() { // meanwhile
		return 0, fmt.Errorf("mooncake: notify to %s: %w", m.verb, wire.CodeDraining)
	}
	m.addr = s.own(g, m.addr)
	return m.n - wire.HeaderLen, s.put(g, m)
}

// put publishes a payload that lies in a peer's window. A key that is there already is
// as good.
func (s *server) put(g *guest, m message) error {
	if m.addr < g.window.Addr || m.n > g.window.Len || m.addr-g.window.Addr > g.window.Len-m.n {
		return fmt.Errorf("mooncake: notify to put: %d bytes at %d are not in the window of %d bytes at %d: %w", m.n, m.addr, g.window.Len, g.window.Addr, wire.CodeInvalid)
	}
	b, leave, err := s.Windows.Own(g.owner, m.addr, wire.HeaderLen)
	if err != nil {
		return err
	}
	own := [wire.HeaderLen]byte(b) // the peer may go on writing
	leave()
	head, err := wire.ParseHeader(own[:], wire.Strict, wire.MaxBody)
	if err != nil {
		return fmt.Errorf("mooncake: notify to put: the payload at %d: %w", m.addr, err)
	}
	if m.n != wire.HeaderLen+uint64(head.BodyLen) {
		return fmt.Errorf("mooncake: notify to put: a payload of %d bytes whose header says %d: %w", m.n, wire.HeaderLen+uint64(head.BodyLen), wire.CodeInvalid)
	}
	c := blocks.Commit{NS: m.ns, Key: m.key, Tier: head.Tier, Head: &head}
	passage, err := s.Gateway.Bring(fabric.Hop{Fabric: s.node.cfg.Label, Peer: g.Name()}, fabric.Brought{NS: m.ns, Key: m.key, Tier: head.Tier, Bytes: uint64(head.BodyLen)})
	if err != nil {
		return fmt.Errorf("mooncake: notify to put: %w", err)
	}
	err = s.Windows.Publish(g.owner, m.addr+wire.HeaderLen, &c)
	passage.End(err)
	switch {
	case errors.Is(err, wire.CodeExists):
		return nil
	case errors.Is(err, wire.CodeChecksum):
		s.Observer.Wrong(g.Name())
	}
	return err
}

// get writes a block's payload to where a peer wants it. A peer has a few such requests
// at a time.
func (s *server) get(g *guest, m message) (body uint64, err error) {
	select {
	case g.gets <- struct{}{}:
		defer func() { <-g.gets }()
	default:
		return 0, fmt.Errorf("mooncake: notify to get: %d requests of peer %s run, limit %d: %w", getsOfPeer, g.Name(), getsOfPeer, wire.CodeBusy)
	}
	ctx, cancel := context.WithTimeout(g.listed, getTime)
	defer cancel()
	v, keys := make([]blocks.View, 1), []wire.Key{m.key}
	if s.Store.Lookup(m.ns, keys, v) != 1 || v[0].Seg == 0 {
		s.Gateway.Look(ctx, fabric.Hop{Fabric: s.node.cfg.Label, Peer: g.Name()}, m.ns, keys)
	}
	if s.Store.Lookup(m.ns, keys, v) != 1 || v[0].Err != nil || v[0].Seg == 0 {
		return 0, fmt.Errorf("mooncake: notify to get: block %v: %w", m.key, cmp.Or(v[0].Err, error(wire.CodeAbsent)))
	}
	lease, err := s.Store.Acquire(g.owner, v, leaseTime, false)
	if err != nil {
		return 0, err
	}
	defer s.Store.Release(g.owner, lease)
	if v[0].Err != nil {
		return 0, v[0].Err
	}
	payload := s.Store.Payload(v[0])
	if uint64(len(payload)) > m.n {
		return 0, fmt.Errorf("mooncake: notify to get: a payload of %d bytes, room for %d: %w", len(payload), m.n, wire.CodeTooLarge)
	}
	if err = g.give(ctx, m.addr, payload); err == nil {
		s.Store.Pulled([]wire.Ref{v[0].Ref})
	}
	return uint64(len(payload)) - wire.HeaderLen, err
}

// give writes to where a peer has said, if it has registered it. Where that fails, the
// next call goes by the descriptor that the peer has then.
func (p *peer) give(ctx context.Context, addr uint64, payload []byte) error {
	ctx, leave, err := p.call(ctx)
	if err != nil {
		return err
	}
	defer leave()
	seg, err := p.node.initiator.Open(ctx, p.Segment)
	if err != nil {
		return err
	}
	d, _ := seg.Descriptor()
	if !d.Covers(addr, uint64(len(payload))) {
		if err := seg.Refresh(ctx); err != nil { // registered since
			return err
		}
		if d, _ = seg.Descriptor(); !d.Covers(addr, uint64(len(payload))) {
			return fmt.Errorf("mooncake: %d bytes at %d are in no buffer of peer %s: %w", len(payload), addr, p.Name(), wire.CodeInvalid)
		}
	}
	ops := []engine.Op{{Addr: addr, B: payload}}
	seg.Write(ctx, ops)
	p.after(ctx, seg, ops[0].Err)
	return ops[0].Err
}

// active is how many requests and notifies are under way.
func (s *server) active() int { return s.target.Active() + int(s.doing.Load()) }

// close ends what is served: first that it is found, then who comes, then what they can
// reach.
func (s *server) close() {
	s.sources.close()
	if s.publisher != nil {
		s.publisher.Close()
	}
	if err := s.storage.close(); err != nil {
		s.node.cfg.Log.Warn("mooncake store node: the master was not told of the end; it notices by itself", "err", err)
	}
	if s.storage == nil && s.Lend != nil { // it was not opened
		_ = s.Lend.Close()
	}
	s.daemon.Close()
	s.target.Close()
	for _, g := range s.node.roster.Load().guests {
		s.dismiss(g)
	}
}
