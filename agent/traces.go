package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"meridian/agent/finding"
	"meridian/wire"
)

// Bounds of traces: the data path never waits for them.
const (
	spansWaiting  = 2048 // above, spans are dropped
	spansAtATime  = 256
	spansEvery    = time.Second
	spansTime     = 5 * time.Second // one request to the collector; it is not repeated
	spansOnClose  = time.Second
	spansAnswer   = 4 << 10 // bytes of an answer, which is logged where it is a refusal
	tracesLibrary = "meridian/agent"
)

// traces sends spans to a collector of OpenTelemetry, or makes none.
type traces struct {
	provider *trace.TracerProvider  // nil: there is no collector
	failed   atomic.Pointer[string] // why the collector has not taken the last spans; nil: it has
}

// openTraces makes the tracer.
func (a *Agent) openTraces(ctx context.Context) error {
	a.tracer = noop.NewTracerProvider().Tracer(tracesLibrary)
	for _, outcome := range []string{"sent", "dropped"} {
		a.metrics.spans.WithLabelValues(outcome)
	}
	if !a.cfg.Telemetry.OTLPEnabled {
		return nil
	}
	to, err := url.Parse(a.cfg.Telemetry.OTLPEndpoint)
	if err != nil {
		return fmt.Errorf("telemetry.otlp_endpoint: %w: %w", err, wire.CodeConfig)
	}
	e, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to.JoinPath("v1", "traces").String()), otlptracehttp.WithTimeout(spansTime), otlptracehttp.WithMaxResponseSize(spansAnswer),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		return fmt.Errorf("telemetry.otlp_endpoint: %w", err)
	}
	a.traces.provider = trace.NewTracerProvider(
		trace.WithBatcher(exporter{e, a}, trace.WithMaxQueueSize(spansWaiting), trace.WithMaxExportBatchSize(spansAtATime), trace.WithBatchTimeout(spansEvery), trace.WithExportTimeout(spansTime)),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", "meridiand"), attribute.String("service.version", a.opt.Version),
			attribute.String("service.instance.id", a.id.name))),
	)
	a.tracer = a.traces.provider.Tracer(tracesLibrary)
	return nil
}

// close sends what waits, for a moment.
func (t *traces) close() {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spansOnClose)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what it cannot send is logged by the exporter
}

// findings say whether the collector takes traces.
func (t *traces) findings(endpoint string) []finding.Finding {
	if t.provider == nil {
		return nil
	}
	out := finding.Finding{ID: "telemetry.otlp", Severity: finding.OK, Subject: "telemetry.otlp_endpoint = " + endpoint, Reason: "as it should be"}
	if why := t.failed.Load(); why != nil {
		out.Severity, out.Reason = finding.Warn, "the collector did not take the last spans, and they are lost: "+*why
		out.Fix = "start the collector, or correct telemetry.otlp_endpoint; nothing else waits for it"
	}
	return []finding.Finding{out}
}

// exporter logs what a collector does not take.
type exporter struct {
	trace.SpanExporter
	a *Agent
}

// ExportSpans implements trace.SpanExporter.
func (e exporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		e.a.metrics.spans.WithLabelValues("sent").Add(float64(len(spans)))
		e.a.traces.failed.Store(nil)
	} else {
		why := err.Error()
		e.a.metrics.spans.WithLabelValues("dropped").Add(float64(len(spans)))
		e.a.traces.failed.Store(&why)
		e.a.logLimited(slog.LevelWarn, "traces", "the collector does not take traces: they are dropped", "endpoint", e.a.cfg.Telemetry.OTLPEndpoint, "spans", len(spans), "err", err)
	}
	return nil
}
