package agent

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// maxPeerLabels bounds the values of the peer label; later peers share "other".
const maxPeerLabels = 256

// metrics are the series that events move. What can be read from a room's
// Stats when somebody scrapes is in collector instead.
type metrics struct {
	reg *prometheus.Registry

	transferBlocks   *prometheus.CounterVec // fabric, direction, class, operation, outcome
	transferSeconds  *prometheus.HistogramVec
	failures         *prometheus.CounterVec // reason
	refusals         *prometheus.CounterVec // reason
	checksumFailures *prometheus.CounterVec // where
	incarnations     *prometheus.CounterVec // peer
	fallbacks        *prometheus.CounterVec // wanted, used
	offloadedBlocks  *prometheus.CounterVec // fabric
	offloadedBytes   *prometheus.CounterVec // fabric
	slowHolders      *prometheus.CounterVec // fabric
	bridgeBlocks     *prometheus.CounterVec // from, to, outcome
	bridgeBytes      *prometheus.CounterVec // from, to
	bridgeAttempts   *prometheus.CounterVec // from, to, reason
	bridgeCuts       *prometheus.CounterVec // from, to, outcome
	bridgeLooks      *prometheus.CounterVec // from, reason
	objects          *prometheus.CounterVec // fabric, verification, outcome
	spans            *prometheus.CounterVec // outcome
	acquireSeconds   prometheus.Observer

	docs []series // of reg's own series, for docs/metrics.md

	mu    sync.Mutex
	peers map[string]struct{}
}

// latencyBuckets run from 5 µs to 20 s, three a decade.
var latencyBuckets = []float64{
	5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3,
	1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20,
}

func newMetrics(version, wireVersion string) *metrics {
	m := &metrics{reg: prometheus.NewRegistry(), peers: map[string]struct{}{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.reg.MustRegister(c)
		m.docs = append(m.docs, series{name, "counter", help, labels})
		return c
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencyBuckets}, labels)
		m.reg.MustRegister(h)
		m.docs = append(m.docs, series{name, "histogram", help, labels})
		return h
	}
	m.transferBlocks = counter("meridian_transfer_blocks_total",
		"Blocks that transfers carried, by outcome.", "fabric", "direction", "class", "operation", "outcome")
	m.failures = counter("meridian_failures_total",
		"Blocks and requests that failed, by the name of their error code (see mrdn errors list).", "reason")
	m.refusals = counter("meridian_refusals_total",
		"Requests and connections that this daemon refused, by the name of the error code.", "reason")
	m.checksumFailures = counter("meridian_checksum_failures_total",
		"Block bodies that did not match their BLAKE3-128 checksum, by where that was found; none of them was served.", "where")
	m.incarnations = counter("meridian_peer_incarnation_changes_total",
		"Restarts that this daemon saw of a peer.", "peer")
	m.fallbacks = counter("meridian_fabric_fallbacks_total",
		"Blocks sent over another fabric than the one their route prefers.", "wanted", "used")
	m.offloadedBlocks = counter("meridian_disagg_blocks_offloaded_total",
		"Blocks offloaded to a fabric because their request stopped thinking.", "fabric")
	m.offloadedBytes = counter("meridian_disagg_bytes_offloaded_total",
		"Bytes of the bodies of blocks offloaded to a fabric because their request stopped thinking.", "fabric")
	m.slowHolders = counter("meridian_slow_holders_total",
		"Times that a holder kept a load waiting for too long and was left alone until it answered again.", "fabric")
	m.bridgeBlocks = counter("meridian_gateway_blocks_total",
		"Blocks that peers of one fabric brought and that a route sends on to another, by outcome: forwarded, exists (it was there), expired (no fabric took it in time, and it stays in the arena), refused (not stored, since too much waits), loop (it came back).", "from", "to", "outcome")
	m.bridgeBytes = counter("meridian_gateway_bytes_total",
		"Bytes of the bodies of blocks that were sent on from one fabric to another.", "from", "to")
	m.bridgeAttempts = counter("meridian_gateway_attempts_total",
		"Pushes of blocks on their way from one fabric to another, by the name of their error code; OK and EXISTS have arrived.", "from", "to", "reason")
	m.bridgeCuts = counter("meridian_gateway_cut_through_total",
		"Blocks that began to go on while they came, by outcome: forwarded (they had arrived so), fell_back (stored first after all, and sent on as others are), dropped (they did not become blocks here, and nothing of them is anywhere).", "from", "to", "outcome")
	m.bridgeLooks = counter("meridian_gateway_looks_total",
		"Blocks that peers of a fabric asked for and that were looked for in other fabrics, by the name of the error code; OK was found.", "from", "reason")
	m.objects = counter("meridian_fabric_objects_total",
		"Objects of other clients that the admin API was asked for, by what proved their bytes (unverified, or crc64, which their client left) and by outcome: ok is sent to the end, refused not read, failed all else. One whose CRC-64 does not fit is crc64, failed.", "fabric", "verification", "outcome")
	m.spans = counter("meridian_trace_spans_total",
		"Spans for the collector of telemetry.otlp_endpoint, by outcome: sent, or dropped because it did not take them.", "outcome")
	m.transferSeconds = histogram("meridian_transfer_duration_seconds",
		"Duration of a transfer in seconds, from its first frame to its end.", "fabric", "direction", "class", "operation")
	m.acquireSeconds = histogram("meridian_engine_acquire_duration_seconds",
		"Time that the daemon takes to answer an engine's ACQUIRE, in seconds, with the fetches from other nodes.").WithLabelValues()
	m.buildInfo(version, wireVersion)
	m.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// buildInfo registers what runs, as labels.
func (m *metrics) buildInfo(version, wireVersion string) {
	const name, help = "meridian_build_info", "Always 1; the labels name the version of the daemon and of the wire format."
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"version": version, "wire_version": wireVersion}})
	build.Set(1)
	m.reg.MustRegister(build)
	m.docs = append(m.docs, series{name, "gauge", help, []string{"version", "wire_version"}})
}

// peer bounds the values of the peer label.
func (m *metrics) peer(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.peers[name]; ok {
		return name
	}
	if len(m.peers) >= maxPeerLabels {
		return "other"
	}
	m.peers[name] = struct{}{}
	return name
}

// forget gives the label of a peer that is gone to others. Its series end.
func (m *metrics) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.peers, name)
	m.incarnations.DeleteLabelValues(name)
}
