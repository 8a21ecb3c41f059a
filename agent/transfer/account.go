package transfer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"meridian/fabric"
	"meridian/wire"
)

// what is a call on a fabric.
type what struct {
	name   string // of the fabric in the registry
	fabric fabric.Fabric
	in     bool
	op     Op
}

// call runs one batch on one fabric and accounts for it: the log of transfers and
// the observer. It is the only place that counts transfers this daemon asked for.
func (m *Mover) call(ctx context.Context, w what, items []fabric.Item, do func(context.Context)) {
	class, _ := fabric.ClassOf(ctx)
	r := Record{Fabric: family(w.name), Peer: peerOf(w.name), In: w.in, Op: w.op, Class: class, Items: len(items), Began: time.Now()}
	ctx, span := m.cfg.Tracer.Start(ctx, "meridian.transfer", trace.WithAttributes(
		attribute.String("fabric", r.Fabric), attribute.String("peer", r.Peer), attribute.String("op", string(r.Op)), attribute.Int("items", r.Items)))
	defer span.End()
	r.ID = m.Log.Begin(r)
	do(ctx)
	r.Took = time.Since(r.Began)
	byVia := map[string]uint64{} // a fabric of peers may use several transports at once
	for i := range items {
		it := &items[i]
		if it.Via != "" {
			r.Via = it.Via
		}
		switch {
		case it.Err == nil:
			n := uint64(it.Head.BodyLen)
			r.Bytes += n
			byVia[it.Via] += n
		case errors.Is(it.Err, wire.CodeExists):
			r.Exists++
		default:
			r.Failed++
			r.Code = wire.CodeOf(it.Err)
			m.failed(&w, r.Code, it)
		}
	}
	span.SetAttributes(attribute.String("transport", r.Via), attribute.Int64("bytes", int64(r.Bytes)), attribute.Int("failed", r.Failed), attribute.String("code", r.Code.String()))
	if r.Code != wire.CodeOK {
		span.SetStatus(otelcodes.Error, r.Code.String())
	}
	m.Log.End(r)
	m.cfg.Observer.Transferred(r)
	for via, n := range byVia {
		m.cfg.Observer.Moved(r.Fabric, via, r.In, n)
	}
}

// failed counts one block that did not make it, and logs a wrong checksum, which
// is never normal: the first of a second with its key, the rest as a number.
func (m *Mover) failed(w *what, code wire.Code, it *fabric.Item) {
	m.cfg.Observer.Failed(code)
	if code != wire.CodeChecksum {
		return
	}
	m.cfg.Observer.ChecksumFailed(family(w.name))
	dir := "out"
	if w.in {
		dir = "in"
	}
	m.cfg.Log(slog.LevelError, "checksum."+w.name, "checksum failure: the block was not served", "code", code.String(), "number", uint16(code),
		"where", family(w.name), "peer", peerOf(w.name), "transport", it.Via, "direction", dir, "key", it.Key.String(), "err", it.Err)
}

// Probe tests one path by moving a block of the fabric's own, and accounts for it.
// name is the fabric's in the registry.
func (m *Mover) Probe(ctx context.Context, name string, p fabric.Prober) (via string, gbps float64, err error) {
	ctx = fabric.WithClass(ctx, fabric.ClassNormal)
	r := Record{Fabric: family(name), Peer: peerOf(name), Op: OpProbe, Class: fabric.ClassNormal, Items: 1, Began: time.Now()}
	r.ID = m.Log.Begin(r)
	via, gbps, err = p.Probe(ctx, "")
	r.Took, r.Via = time.Since(r.Began), via
	if err != nil {
		r.Failed, r.Code = 1, wire.CodeOf(err)
	}
	m.Log.End(r)
	m.cfg.Observer.Transferred(r)
	return via, gbps, err
}
