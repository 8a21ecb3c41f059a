package transfer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// A block that is sent on climbs a ladder until a fabric has it:
//
//	1 retry      the same path, after a pause, where the error may pass; not where the
//	             push hung: then nothing that waits for the path waits any longer
//	2 recover    the path cannot be used: its fabric connects anew, or starts another
//	             helper, and is waited for
//	3 next route what the routes say where this path has failed
//	4 next lap   all routes have failed: all of them again, after a pause
//
// until its time is over: then it stays in the arena, and is counted. A path that has
// acknowledged it, or says that it is there, ends the ladder; no path gets it a second
// time. Each destination has a line and a goroutine of its own.
const (
	forwardTime  = time.Minute            // the whole ladder
	attemptTime  = 10 * time.Second       // a push
	pathAttempts = 3                      // on one path, before the next route
	attemptPause = 100 * time.Millisecond // before the second; doubled
	recoverTime  = 5 * time.Second        // for a path that cannot be used
	recoverLook  = 20 * time.Millisecond
	lapPause     = time.Second
	parcelItems  = 64
	parcelBytes  = 16 << 20
)

// intake is the line of what no route was chosen for yet. No fabric has such a name.
const intake = "/"

// line is what waits for one destination.
type line struct {
	to   destination
	wait []*parcel
	down time.Time // since when the path cannot be used; zero: it can
}

// dispatch puts a parcel into the line that the routes say now.
func (m *Mover) dispatch(p *parcel) {
	if m.late(p) {
		return
	}
	c, err := m.cfg.Routes.Pick(p.query())
	if err != nil {
		if p.err == nil {
			p.err = err
		}
		p.failed, p.tries = nil, 0
		m.queue(destination{}, p, false)
		return
	}
	if c.Fallback {
		m.cfg.Observer.FellBack(c.Wanted, c.Name)
	}
	to := m.home(c, p.id.ns, p.id.key)
	if to.name == p.from.Name() { // who brought it is who shall have it
		m.finish(p, BridgeExists, family(to.name), nil)
		return
	}
	m.queue(to, p, false)
}

// late ends a parcel whose time is over, and reports whether it is.
func (m *Mover) late(p *parcel) bool {
	if time.Since(p.began) < forwardTime {
		return false
	}
	m.cfg.Log(slog.LevelWarn, "forward.expired", "a block that a peer brought was sent on by no route in time: it stays in the arena",
		"from", p.from.Name(), "key", p.id.key.String(), "tried_last", p.last, "err", p.err)
	m.finish(p, BridgeExpired, p.last, p.err)
	return true
}

// queue puts a parcel into a line, whose goroutine it starts where none runs.
func (m *Mover) queue(to destination, p *parcel, first bool) {
	g := &m.bridge
	g.mu.Lock()
	if m.ctx.Err() != nil {
		g.mu.Unlock()
		m.finish(p, BridgeExpired, "", fabric.ContextError(m.ctx, ""))
		return
	}
	defer g.mu.Unlock()
	l := g.lines[to.name]
	if l == nil {
		l = &line{to: to}
		g.lines[to.name] = l
		m.wg.Go(func() { m.run(l) })
	}
	if first {
		l.wait = slices.Insert(l.wait, 0, p)
	} else {
		l.wait = append(l.wait, p)
	}
}

// run serves a line, and ends when nothing waits in it.
func (m *Mover) run(l *line) {
	for {
		batch := m.nextParcels(l)
		switch {
		case batch == nil:
			return
		case m.ctx.Err() != nil:
			for _, p := range batch {
				m.finish(p, BridgeExpired, "", fabric.ContextError(m.ctx, ""))
			}
		case l.to.name == intake:
			for _, p := range batch {
				m.dispatch(p)
			}
		case l.to.name == "":
			m.nextLap(batch)
		default:
			m.attempt(l, batch)
		}
	}
}

// nextParcels takes what goes in one call: parcels of one namespace that came through as
// many daemons.
func (m *Mover) nextParcels(l *line) (batch []*parcel) {
	g := &m.bridge
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(l.wait) == 0 {
		delete(g.lines, l.to.name)
		return nil
	}
	var bytes uint64
	first, items := l.wait[0], parcelItems
	if l.to.fabric != nil && l.to.fabric.Caps().MaxBatch > 0 {
		items = min(items, l.to.fabric.Caps().MaxBatch)
	}
	for _, p := range l.wait {
		if bytes += p.what.Bytes; l.to.name != "" && len(batch) > 0 && (len(batch) == items || bytes > parcelBytes || p.id.ns != first.id.ns || p.from.Hops != first.from.Hops) {
			break
		}
		batch = append(batch, p)
	}
	l.wait = slices.Delete(l.wait, 0, len(batch))
	return batch
}

// nextLap sends what no route took the same ways again.
func (m *Mover) nextLap(batch []*parcel) {
	sleep(m.ctx, lapPause)
	for _, p := range batch {
		m.dispatch(p)
	}
}

// attempt pushes a batch once, and sends each block to the rung of the ladder that
// its outcome asks for.
func (m *Mover) attempt(l *line, batch []*parcel) {
	if batch = slices.DeleteFunc(batch, m.late); len(batch) == 0 {
		return
	}
	began := time.Now()
	items := m.parcels(batch)
	if err := m.await(l, batch[0].id.ns); err != nil {
		for i := range items {
			items[i].Err = err
		}
	} else {
		m.push(l, batch, items)
	}
	var again []*parcel
	var hung error
	for i, p := range batch {
		err := arrived(&items[i])
		m.attempted(l.to.name, p, &items[i], began, OpForward)
		switch {
		case err == nil:
			m.arrivedAt(l.to, p, &items[i])
		default:
			if hangs(err) {
				hung = err
			}
			if p.tries++; p.tries < pathAttempts && passes(err) && l.down.IsZero() {
				p.err, p.last = err, family(l.to.name)
				again = append(again, p)
				continue
			}
			m.leave(l, p, err)
		}
	}
	if hung != nil {
		m.bridge.mu.Lock()
		rest := l.wait
		l.wait = nil
		m.bridge.mu.Unlock()
		for _, p := range append(again, rest...) {
			m.leave(l, p, hung)
		}
		return
	}
	if len(again) == 0 {
		return
	}
	sleep(m.ctx, attemptPause<<(again[0].tries-1))
	for _, p := range slices.Backward(again) {
		m.queue(l.to, p, true)
	}
}

// arrivedAt ends the way of a parcel that a path has, and remembers where it is.
func (m *Mover) arrivedAt(to destination, p *parcel, it *fabric.Item) {
	m.bridge.mu.Lock()
	m.bridge.known.note(p.id, place{blocks.Loc{Fabric: to.route, H: it.H}, p.from.Hops})
	m.bridge.mu.Unlock()
	outcome := BridgeForwarded
	if it.Err != nil {
		outcome = BridgeExists
	}
	m.finish(p, outcome, family(to.name), nil)
}

// leave sends a parcel to the next route.
func (m *Mover) leave(l *line, p *parcel, err error) {
	p.err, p.last = err, family(l.to.name)
	p.failed, p.tries = alsoFailed(p.failed, l.to.route, err), 0
	m.dispatch(p)
}

// hangs says whether a push ended because its time was over.
func hangs(err error) bool {
	switch wire.CodeOf(err) {
	case wire.CodeDeadline, wire.CodeCancelled, wire.CodeNoProgress:
		return true
	}
	return false
}

// passes says whether the same push may go well a moment later.
func passes(err error) bool {
	switch wire.CodeOf(err) {
	case wire.CodeBusy, wire.CodeLaneLost, wire.CodeUnreachable, wire.CodeStale, wire.CodeInternal:
		return true
	}
	return false
}

// await waits for a path that cannot be used, but once for all that waits for it.
func (m *Mover) await(l *line, ns wire.Namespace) error {
	for {
		f, ok := m.cfg.Fabrics.Get(l.to.name)
		if !ok {
			return &fabric.Error{Code: wire.CodeUnreachable, Fabric: l.to.name, Text: "the peer is listed no more"}
		}
		l.to.fabric = f
		err := usable(f, ns)
		switch {
		case err == nil:
			l.down = time.Time{}
			return nil
		case errors.Is(err, wire.CodeNSUnknown):
			return err
		case l.down.IsZero():
			l.down = time.Now()
		case time.Since(l.down) >= recoverTime || !sleep(m.ctx, recoverLook):
			return err
		}
	}
}

func (m *Mover) parcels(batch []*parcel) []fabric.Item {
	items := make([]fabric.Item, len(batch))
	for i, p := range batch {
		v := &p.view
		items[i] = fabric.Item{NS: v.NS, Key: v.Key, Tier: v.Head.Tier, Att: v.Att, M: fabric.Mem{B: m.cfg.Store.Payload(*v), Seg: v.Seg, Off: v.Off}}
	}
	return items
}

// push is one call on the destination.
func (m *Mover) push(l *line, batch []*parcel, items []fabric.Item) {
	ctx, cancel := context.WithTimeout(fabric.WithHops(fabric.WithClass(batch[0].ctx, fabric.ClassNormal), batch[0].from.Hops+1), attemptTime)
	defer cancel()
	m.call(ctx, what{l.to.name, l.to.fabric, false, OpForward}, items, func(ctx context.Context) { l.to.fabric.Push(ctx, items) })
	m.hold(l.to.name, l.to.fabric, items, func(k int) uint32 { return batch[k].view.Ref.Slot })
}

// attempted accounts for one block of an attempt, which is a child of its span.
func (m *Mover) attempted(to string, p *parcel, it *fabric.Item, began time.Time, op Op) {
	code := wire.CodeOf(it.Err)
	m.cfg.Observer.Attempted(p.from.Fabric, family(to), code)
	_, span := m.cfg.Tracer.Start(p.ctx, "meridian.attempt", trace.WithTimestamp(began), trace.WithAttributes(
		attribute.String("fabric", family(to)), attribute.String("peer", peerOf(to)), attribute.String("transport", it.Via),
		attribute.String("code", code.String()), attribute.Int("attempt", p.tries+1), attribute.String("op", string(op))))
	if arrived(it) != nil {
		span.SetStatus(otelcodes.Error, code.String())
	}
	span.End()
}

// Forwarded waits until nothing waits to be sent on, or ctx has ended.
func (m *Mover) Forwarded(ctx context.Context) {
	for m.BridgeStats().Waiting > 0 && sleep(ctx, recoverLook) {
	}
}
