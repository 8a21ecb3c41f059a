package agent

import (
	"meridian/agent/transfer"
	"meridian/fabric"
	"meridian/wire"
)

// kind is a sort of transfer that a fabric can make. Every one has its series from
// the start.
type kind struct {
	in    bool
	op    transfer.Op
	class fabric.Class
	peers bool // a peer asks this daemon for it
}

var kinds = func() []kind {
	out := []kind{
		{true, transfer.OpPull, fabric.ClassUrgent, false},
		{false, transfer.OpOffload, fabric.ClassBulk, false},
		{false, transfer.OpStore, fabric.ClassBulk, false},
		{false, transfer.OpForward, fabric.ClassNormal, false},
		{false, transfer.OpThrough, fabric.ClassNormal, false},
		{false, transfer.OpProbe, fabric.ClassNormal, false},
	}
	for c := range fabric.Class(fabric.Classes) {
		out = append(out, kind{false, transfer.OpPull, c, true}, kind{true, transfer.OpPush, c, true})
	}
	return out
}()

// outcomes are what can become of a block that is transferred.
var outcomes = []string{"ok", "exists", "failed"}

// reasons are the labels of the codes that this version knows.
var reasons = func() map[wire.Code]string {
	out := map[wire.Code]string{}
	for _, c := range wire.Codes() {
		out[c.Code] = c.Name
	}
	return out
}()

// reasonOf is the label of a code. A peer can send any number; those that are in
// no table share one label.
func reasonOf(c wire.Code) string {
	if name, ok := reasons[c]; ok {
		return name
	}
	return "other"
}

// zeroSeries makes a series of each label value that is known at the start, so
// that increase() and rate() count the first event too.
func (a *Agent) zeroSeries() {
	m := a.metrics
	for c, name := range reasons {
		if c != wire.CodeOK {
			m.failures.WithLabelValues(name)
			m.refusals.WithLabelValues(name)
		}
	}
	m.checksumFailures.WithLabelValues("arena")
	for name, f := range a.whole {
		a.zeroFabric(name, f)
	}
	a.zeroFallbacks()
	a.zeroBridges()
}

// zeroBridges makes the series of each pair of fabrics between which a rule sends blocks.
func (a *Agent) zeroBridges() {
	m := a.metrics
	for _, r := range a.routes.Rules() {
		from, _ := fabric.SplitName(r.From)
		to, _ := fabric.SplitName(r.Fabric)
		if from == "" {
			continue
		}
		for _, outcome := range transfer.BridgeOutcomes() {
			m.bridgeBlocks.WithLabelValues(from, to, string(outcome))
		}
		m.bridgeBytes.WithLabelValues(from, to)
		for _, outcome := range transfer.CutOutcomes() {
			m.bridgeCuts.WithLabelValues(from, to, string(outcome))
		}
		m.bridgeAttempts.WithLabelValues(from, to, reasonOf(wire.CodeOK))
		m.bridgeLooks.WithLabelValues(from, reasonOf(wire.CodeOK))
	}
}

// zeroFabric makes the series of one fabric; its peers share them.
func (a *Agent) zeroFabric(name string, f fabric.Fabric) {
	m := a.metrics
	m.checksumFailures.WithLabelValues(name)
	m.offloadedBlocks.WithLabelValues(name)
	m.offloadedBytes.WithLabelValues(name)
	m.slowHolders.WithLabelValues(name)
	_, peered := f.(fabric.Peered)
	for _, k := range kinds {
		if k.peers && !peered {
			continue
		}
		labels := []string{name, direction(k.in), k.class.String(), string(k.op)}
		m.transferSeconds.WithLabelValues(labels...)
		for _, outcome := range outcomes {
			m.transferBlocks.WithLabelValues(append(labels[:4:4], outcome)...)
		}
	}
	if _, ok := f.(fabric.Objects); ok {
		for _, proof := range []string{unverified, byCRC64} {
			for _, outcome := range []string{objectOK, objectRefused, objectFailed} {
				m.objects.WithLabelValues(name, proof, outcome)
			}
		}
	}
	if t, ok := f.(fabric.Transporter); ok {
		for _, via := range t.Transports() {
			a.moved.add(name, via, direction(true), 0)
			a.moved.add(name, via, direction(false), 0)
		}
	}
}

// zeroFallbacks makes the series of each pair of fabrics of which a rule prefers
// one, and a later rule names the other.
func (a *Agent) zeroFallbacks() {
	rules := a.routes.Rules()
	for i, wanted := range rules {
		if wanted.Require {
			continue
		}
		for _, used := range rules[i+1:] {
			if used.Fabric != wanted.Fabric && used.From == wanted.From {
				a.metrics.fallbacks.WithLabelValues(wanted.Fabric, used.Fabric)
			}
		}
	}
}
