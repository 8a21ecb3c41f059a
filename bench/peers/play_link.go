package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"meridian/adapters/link"
	"meridian/blocks"
	"meridian/blocks/spaces"
	"meridian/fabric"
	"meridian/wire"
)

// linkModes are the transports of the link; each initiator is a node of its own
// with that name.
var linkModes = []string{"tcp", "tls", "unix"}

const targetName = "target"

// linkTarget is an agent that listens on all transports.
type linkTarget struct {
	far
	dir   string
	tls   *link.TLS
	node  *link.Node
	addrs map[string]string
}

func newLinkTarget(dir string) (target, error) {
	t, err := loadTLS(dir, targetName)
	return &linkTarget{far: far{agent: [16]byte{1}}, dir: dir, tls: t}, err
}

func (t *linkTarget) prepare(c Cell) (any, error) {
	if t.fits(c) {
		return t.addrs, nil
	}
	if err := t.close(); err != nil {
		return nil, err
	}
	if err := t.open(c); err != nil {
		return nil, err
	}
	cfg := link.Config{
		Agent: t.agent, Incarnation: t.inc, Name: targetName, Store: t.store, Namespaces: t.reg, Insecure: true, TLS: t.tls,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, m := range linkModes {
		cfg.Peers = append(cfg.Peers, link.PeerConfig{Name: m, Tenants: []string{tenant}})
	}
	var err error
	if t.node, err = link.New(cfg); err != nil {
		return nil, err
	}
	t.addrs = map[string]string{"unix": fmt.Sprintf("unix://%s/link-%d.sock", t.dir, t.inc)}
	if _, err := t.node.Listen(t.addrs["unix"]); err != nil {
		return nil, err
	}
	for _, m := range []string{"tcp", "tls"} {
		a, err := t.node.Listen(m + "://127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		t.addrs[m] = m + "://" + a.String()
	}
	return t.addrs, nil
}

func (t *linkTarget) close() error {
	var err error
	if t.node != nil {
		err = t.node.Close()
		t.node = nil
	}
	return errors.Join(err, t.far.close())
}

// linkInitiator pulls into reserved slots of its arena and gives them back
// unpublished, verified by then; it pushes from payloads whose header was made
// once, as that of a stored block is.
type linkInitiator struct {
	mode, dir string
	addr      string
	order     order
	near      uint64
	inc       uint64
	store     *blocks.Store
	reg       *spaces.Registry
	node      *link.Node
	peer      *link.Peer
	ns        wire.Namespace
	streams   []linkStream
	pushed    putCounter
}

type linkStream struct {
	owner blocks.Owner
	sizes []uint32
	items []fabric.Item
	slots []uint32
	out   [][]byte // payloads to push
}

func (l *linkInitiator) prepare(ctx context.Context, c Cell, peer json.RawMessage) error {
	var addrs map[string]string
	if err := json.Unmarshal(peer, &addrs); err != nil {
		return err
	}
	l.order = orderOf(c)
	if l.addr != addrs[l.mode] || l.near < c.near() {
		if err := l.connect(ctx, addrs[l.mode], c); err != nil {
			return err
		}
	}
	l.streams = make([]linkStream, c.Streams)
	for w := range l.streams {
		s := linkStream{owner: l.store.NewOwner(0), items: make([]fabric.Item, c.Batch), slots: make([]uint32, c.Batch), sizes: make([]uint32, c.Batch)}
		for j := range s.sizes {
			s.sizes[j] = uint32(c.Size)
			if c.Op == Write {
				p := aligned(wire.HeaderLen + c.Size + 32)[32:] // bodies begin at a multiple of 64
				body := p[wire.HeaderLen:]
				fill(body, seedLocal, l.order.local(w, j))
				if _, err := wire.Seal(p, wire.OutputCritical); err != nil {
					return err
				}
				s.out = append(s.out, p)
			}
		}
		l.streams[w] = s
	}
	return nil
}

func (l *linkInitiator) connect(ctx context.Context, addr string, c Cell) error {
	if err := l.close(); err != nil {
		return err
	}
	t, err := loadTLS(l.dir, l.mode)
	if err != nil {
		return err
	}
	l.inc++
	agent := [16]byte{2}
	copy(agent[1:], l.mode)
	if l.store, err = blocks.Open(blocks.Config{Capacity: 2*c.near() + 64<<20, ExtentBytes: extent(c.Size), Agent: agent, Incarnation: l.inc}); err != nil {
		return err
	}
	l.reg = spaces.New(l.store.AddNamespace)
	if l.ns, err = l.reg.Add(manifest(c.Size)); err != nil {
		return err
	}
	if l.node, err = link.New(link.Config{
		Agent: agent, Incarnation: l.inc, Name: l.mode, Store: l.store, Namespaces: l.reg, Insecure: true, TLS: t,
		Peers: []link.PeerConfig{{Name: targetName, Addr: addr, Tenants: []string{tenant}}},
	}); err != nil {
		return err
	}
	l.addr, l.near, l.peer = addr, c.near(), l.node.Peer(targetName)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return l.peer.Ready(ctx)
}

func (l *linkInitiator) move(ctx context.Context, stream, k int, seen *seen) error {
	ctx = fabric.WithClass(ctx, fabric.ClassUrgent)
	if l.order.Op == Write {
		return l.push(ctx, stream, seen)
	}
	return l.pull(ctx, stream, k, seen)
}

func (l *linkInitiator) pull(ctx context.Context, stream, k int, seen *seen) error {
	s := &l.streams[stream]
	views, err := l.store.Reserve(s.owner, l.ns, s.sizes, time.Minute)
	if err != nil {
		return err
	}
	for j := range s.items {
		room := l.store.Room(views[j])
		if seen != nil {
			clear(room)
		}
		s.items[j] = fabric.Item{NS: l.ns, Key: heldKey(l.ns, l.order.item(stream, k, j)), M: fabric.Mem{B: room}}
		s.slots[j] = views[j].Ref.Slot
	}
	l.peer.Pull(ctx, s.items)
	defer l.store.Abort(s.owner, s.slots)
	for j := range s.items {
		it := &s.items[j]
		if it.Err != nil {
			return fmt.Errorf("pull: %w", it.Err)
		}
		if it.Via != l.mode {
			return fmt.Errorf("pull went over %q, not %s", it.Via, l.mode)
		}
		if seen != nil {
			if err := seen.read(j, it.M.B[wire.HeaderLen:][:l.order.Size]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *linkInitiator) push(ctx context.Context, stream int, seen *seen) error {
	s := &l.streams[stream]
	for j := range s.items {
		n := l.pushed.next()
		s.items[j] = fabric.Item{NS: l.ns, Key: putKey(l.ns, n), Tier: wire.OutputCritical, Att: wire.AttestProducer, M: fabric.Mem{B: s.out[j]}}
		if seen != nil {
			seen.put(j, n)
		}
	}
	l.peer.Push(ctx, s.items)
	for j := range s.items {
		if err := s.items[j].Err; err != nil {
			return fmt.Errorf("push: %w", err)
		}
	}
	return nil
}

func (l *linkInitiator) close() error {
	var errs []error
	if l.node != nil {
		errs = append(errs, l.node.Close())
	}
	if l.store != nil {
		errs = append(errs, l.store.Close())
	}
	l.node, l.store, l.addr = nil, nil, ""
	return errors.Join(errs...)
}
