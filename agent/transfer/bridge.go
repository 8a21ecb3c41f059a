package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

var _ fabric.Gateway = (*Mover)(nil)

// What a peer brings goes on to another fabric (design.md, flow 4), in order:
//
//	1 admit    Bring takes room in the queue, or refuses the block before it is stored
//	2 store    the fabric publishes it in the arena: only then its sum was checked
//	3 pin      a lease keeps it there until it has gone on
//	4 forward  forward.go pushes it to where the routes send it, header unchanged
//	5 remember where it is now, so that it is not pushed there again
//
// The queue's bytes bound what the arena keeps for it. A source may have a quarter of
// them and a fabric half, so that neither one that brings too much nor one that takes
// nothing uses up what others need.
const (
	sourceShare   = 4       // a source may have one of so many parts of the queue
	fabricShare   = 2       // and a fabric
	leastCost     = 4 << 10 // bytes that a block counts for, at least
	mostWaiting   = 1 << 15 // blocks
	maxHops       = 8       // daemons that a block comes through
	rememberedFor = 1 << 16 // blocks whose place is remembered
	parcelTTL     = forwardTime + recoverTime + attemptTime + 5*time.Second
)

// parcel is a block on its way from one fabric to another.
type parcel struct {
	from  fabric.Hop
	id    blockID
	what  fabric.Brought
	to    string // fabric of the first rule: whose share it counts for
	cost  uint64
	began time.Time

	// Under the bridge's lock.
	stored bool // it is published, so that it goes on
	other  bool // somebody else has brought it before it was

	view  blocks.View // pinned by lease
	lease blocks.Lease

	cut *cut // it goes on while it comes; see through.go

	failed map[string]error // by registry name: what the routes chose, and did not take it
	tries  int              // on the path that was chosen last
	last   string           // fabric that failed last
	err    error            // how
	ctx    context.Context  // of its span
	span   trace.Span
}

// bridge is what waits to be sent on, and where blocks went.
type bridge struct {
	mu      sync.Mutex
	lines   map[string]*line // by registry name; "" for what no route takes now
	waiting map[blockID]*parcel
	bytes   uint64
	from    map[string]uint64 // bytes by the source's registry name
	to      map[string]uint64 // bytes by the fabric of the first rule
	known   places
	cutting int               // blocks that go on while they come
	cuts    map[string]uint64 // of them, by the source's registry name

	forwarded, exists, expired, refused, loops, cutThrough atomic.Uint64

	loopFrom atomic.Pointer[string]
}

// BridgeStats counts blocks that go from one fabric to another.
type BridgeStats struct {
	Waiting      int    `json:"waiting"` // blocks
	WaitingBytes uint64 `json:"waiting_bytes"`
	LimitBytes   uint64 `json:"limit_bytes"`
	Forwarded    uint64 `json:"forwarded"`   // that another fabric acknowledged
	CutThrough   uint64 `json:"cut_through"` // of them, those that went on while they came
	Exists       uint64 `json:"exists"`      // that were there already
	Expired      uint64 `json:"expired"`     // that no fabric took in time
	Refused      uint64 `json:"refused"`     // that were not stored, since too much waits
	Loops        uint64 `json:"loops"`       // that came back
	LoopFrom     string `json:"loop_from,omitempty"`
	Looks        uint64 `json:"looks"` // blocks that peers asked for and that were looked for elsewhere
	Found        uint64 `json:"found"` // of them
}

// BridgeStats counts.
func (m *Mover) BridgeStats() BridgeStats {
	g := &m.bridge
	st := BridgeStats{
		LimitBytes: m.cfg.BridgeBytes, Forwarded: g.forwarded.Load(), CutThrough: g.cutThrough.Load(), Exists: g.exists.Load(), Expired: g.expired.Load(),
		Refused: g.refused.Load(), Loops: g.loops.Load(), Looks: m.looks.asked.Load(), Found: m.looks.found.Load(),
	}
	if from := g.loopFrom.Load(); from != nil {
		st.LoopFrom = *from
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	st.Waiting, st.WaitingBytes = len(g.waiting), g.bytes
	return st
}

// Bring implements fabric.Gateway.
func (m *Mover) Bring(from fabric.Hop, b fabric.Brought) (fabric.Passage, error) {
	if !m.cfg.Routes.Bridges(from.Fabric) {
		return fabric.Stays{}, nil
	}
	p := &parcel{from: from, id: blockID{b.NS, b.Key}, what: b, began: time.Now()}
	for _, r := range m.cfg.Routes.Matching(p.query()) {
		p.to = family(r.Fabric)
		break
	}
	if p.to == "" {
		return fabric.Stays{}, nil
	}
	if from.Hops >= maxHops {
		m.looped(p)
		return fabric.Stays{}, nil
	}
	g := &m.bridge
	g.mu.Lock()
	at, was := g.known.by[p.id]
	g.mu.Unlock()
	if was && m.Copied(at.loc) {
		m.again(p, at.hops)
		return fabric.Stays{}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if first, on := g.waiting[p.id]; on {
		m.again(p, first.from.Hops)
		if first.stored {
			return fabric.Stays{}, nil
		}
		return &passage{m, p, first}, nil
	}
	if err := g.take(p, m.cfg.BridgeBytes); err != nil {
		g.refused.Add(1)
		m.cfg.Observer.Bridged(from.Fabric, p.to, BridgeRefused, 0)
		return nil, err
	}
	return &passage{m, p, nil}, nil
}

func (p *parcel) query() fabric.Query {
	return fabric.Query{From: p.from, NS: p.id.ns, Tier: p.what.Tier, AnyPeer: true, Bytes: p.what.Bytes, Failed: p.failed}
}

// again is for a block that was brought before, and had come through so many daemons: one
// that has come through more of them came back by way of this one.
func (m *Mover) again(p *parcel, before int) {
	if p.from.Hops > before {
		m.looped(p)
	}
}

// looped notes a block that came back, or came through too many daemons.
func (m *Mover) looped(p *parcel) {
	from := p.from.Name()
	m.bridge.loops.Add(1)
	m.bridge.loopFrom.Store(&from)
	m.cfg.Observer.Bridged(p.from.Fabric, p.to, BridgeLoop, 0)
}

// take counts a block against the queue.
func (g *bridge) take(p *parcel, limit uint64) error {
	ofSource, ofFabric := limit/sourceShare, limit/fabricShare
	p.cost = max(p.what.Bytes+wire.HeaderLen, leastCost, limit/mostWaiting)
	source := p.from.Name()
	refuse := func(code wire.Code, whose string, have, most uint64) error {
		return &fabric.Error{Code: code, Fabric: p.to, Have: most - min(have, most), Need: p.cost,
			Text: fmt.Sprintf("of what waits to be sent on, %s has %d of %d bytes (gateway.queue_bytes)", whose, have, most)}
	}
	switch {
	case p.cost > ofSource:
		return refuse(wire.CodeTooLarge, "a block", 0, ofSource)
	case g.bytes+p.cost > limit:
		return refuse(wire.CodeBusy, "the queue", g.bytes, limit)
	case g.from[source]+p.cost > ofSource:
		return refuse(wire.CodeBusy, "the source "+source, g.from[source], ofSource)
	case g.to[p.to]+p.cost > ofFabric:
		return refuse(wire.CodeBusy, "the fabric "+p.to, g.to[p.to], ofFabric)
	}
	if g.waiting == nil {
		g.waiting, g.from, g.to, g.lines = map[blockID]*parcel{}, map[string]uint64{}, map[string]uint64{}, map[string]*line{}
	}
	g.waiting[p.id] = p
	g.bytes += p.cost
	g.from[source] += p.cost
	g.to[p.to] += p.cost
	return nil
}

// give takes back what take counted.
func (g *bridge) give(p *parcel) {
	delete(g.waiting, p.id)
	g.bytes -= p.cost
	less(g.from, p.from.Name(), p.cost)
	less(g.to, p.to, p.cost)
}

func less(m map[string]uint64, key string, n uint64) {
	if m[key] -= n; m[key] == 0 {
		delete(m, key)
	}
}

// stored pins a block that was published, and sends it on.
func (m *Mover) stored(p *parcel, err error) {
	g := &m.bridge
	g.mu.Lock()
	if p.stored = err == nil || errors.Is(err, wire.CodeExists) || p.other; !p.stored {
		g.give(p)
	}
	g.mu.Unlock()
	m.endCut(p, err)
	if p.stored {
		m.pin(p)
	}
	switch {
	case m.cutGoesOn(p):
	case p.cut != nil:
		m.cutOver(p)
	case p.stored:
		m.queuePinned(p) // the caller may hold what the routes ask for
	}
}

// pin keeps a block that was published where it is until it has gone on; its time begins.
func (m *Mover) pin(p *parcel) {
	p.began = time.Now()
	m.bridge.mu.Lock()
	m.trace(p)
	m.bridge.mu.Unlock()
	v := []blocks.View{{NS: p.id.ns, Key: p.id.key}}
	lease, err := m.cfg.Store.Acquire(m.bridgeOwner, v, parcelTTL, false)
	switch {
	case err != nil:
	case v[0].Err != nil:
		err = v[0].Err
	case v[0].Seg == 0:
		err = wire.CodeAbsent // it was copied away, and is not here any more
	}
	if err != nil {
		p.err = err
		if lease != (blocks.Lease{}) {
			m.cfg.Store.Release(m.bridgeOwner, lease)
		}
		return
	}
	p.lease, p.view = lease, v[0]
}

// storedToo is the end of a block which another one was admitted to bring first: it goes
// on by that one, or where that came to nothing by itself.
func (m *Mover) storedToo(first, p *parcel, err error) {
	if err != nil && !errors.Is(err, wire.CodeExists) {
		return
	}
	g := &m.bridge
	g.mu.Lock()
	waits := g.waiting[p.id] == first
	first.other = first.other || waits
	g.mu.Unlock()
	if waits {
		return
	}
	if again, err := m.Bring(p.from, p.what); err == nil {
		again.End(wire.CodeExists)
	}
}

// BridgeOutcome is what became of a block that was to go on.
type BridgeOutcome string

// The outcomes.
const (
	BridgeForwarded BridgeOutcome = "forwarded" // a fabric acknowledged it
	BridgeExists    BridgeOutcome = "exists"    // it was there already
	BridgeExpired   BridgeOutcome = "expired"   // no fabric took it in time: it stays in the arena
	BridgeRefused   BridgeOutcome = "refused"   // it was not stored, since too much waits
	BridgeLoop      BridgeOutcome = "loop"      // it came back, and stays
)

// BridgeOutcomes are all that there are.
func BridgeOutcomes() []BridgeOutcome {
	return []BridgeOutcome{BridgeForwarded, BridgeExists, BridgeExpired, BridgeRefused, BridgeLoop}
}

// finish ends a parcel's way.
func (m *Mover) finish(p *parcel, what BridgeOutcome, to string, err error) {
	g := &m.bridge
	if p.lease != (blocks.Lease{}) {
		m.cfg.Store.Release(m.bridgeOwner, p.lease)
	}
	var bytes uint64
	switch what {
	case BridgeForwarded:
		g.forwarded.Add(1)
		bytes = p.what.Bytes
	case BridgeExists:
		g.exists.Add(1)
	case BridgeExpired:
		g.expired.Add(1)
		m.cfg.Observer.Failed(wire.CodeOf(err))
		p.span.SetStatus(otelcodes.Error, wire.CodeOf(err).String())
	}
	if to == "" {
		to = p.to
	}
	g.mu.Lock()
	g.give(p)
	g.mu.Unlock()
	m.cfg.Observer.Bridged(p.from.Fabric, to, what, bytes)
	p.span.SetAttributes(attribute.String("to", to), attribute.String("outcome", string(what)))
	p.span.End()
}

// place is where a block was sent, which had come through so many daemons.
type place struct {
	loc  blocks.Loc
	hops int
}

// places is where blocks were sent; the oldest are forgotten.
type places struct {
	by   map[blockID]place
	ring []blockID
	next int
}

func (k *places) note(id blockID, at place) {
	if k.by == nil {
		k.by = map[blockID]place{}
	}
	_, had := k.by[id]
	k.by[id] = at
	switch {
	case had:
	case len(k.ring) < rememberedFor:
		k.ring = append(k.ring, id)
	default:
		delete(k.by, k.ring[k.next])
		k.ring[k.next] = id
		k.next = (k.next + 1) % rememberedFor
	}
}
