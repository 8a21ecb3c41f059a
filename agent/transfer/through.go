package transfer

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// Cut-through: a block goes on while it comes, where its destination can hold it back until
// this daemon has checked it (fabric.Streamer: the link). In order:
//
//	1 through  the block was let in and has a home
//	2 begin    its bytes are next: Loose keeps the slot from other uses, and a goroutine
//	           picks the destination, as for any block
//	3 stream   the destination gets what is in place, and commits when stored has said
//	           that the block is published here
//	4 stored   as without cut-through: pinned, its time begins
//	5 cutOver  when both 3 and 4 are over: it has arrived, or climbs the ladder of
//	           forward.go as a block that was stored first
//
// Who brings the block never waits for any of it. Whatever goes wrong at the destination
// costs the block nothing but the time gained.
const (
	cutsAtATime  = 64 // of all sources: a goroutine each
	cutsOfSource = 16
)

// cut is a block that goes on while it comes.
type cut struct {
	what  fabric.Coming
	grow  *fabric.Growing
	quiet func() // the slot may be used otherwise; nil where it was not begun

	to    destination // that was tried; none: name ""
	began time.Time
	item  fabric.Item // with its outcome

	// Under the bridge's lock.
	runs   bool // between begin and the end of its goroutine
	ended  bool // stored is over
	spoilt bool // the block was not published by the one that brought it
}

// CutOutcome is what became of a block that was to go on while it came.
type CutOutcome string

// The outcomes.
const (
	CutForwarded CutOutcome = "forwarded" // the destination had it so
	CutFellBack  CutOutcome = "fell_back" // it was stored first, and goes on as others do
	CutDropped   CutOutcome = "dropped"   // it did not become a block here: nothing of it is anywhere
)

// CutOutcomes are all that there are.
func CutOutcomes() []CutOutcome { return []CutOutcome{CutForwarded, CutFellBack, CutDropped} }

// passage is a block that Bring has let in.
type passage struct {
	m     *Mover
	p     *parcel
	first *parcel // that somebody else was let in with before; nil: it waits by itself
}

var _ fabric.Passage = (*passage)(nil)

// Through implements fabric.Passage.
func (x *passage) Through(c fabric.Coming) *fabric.Growing {
	if x.first != nil {
		return nil
	}
	return x.m.through(x.p, c)
}

// End implements fabric.Passage.
func (x *passage) End(err error) {
	if x.first != nil {
		x.m.storedToo(x.first, x.p, err)
		return
	}
	x.m.stored(x.p, err)
}

// through prepares a block to go on while it comes, where its first route leads to a
// Streamer.
func (m *Mover) through(p *parcel, c fabric.Coming) *fabric.Growing {
	if m.cfg.CutBytes == 0 || p.what.Bytes < m.cfg.CutBytes {
		return nil
	}
	f, _ := m.cfg.Fabrics.Get(p.to)
	if _, ok := f.(fabric.Streamer); !ok {
		return nil
	}
	x := &cut{what: c}
	x.grow = fabric.NewGrowing(func() { m.begin(p) })
	m.bridge.mu.Lock()
	defer m.bridge.mu.Unlock()
	p.cut = x
	return x.grow
}

// begin starts the goroutine of a block whose bytes are next, where its source has fewer
// than its share of them. The caller may hold what the routes ask for.
func (m *Mover) begin(p *parcel) {
	g := &m.bridge
	g.mu.Lock()
	defer g.mu.Unlock()
	source := p.from.Name()
	if m.ctx.Err() != nil || p.cut == nil || p.cut.ended || g.cutting >= cutsAtATime || g.cuts[source] >= cutsOfSource {
		return
	}
	if g.cuts == nil {
		g.cuts = map[string]uint64{}
	}
	g.cutting++
	g.cuts[source]++
	p.cut.runs = true
	p.cut.quiet = m.cfg.Store.Loose([]uint32{p.cut.what.Slot}) // it is reserved: more of it is to come
	m.trace(p)
	m.wg.Go(func() { m.stream(p) })
}

// trace begins the span of a parcel, if it has none yet.
func (m *Mover) trace(p *parcel) {
	if p.span == nil {
		p.ctx, p.span = m.cfg.Tracer.Start(m.ctx, "meridian.forward", trace.WithAttributes(
			attribute.String("from", p.from.Fabric), attribute.String("peer", p.from.Peer), attribute.Int64("bytes", int64(p.what.Bytes)), attribute.Int("hops", p.from.Hops)))
	}
}

// stream sends one block on while it comes.
func (m *Mover) stream(p *parcel) {
	x := p.cut
	x.began = time.Now()
	x.item = fabric.Item{NS: p.id.ns, Key: p.id.key, Tier: x.what.Head.Tier, Head: x.what.Head, Att: x.what.Att, M: fabric.Mem{B: x.what.Body}}
	to, streamer := m.cutTo(p)
	if streamer != nil {
		x.to = to
		ctx, cancel := context.WithTimeout(fabric.WithHops(fabric.WithClass(p.ctx, fabric.ClassNormal), p.from.Hops+1), attemptTime)
		items := []fabric.Item{x.item}
		m.call(ctx, what{to.name, to.fabric, false, OpThrough}, items, func(ctx context.Context) { streamer.Stream(ctx, &items[0], x.grow) })
		cancel()
		m.hold(to.name, to.fabric, items, func(int) uint32 { return x.what.Slot })
		x.item = items[0]
	}
	g := &m.bridge
	g.mu.Lock()
	x.runs = false
	g.cutting--
	less(g.cuts, p.from.Name(), 1)
	over := x.ended
	g.mu.Unlock()
	if over {
		m.cutOver(p)
	}
}

// cutTo is where a block goes on while it comes; a nil Streamer: it is stored first. So
// are those that would overtake others, or go to who brings them.
func (m *Mover) cutTo(p *parcel) (destination, fabric.Streamer) {
	c, err := m.cfg.Routes.Pick(p.query())
	if err != nil {
		return destination{}, nil
	}
	to := m.home(c, p.id.ns, p.id.key)
	streamer, ok := to.fabric.(fabric.Streamer)
	if !ok || to.name == p.from.Name() || usable(to.fabric, p.id.ns) != nil {
		return destination{}, nil
	}
	g := &m.bridge
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.lines[to.name]; l != nil && len(l.wait) > 0 {
		return destination{}, nil
	}
	return to, streamer
}

// endCut tells the destination what became of the block here.
func (m *Mover) endCut(p *parcel, err error) {
	x := p.cut
	if x == nil {
		return
	}
	if errors.Is(err, wire.CodeExists) { // it was checked, and another one was quicker
		err = nil
	}
	m.bridge.mu.Lock()
	x.spoilt = err != nil
	m.bridge.mu.Unlock()
	x.grow.End(err)
}

// cutGoesOn notes that stored is over, and reports whether the goroutine of the block will
// see to the rest.
func (m *Mover) cutGoesOn(p *parcel) bool {
	if p.cut == nil {
		return false
	}
	m.bridge.mu.Lock()
	defer m.bridge.mu.Unlock()
	p.cut.ended = true
	return p.cut.runs
}

// cutOver ends the cut-through of a block: it has arrived, or goes on as one that was
// stored. The caller may hold what the routes ask for.
func (m *Mover) cutOver(p *parcel) {
	x := p.cut
	p.cut = nil
	if x.quiet != nil {
		x.quiet() // not before the slot is given back or published: until then it is the fabric's
	}
	tried := x.to.name != ""
	err := arrived(&x.item)
	m.bridge.mu.Lock()
	stored := p.stored
	m.bridge.mu.Unlock()
	switch {
	case !tried:
	case err == nil:
		m.attempted(x.to.name, p, &x.item, x.began, OpThrough)
		m.cutCounted(p, x, CutForwarded)
		m.arrivedAt(x.to, p, &x.item)
		return
	case !stored:
		m.cutCounted(p, x, CutDropped)
	default:
		m.cutCounted(p, x, CutFellBack)
		if !x.spoilt && !errors.Is(err, fabric.ErrStarved) {
			m.attempted(x.to.name, p, &x.item, x.began, OpThrough)
			p.blame(x.to, err)
		}
	}
	if stored {
		m.queuePinned(p)
		return
	}
	if p.span != nil {
		p.span.SetStatus(otelcodes.Error, "not stored")
		p.span.End()
	}
}

// blame notes what the destination of a cut-through failed with. A path that failed or hung
// has had its first push. What was refused is asked for anew: there are more pushes at a time
// than without cut-through, so that the peer may have no room for one that it takes next.
func (p *parcel) blame(to destination, err error) {
	p.err, p.last = err, family(to.name)
	switch {
	case hangs(err):
		p.failed = alsoFailed(p.failed, to.route, err)
	case passes(err) && !errors.Is(err, wire.CodeBusy):
		p.tries = 1
	}
}

func (m *Mover) cutCounted(p *parcel, x *cut, outcome CutOutcome) {
	if outcome == CutForwarded {
		m.bridge.cutThrough.Add(1)
	}
	m.cfg.Observer.CutThrough(p.from.Fabric, family(x.to.name), outcome)
	p.span.SetAttributes(attribute.String("cut_through", string(outcome)))
}

// queuePinned lets a block that is stored go on.
func (m *Mover) queuePinned(p *parcel) {
	if p.lease == (blocks.Lease{}) {
		m.finish(p, BridgeExpired, "", p.err)
		return
	}
	m.queue(destination{name: intake}, p, false)
}
