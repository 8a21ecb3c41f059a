package link

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// label is the link's fabric label.
const label = "link"

var (
	_ fabric.Fabric = (*Peer)(nil)
	_ fabric.Finder = (*Peer)(nil)
	_ fabric.Prober = (*Peer)(nil)
)

// classOf is the context's class. Without one the tier decides: OutputCritical is
// urgent, ThinkActive normal, ThinkComplete bulk.
func classOf(ctx context.Context, it []fabric.Item) proto.Class {
	if c, ok := fabric.ClassOf(ctx); ok {
		return proto.Class(c)
	}
	class := proto.ClassBulk
	for i := range it {
		switch it[i].Tier {
		case wire.OutputCritical:
			return proto.ClassUrgent
		case wire.ThinkActive:
			class = proto.ClassNormal
		}
	}
	return class
}

// Label implements fabric.Fabric.
func (p *Peer) Label() string { return label }

// Caps implements fabric.Fabric. Larger batches are cut.
func (p *Peer) Caps() fabric.Caps { return p.node.caps() }

// Quiesce implements fabric.Fabric. A call returns only once its memory is
// quiet, so there is nothing to wait for.
func (p *Peer) Quiesce(ctx context.Context) error { return fabric.ContextError(ctx, label) }

// Close implements fabric.Fabric: the peer is not dialled any more, and the
// session that this side dialled ends.
func (p *Peer) Close() error {
	p.closed.Store(true)
	p.mu.Lock()
	s := p.dialled
	p.mu.Unlock()
	p.poke()
	if s != nil {
		s.drop(wire.CodeUnreachable)
	}
	return nil
}

func (p *Peer) poke() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func codeError(code wire.Code, text string) error {
	if code == wire.CodeOK {
		return nil
	}
	if text == "" {
		return code
	}
	return &fabric.Error{Code: code, Fabric: label, Text: text}
}

func failAll(it []fabric.Item, err error) {
	for i := range it {
		it[i].Err, it[i].Loose, it[i].Via = err, false, ""
	}
}

// usable is the session for a call whose context is not over: what is over before
// the call must not be asked for, however fast the answer would come.
func (p *Peer) usable(ctx context.Context) (*session, error) {
	if err := fabric.ContextError(ctx, label); err != nil {
		return nil, err
	}
	return p.session()
}

// batch is one call of the fabric: its items, and which of them are to be asked
// for.
type batch struct {
	p     *Peer
	s     *session
	it    []fabric.Item
	num   []uint16 // the peer's number of each item's namespace
	ref   []bool   // the caller named the item by reference
	at    []int    // items that have no verdict yet
	class proto.Class
	hops  uint32
}

// batch opens the namespaces that the items need. Items that cannot be asked
// for get their Err.
func (p *Peer) batch(ctx context.Context, s *session, it []fabric.Item) *batch {
	b := &batch{p: p, s: s, it: it, num: make([]uint16, len(it)), ref: make([]bool, len(it)), class: classOf(ctx, it), hops: uint32(fabric.HopsOf(ctx))}
	b.at = make([]int, 0, len(it))
	for i := range it {
		x := &it[i]
		x.Err, x.Loose, x.Via = nil, false, s.via
		if b.ref[i] = x.H != (fabric.Handle{}); b.ref[i] {
			if !s.made(wire.RefOf(x.H)) {
				x.Err = &fabric.Error{Code: wire.CodeStale, Fabric: label, Text: "the reference is of another peer or incarnation"}
				continue
			}
		}
		if i > 0 && x.NS == it[i-1].NS && b.num[i-1] != 0 {
			b.num[i] = b.num[i-1]
		} else if b.num[i], x.Err = s.open(ctx, x.NS); x.Err != nil {
			continue
		}
		b.at = append(b.at, i)
	}
	return b
}

// want is an item's name on the wire.
func (b *batch) want(i int) core.Item {
	x := &b.it[i]
	w := core.Item{NS: b.num[i], Key: x.Key}
	if b.ref[i] {
		r := wire.RefOf(x.H)
		w.Slot, w.Gen = r.Slot, r.Gen
	}
	return w
}

// found copies what the holder said about each item.
func (b *batch) found(c *core.Call, at []int) {
	for n, i := range at {
		x, a := &b.it[i], &c.Items[n]
		x.Err = codeError(a.Code, c.Text)
		if a.Code != wire.CodeOK && a.Code != wire.CodeExists {
			continue
		}
		x.Att = a.Att // as the holder says: who vouches for a checksum is not for this side to say
		if a.Gen != 0 {
			x.H = b.s.handle(a.Slot, a.Gen)
		}
		if h, err := wire.ParseHeader(a.Head[:], wire.Strict, wire.MaxBody); err == nil {
			x.Head = h
		}
	}
}

// Find implements fabric.Finder.
func (p *Peer) Find(ctx context.Context, it []fabric.Item) {
	s, err := p.usable(ctx)
	if err != nil {
		failAll(it, err)
		return
	}
	b := p.batch(ctx, s, it)
	for at := b.at; len(at) > 0; {
		n := min(len(at), int(b.granted().Items))
		c := &core.Call{Type: proto.TypeHas, Class: b.class, Hops: b.hops, Items: make([]core.Item, n)}
		for k, i := range at[:n] {
			c.Items[k] = b.want(i)
		}
		s.retryBusy(ctx, c)
		b.found(c, at[:n])
		at = at[n:]
	}
}

// Probe implements fabric.Prober: it pushes one block of 1 MiB to the peer, in
// a namespace that serves for nothing else, and pulls it back.
func (p *Peer) Probe(ctx context.Context, peer string) (via string, gbps float64, err error) {
	if peer != "" && peer != p.cfg.Name {
		return "", 0, &fabric.Error{Code: wire.CodeUnreachable, Fabric: label, Text: "this is " + p.cfg.Name + ", not " + peer}
	}
	s, err := p.session()
	if err != nil {
		return "", 0, err
	}
	ctx = fabric.WithClass(ctx, fabric.ClassNormal) // no user waits for it
	ns, err := p.probeNamespace(s)
	if err != nil {
		return s.via, 0, err
	}
	body := make([]byte, probeBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body) // the same each time, and nothing that a path could make shorter
	payload, err := wire.AppendPayload(nil, wire.ThinkComplete, body)
	if err != nil {
		return s.via, 0, err
	}
	it := []fabric.Item{{NS: ns, Key: wire.KeyOf(ns, []byte(probeModel)), Att: wire.AttestProducer, M: fabric.Mem{B: payload}}}
	p.Push(ctx, it)
	if it[0].Err != nil && wire.CodeOf(it[0].Err) != wire.CodeExists {
		return s.via, 0, it[0].Err
	}
	it[0].H = fabric.Handle{}
	it[0].M.B = make([]byte, len(payload))
	start := p.node.cfg.Clock()
	p.Pull(ctx, it)
	took := p.node.cfg.Clock() - start
	if it[0].Err != nil {
		return it[0].Via, 0, it[0].Err
	}
	return it[0].Via, rate(probeBytes, took), nil
}

// rate is in GB/s; 0 where the time is too short to tell.
func rate(bytes float64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return bytes / took.Seconds() / 1e9
}

// The block that Probe moves.
const (
	probeBytes = 1 << 20
	probeModel = "meridian/probe"
	probeRole  = "probe" // of a namespace whose blocks are for nobody but who pushed them
)

// probeNamespace is a namespace of a tenant that the two sides share already,
// where there is one: a tenant of its own would take a segment of its own.
func (p *Peer) probeNamespace(s *session) (wire.Namespace, error) {
	var shared []string
	s.mu.Lock()
	for ns, e := range s.ns {
		if tenant, ok := p.node.cfg.Namespaces.Tenant(ns); ok && e.answeredOK() {
			shared = append(shared, tenant)
		}
	}
	s.mu.Unlock()
	slices.Sort(shared) // the same one each time
	first := append(append(shared, s.peer.tenants.Names...), probeModel)[0]
	return p.node.cfg.Namespaces.Add(wire.Manifest{Tenant: first, Model: probeModel, Role: probeRole, BlockBytes: probeBytes})
}
