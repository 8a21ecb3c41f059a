package agent

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
	proto "meridian/wire/link"
)

// transfer runs one batch on one fabric and accounts for it: the log of
// transfers, the counters by fabric and transport really used, failures by
// reason. It is the only place that counts transfers this daemon asked for.
func (a *Agent) transfer(ctx context.Context, h holder, dir direction, op string, class proto.Class, items []fabric.Item, do func(context.Context)) {
	label := h.Label()
	ctx, span := a.tracer.Start(ctx, "meridian.transfer", trace.WithAttributes(
		attribute.String("fabric", label), attribute.String("peer", h.name), attribute.String("op", op), attribute.Int("items", len(items))))
	defer span.End()
	t := transfer{fabric: label, peer: h.name, dir: dir, op: op, class: uint8(class), items: len(items), began: time.Now()}
	id := a.transfers.begin(t)
	do(ctx)
	took := time.Since(t.began)
	var bytes uint64
	var failed int
	var via string
	code := wire.CodeOK
	outcomes := map[string]int{}
	perVia := map[string]uint64{}
	for i := range items {
		it := &items[i]
		if it.Via != "" {
			via = it.Via
		}
		if it.Err != nil && !errors.Is(it.Err, wire.CodeExists) {
			failed++
			code = wire.CodeOf(it.Err)
			outcomes["failed"]++
			a.failed(h, dir, code, it)
			continue
		}
		if it.Err == nil {
			n := uint64(it.Head.BodyLen)
			bytes += n
			perVia[it.Via] += n
			outcomes["ok"]++
		} else {
			outcomes["exists"]++
		}
	}
	for v, n := range perVia {
		a.moved.add(label, v, dir.String(), n)
	}
	for o, n := range outcomes {
		a.metrics.transferBlocks.WithLabelValues(label, dir.String(), o).Add(float64(n))
	}
	span.SetAttributes(attribute.String("transport", via), attribute.Int64("bytes", int64(bytes)), attribute.Int("failed", failed))
	if code != wire.CodeOK {
		span.SetStatus(otelcodes.Error, code.String())
	}
	a.metrics.transferSeconds.WithLabelValues(label, dir.String()).Observe(took.Seconds())
	a.transfers.end(id, via, bytes, failed, code, took)
}

// failed counts one block that did not make it, and logs a wrong checksum, which
// is never normal: the first of a second with its key, the rest as a number.
func (a *Agent) failed(h holder, dir direction, code wire.Code, it *fabric.Item) {
	a.metrics.failures.WithLabelValues(code.String()).Inc()
	if code != wire.CodeChecksum {
		return
	}
	if h.Label() != linkFabric { // the link reports its own, with what peers push
		a.checksumFailed(h.Label())
	}
	a.logLimited(slog.LevelError, "checksum."+h.name, "checksum failure: the block was not served", "code", code.String(), "number", uint16(code),
		"where", h.Label(), "peer", h.name, "transport", it.Via, "direction", dir.String(), "key", it.Key.String(), "err", it.Err)
}

// checksumFailed counts a body that did not match its checksum.
func (a *Agent) checksumFailed(where string) {
	a.metrics.checksumFailures.WithLabelValues(where).Inc()
	a.checksums.Add(1)
}
