package agent

import (
	"meridian/agent/transfer"
	"meridian/wire"
)

// moveObserver counts what agent/transfer does.
type moveObserver struct{ a *Agent }

var _ transfer.Observer = moveObserver{}

// direction is a transfer's, seen from this daemon.
func direction(in bool) string {
	if in {
		return "in"
	}
	return "out"
}

func (o moveObserver) Transferred(r transfer.Record) {
	m := o.a.metrics
	labels := []string{r.Fabric, direction(r.In), r.Class.String(), string(r.Op)}
	m.transferSeconds.WithLabelValues(labels...).Observe(r.Took.Seconds())
	for i, n := range []int{r.Items - r.Failed - r.Exists, r.Exists, r.Failed} {
		m.transferBlocks.WithLabelValues(append(labels[:4:4], outcomes[i])...).Add(float64(n))
	}
}

func (o moveObserver) Moved(fabric, via string, in bool, bytes uint64) {
	o.a.moved.add(fabric, via, direction(in), bytes)
}

func (o moveObserver) Failed(code wire.Code) {
	o.a.metrics.failures.WithLabelValues(reasonOf(code)).Inc()
}

func (o moveObserver) ChecksumFailed(fabric string) { o.a.checksumFailed(fabric) }

func (o moveObserver) Refused(code wire.Code) {
	o.a.metrics.refusals.WithLabelValues(reasonOf(code)).Inc()
}

func (o moveObserver) FellBack(wanted, used string) {
	o.a.metrics.fallbacks.WithLabelValues(wanted, used).Inc()
}

func (o moveObserver) Offloaded(fabric string, bytes uint64) {
	o.a.metrics.offloadedBlocks.WithLabelValues(fabric).Inc()
	o.a.metrics.offloadedBytes.WithLabelValues(fabric).Add(float64(bytes))
}

func (o moveObserver) Attempted(from, to string, code wire.Code) {
	o.a.metrics.bridgeAttempts.WithLabelValues(from, to, reasonOf(code)).Inc()
}

func (o moveObserver) Bridged(from, to string, what transfer.BridgeOutcome, bytes uint64) {
	o.a.metrics.bridgeBlocks.WithLabelValues(from, to, string(what)).Inc()
	o.a.metrics.bridgeBytes.WithLabelValues(from, to).Add(float64(bytes))
}

func (o moveObserver) CutThrough(from, to string, what transfer.CutOutcome) {
	o.a.metrics.bridgeCuts.WithLabelValues(from, to, string(what)).Inc()
}

func (o moveObserver) Looked(by string, code wire.Code) {
	o.a.metrics.bridgeLooks.WithLabelValues(by, reasonOf(code)).Inc()
}

func (o moveObserver) Slow(fabric string) { o.a.metrics.slowHolders.WithLabelValues(fabric).Inc() }

// checksumFailed counts a body that did not match its checksum.
func (a *Agent) checksumFailed(where string) {
	a.metrics.checksumFailures.WithLabelValues(where).Inc()
	a.checksums.Add(1)
}
