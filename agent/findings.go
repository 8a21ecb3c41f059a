package agent

import (
	"fmt"
	"slices"
	"strings"

	"meridian/agent/finding"
	"meridian/agent/openers"
	"meridian/agent/transfer"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// findings are those of the host, as this process sees it, and those of the
// daemon's own state.
func (a *Agent) findings() []finding.Finding {
	out := stateFindings(a.store.Stats(), a.checksums.Load(), a.mover.BridgeStats(), a.peers())
	out = append(out, a.fabricFindings()...)
	out = append(out, a.partnerFindings()...)
	out = append(out, a.traces.findings(a.cfg.Telemetry.OTLPEndpoint)...)
	out = append(out, openers.Findings(finding.ThisHost(a.now()), a.opt.Openers...)...)
	slices.SortStableFunc(out, func(x, y finding.Finding) int { return int(y.Severity) - int(x.Severity) })
	return out
}

// fabricFindings are what the fabrics say of themselves.
func (a *Agent) fabricFindings() []finding.Finding {
	var out []finding.Finding
	for name, f := range a.whole {
		advisor, ok := f.(fabric.Advisor)
		if !ok {
			continue
		}
		for _, one := range advisor.Findings() {
			to := finding.Finding{ID: name + "." + one.ID, Subject: one.Subject, Severity: severityOf(one), Reason: "as it should be"}
			if one.Bad {
				to.Reason, to.Fix = one.Reason, one.Fix
			}
			out = append(out, to)
		}
	}
	return out
}

func severityOf(f fabric.Finding) finding.Severity {
	switch {
	case f.Bad && f.Severe:
		return finding.Err
	case f.Bad:
		return finding.Warn
	}
	return finding.OK
}

// stateFindings judges what a daemon counts and whom it reaches.
func stateFindings(st blocks.Stats, checksums uint64, bridge transfer.BridgeStats, peers []fabric.Peer) []finding.Finding {
	var out []finding.Finding
	add := func(bad bool, sev finding.Severity, id, subject, reason, fix string) {
		if !bad {
			sev, reason, fix = finding.OK, "as it should be", ""
		}
		out = append(out, finding.Finding{ID: id, Severity: sev, Subject: subject, Reason: reason, Fix: fix})
	}
	add(st.Leaked != 0, finding.Err, "blocks.leaked", fmt.Sprintf("leaked slots and references: %d", st.Leaked),
		"a slot or reference that no account explains: a defect", "save the log and report it; a restart frees the memory")
	add(st.LiveEvictions != 0, finding.Warn, "blocks.live_evictions", fmt.Sprintf("evicted blocks of running requests: %d", st.LiveEvictions),
		"the arena is too small for the requests that run at the same time", "raise kv_memory.capacity_bytes, or admit fewer requests")
	add(st.AgedHolds != 0, finding.Warn, "leases.aged", fmt.Sprintf("hold leases past their time: %d", st.AgedHolds),
		"an engine holds blocks and does not release them", "look at the engine; a lease list names the session")
	add(st.AheadRefused != 0, finding.Warn, "arena.memory", fmt.Sprintf("refusals of memory for the arena ahead of its use: %d", st.AheadRefused),
		"the kernel had none: loads wait for memory, and blocks are evicted instead of stored beside others", "leave the host or the memory cgroup more, or lower kv_memory.capacity_bytes")
	add(checksums != 0, finding.Err, "integrity.checksum", fmt.Sprintf("checksum failures: %d", checksums),
		"bodies arrived or lay changed; none was served", "the log names peer and transport: check that path's NIC, cable, memory")
	add(bridge.Loops != 0, finding.Warn, "gateway.loop", fmt.Sprintf("blocks that came back after they were sent on: %d", bridge.Loops),
		"routes of several daemons lead in a circle, the last one by "+bridge.LoopFrom, "leave out one of these routes, or give it a peer or a namespace")
	add(bridge.Expired != 0, finding.Warn, "gateway.expired", fmt.Sprintf("blocks that no route took in time: %d", bridge.Expired),
		"what peers brought did not go on; it is in this arena only", "mrdn fabric routes and the log say which fabric did not take them")
	for _, p := range peers {
		reason, fix := peerReason(&p)
		add(p.State != fabric.PeerReady && p.State != fabric.PeerIdle, finding.Warn, "peer."+p.Name, peerSubject(&p), reason, fix)
	}
	return out
}

// peerSubject names the fabric too: two fabrics may lead to peers of one name.
func peerSubject(p *fabric.Peer) string {
	s := fmt.Sprintf("peer %s of %s: %s", p.Name, p.Fabric, p.State)
	if p.Via != "" {
		s += " over " + p.Via
	}
	return s
}

// peerReason is why a peer is not ready, its code once, and what to do.
func peerReason(p *fabric.Peer) (reason, fix string) {
	if p.Code == wire.CodeOK {
		return "it has not connected yet", "look whether its daemon runs and dials this agent"
	}
	code := p.Code.String()
	return code + ": " + strings.TrimPrefix(p.Text, code+": "), "mrdn errors lookup " + code
}
