package agent

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"meridian/agent/finding"
	"meridian/agent/transfer"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/internal/loglimit"
	"meridian/scheduler"
	"meridian/wire"
	proto "meridian/wire/link"
)

// collector reads the rooms' Stats when somebody scrapes.
type collector struct{ a *Agent }

// collected documents what the collector reads, in the order below.
var collected []series

// desc describes a series and documents it: a _total is a counter, what is no
// histogram else is a gauge.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return document(&collected, kindOf(name), name, help, labels...)
}

func kindOf(name string) string {
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

func document(in *[]series, kind, name, help string, labels ...string) *prometheus.Desc {
	*in = append(*in, series{"meridian_" + name, kind, help, labels})
	return prometheus.NewDesc("meridian_"+name, help, labels, nil)
}

var (
	dReady         = desc("ready", "1 while this daemon is ready: its self-test passed on every path and enough peers can be reached.")
	dPeerReady     = desc("peer_ready", "1 while the peer is connected, by the transport that is really used.", "peer", "transport")
	dPeerRTT       = desc("peer_rtt_seconds", "Last measured round-trip time to the peer, in seconds.", "peer")
	dFinding       = desc("fabric_finding", "What mrdn doctor says of a fabric, by the id of the finding: 0 as it should be, 1 a warning, 2 an error. One that no longer applies is not there.", "fabric", "finding")
	dMoved         = desc("transfer_bytes_total", "Bytes of block bodies moved to and from other daemons, by the transport that was really used.", "fabric", "transport", "direction")
	dInFlight      = desc("transfers_in_flight", "Transfers (batches of blocks) that run now, by direction.", "direction")
	dUsed          = desc("block_manager_used_bytes", "Bytes of the arena that are taken by blocks, reservations and quarantined slots.")
	dCapacity      = desc("block_manager_capacity_bytes", "Bytes that the arena may take at most.")
	dAhead         = desc("block_manager_ahead_bytes", "Bytes of memory that are ready for the arena and not yet part of it: how far it is ahead of its use.")
	dAheadWaits    = desc("block_manager_ahead_waits_total", "Times that a block had to wait while memory was made, because none was ready.")
	dAheadRefused  = desc("block_manager_ahead_refused_total", "Times that the kernel had no memory to be made ready for the arena.")
	dBlocks        = desc("block_manager_blocks", "Published blocks in the arena, by tier.", "tier")
	dBlockBytes    = desc("block_manager_block_bytes", "Bytes of published blocks in the arena, by tier.", "tier")
	dEvictions     = desc("block_manager_evictions_total", "Blocks evicted from the arena to make room, by tier.", "tier")
	dLiveEvictions = desc("output_critical_eviction_total", "OutputCritical blocks that were evicted while their request was running, so that a user waits for them again.")
	dLookups       = desc("prefix_lookups_total", "Keys that engines looked up in the prefix index.")
	dHits          = desc("prefix_hits_total", "Keys that were found, each with all earlier keys of its chain.")
	dLeases        = desc("leases", "Leases that are held now, by kind.", "kind")
	dLapsed        = desc("leases_expired_total", "Leases that ran out before they were released.")
	dPins          = desc("pins", "Pins on blocks now, that engines set for peers which are to pull them: one a block and request.")
	dPinBytes      = desc("pin_bytes", "Bytes of the arena in pinned blocks, a block once a pin.")
	dPinsEnded     = desc("pins_ended_total", "Pins that ended, by why: pulled by a peer, lapsed (its time was over), unpinned (its request was finished), dropped (its engine went), gone (the block was discarded, or its bytes were wrong).", "end")
	dReserved      = desc("reservations", "Slots that are reserved for a block and not yet committed.")
	dReservedGone  = desc("reservations_expired_total", "Reserved slots that were freed because their deadline passed.")
	dWindows       = desc("windows", "Windows that are open now: memory that foreign peers reach one-sidedly.")
	dWindowBytes   = desc("window_bytes", "Bytes of the windows that are open now.")
	dWindowLate    = desc("window_late_accesses_total", "Accesses that were refused because their window was closed or gone.")
	dWindowBlocks  = desc("window_blocks_total", "Blocks that were copied out of windows, hashed and published.")
	dBridgeBlocks  = desc("gateway_waiting_blocks", "Blocks that peers brought and that wait to be sent on to another fabric.")
	dBridgeBytes   = desc("gateway_waiting_bytes", "What these blocks count for against gateway_limit_bytes.")
	dBridgeLimit   = desc("gateway_limit_bytes", "Bytes that may wait to be sent on; one source may have a quarter of them, one fabric half.")
	dQuarantined   = desc("quarantined_bytes", "Bytes of slots that stay unused until a failed transfer can no longer write to them, or the process that mapped them has ended.")
	dLeaked        = desc("leaked", "Slots and references that belong to nobody, a defect: it must stay 0.", "what")
	dRemote        = desc("block_manager_remote_copies", "Known copies of blocks outside the arena.")
	dReclaimed     = desc("disagg_bytes_reclaimed_total", "Bytes of block bodies freed in the arena after another holder had acknowledged its copy.")
	dTracked       = desc("phase_router_tracked_requests", "Generation requests whose phase is tracked now.")
	dPhases        = desc("phase_requests", "Generation requests that are tracked now, by phase.", "phase")
	dThinkTokens   = document(&collected, "histogram", "think_tokens_per_request", "Thinking tokens of a request, counted when it stops thinking.")
	dForced        = desc("budget_force_triggered_total", "Requests whose thinking was cut short.")
	dForceReason   = desc("budget_force_reason_total", "Requests whose thinking was cut short, by reason.", "reason")
	dUnknownModel  = desc("unknown_model_total", "Requests of a model that neither [model.NAME] nor the built-in table knows: their thinking is not followed.")
	dVocab         = desc("vocab_fallback_total", "Requests whose think marker ids came from the built-in table because the configuration has none for their model.")
	dLogLost       = desc("log_lost_lines_total", "Log lines that were dropped because the log's output was closed, or was read too slowly.")
	dLogLeftOut    = desc("log_left_out_lines_total", "Log lines that were counted and not written, because more of their kind came than quota.log_lines.")
	dSessions      = desc("engine_sessions", "Sessions of engines that are connected now.")
	dAdvice        = desc("engine_advice_dropped_total", "Frames of advice to engines that were dropped because the session's socket took no more, by type of frame.", "type")
	dEngineEvicted = desc("engine_evicted_blocks_total", "Blocks of running requests that were evicted, counted for each request that had one. Their engines are told.")
	dEngines       = desc("engines", "Engines that are connected now, each a session or a group of sessions.")
	dParkedLoads   = desc("engine_parked_loads", "Loads of engines that wait for blocks now, or may have to.")
	dWaiting       = desc("engine_waiting_blocks", "Blocks that loads of engines wait for now, by whether other holders are asked again meanwhile.", "asked")
	dWaits         = desc("engine_waits_total", "Blocks that a load waited for, by outcome: came is published here in time, late is not there at the load's deadline.", "outcome")
	dWaitAsks      = desc("engine_wait_questions_total", "Questions to other holders about blocks that loads wait for. Of one namespace, a question is about up to 1,024 blocks.")
	dHints         = desc("engine_hints_total", "Blocks for which an engine named the holder, by outcome: served by it, unknown (no peer that may be asked), incarnation (it runs in another one), absent, stale (the slot has another block), silent, failed.", "outcome")
	dPeerFailures  = desc("peer_failures_total", "What failed between this daemon and a listed peer of a fabric that counts it: direction in is what the peer asked for, out what this daemon asked the peer for.", "fabric", "peer", "direction", "reason")
	dRelayBytes    = desc("relay_bytes_total", "Bytes that a relay between Mooncake engines carried, by source and by direction: in is what the source wrote to the target, out what it read.", "fabric", "source", "direction")
	dRelayRequests = desc("relay_requests_total", "Requests, reads and writes, that a relay carried to their end, by source.", "fabric", "source")
	dRelayNotifies = desc("relay_notifies_total", "Notifies that a relay handed on and that the target took, by source.", "fabric", "source")
	dRelayRefused  = desc("relay_refusals_total", "Connections and requests that a relay turned away or could not carry to their end, by source and the name of the error code.", "fabric", "source", "reason")
	dRelayConns    = desc("relay_connections", "Data connections of a relay's sources that are open now.", "fabric", "source")
	dQuotaUsed     = desc("quota_used", "How much of a resource its largest holder holds now, by resource and kind of holder.", "resource", "kind")
	dQuotaLimit    = desc("quota_limit", "How much of a resource one holder may hold, by resource and kind of holder. Not there where the limit is the whole of it. Of guaranteed_bytes: what others leave free for a holder now.", "resource", "kind")
	dQuotaRefused  = desc("quota_refused_total", "Requests that were refused because a holder had reached its limit, by resource and kind of holder.", "resource", "kind")
)

// Describe sends nothing: some series appear with their first peer, so the
// collector is an unchecked one.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads everything once.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	c.blocks(gauge, counter)
	c.windows(gauge, counter)
	bridge := c.a.mover.BridgeStats()
	gauge(dBridgeBlocks, float64(bridge.Waiting))
	gauge(dBridgeBytes, float64(bridge.WaitingBytes))
	gauge(dBridgeLimit, float64(bridge.LimitBytes))
	c.quota(gauge, counter)
	c.peers(gauge)
	c.fabrics(gauge)
	c.relays(gauge, counter)
	c.failures(counter)
	gauge(dReady, oneIf(len(c.a.unready()) == 0))
	for _, m := range c.a.moved.all() {
		counter(dMoved, m.Bytes, m.Fabric, m.Transport, m.Direction)
	}
	for _, in := range []bool{true, false} {
		gauge(dInFlight, float64(c.a.mover.Log.InFlight(in)), direction(in))
	}
	if c.a.engines != nil {
		c.engines(out, gauge, counter)
	}
	counter(dLogLost, c.a.opt.LogLost())
	counter(dLogLeftOut, c.a.log.Handler().(*loglimit.Handler).LeftOut())
	if f := c.a.llama.Load(); f != nil {
		c.llama(f, gauge, counter)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c *collector) blocks(gauge func(*prometheus.Desc, float64, ...string), counter func(*prometheus.Desc, uint64, ...string)) {
	st := c.a.store.Stats()
	gauge(dUsed, float64(st.Used))
	gauge(dCapacity, float64(st.Capacity))
	gauge(dAhead, float64(st.AheadBytes))
	counter(dAheadWaits, st.AheadWaits)
	counter(dAheadRefused, st.AheadRefused)
	for _, t := range []wire.Tier{wire.ThinkComplete, wire.ThinkActive, wire.OutputCritical} {
		gauge(dBlocks, float64(st.Blocks[t]), t.String())
		gauge(dBlockBytes, float64(st.BlockBytes[t]), t.String())
		counter(dEvictions, st.Evictions[t], t.String())
	}
	counter(dLiveEvictions, st.LiveEvictions)
	counter(dLookups, st.Lookups)
	counter(dHits, st.Hits)
	gauge(dLeases, float64(st.Leases-st.Holds), "timed")
	gauge(dLeases, float64(st.Holds), "hold")
	counter(dLapsed, st.LeasesLapsed)
	gauge(dPins, float64(st.Pins))
	gauge(dPinBytes, float64(st.PinBytes))
	for e := range blocks.PinEnds {
		counter(dPinsEnded, st.PinsEnded[e], blocks.PinEnd(e).String())
	}
	gauge(dReserved, float64(st.Reserved))
	counter(dReservedGone, st.ReservationsExpired)
	gauge(dQuarantined, float64(st.QuarantinedBytes))
	gauge(dLeaked, float64(st.Leaked), "slots")
	counter(dReclaimed, st.OffloadedBytes)
	gauge(dRemote, float64(st.Remote))
}

func (c *collector) windows(gauge func(*prometheus.Desc, float64, ...string), counter func(*prometheus.Desc, uint64, ...string)) {
	st := c.a.windows.Stats()
	gauge(dWindows, float64(st.Windows))
	gauge(dWindowBytes, float64(st.Bytes))
	counter(dWindowLate, st.Late)
	counter(dWindowBlocks, st.Blocks)
}

// quota shows every limit's account from the start; one that is set to the whole
// has no limit to show.
func (c *collector) quota(gauge func(*prometheus.Desc, float64, ...string), counter func(*prometheus.Desc, uint64, ...string)) {
	for _, r := range append(c.a.store.Quota(), c.a.quota.Stats()...) {
		if r.Rule.Key() == "" {
			continue
		}
		resource, kind := r.Resource.String(), r.Kind.String()
		gauge(dQuotaUsed, float64(r.Used), resource, kind)
		if r.Limited {
			gauge(dQuotaLimit, float64(r.Limit), resource, kind)
		}
		counter(dQuotaRefused, r.Refused, resource, kind)
	}
}

// fabrics shows what each fabric says of itself.
func (c *collector) fabrics(gauge func(*prometheus.Desc, float64, ...string)) {
	for name, f := range c.a.whole {
		advisor, ok := f.(fabric.Advisor)
		if !ok {
			continue
		}
		worst := map[string]finding.Severity{} // several findings of a fabric may have one id
		for _, one := range advisor.Findings() {
			worst[one.ID] = max(worst[one.ID], severityOf(one))
		}
		for id, severity := range worst {
			gauge(dFinding, float64(severity), name, id)
		}
	}
}

func (c *collector) peers(gauge func(*prometheus.Desc, float64, ...string)) {
	for _, p := range onePerName(c.a.peers()) {
		gauge(dPeerReady, oneIf(p.State == fabric.PeerReady), p.Name, p.Via)
		gauge(dPeerRTT, p.RTT.Seconds(), p.Name)
	}
}

// failures shows what failed with each listed peer.
func (c *collector) failures(counter func(*prometheus.Desc, uint64, ...string)) {
	for name, f := range c.a.whole {
		failing, ok := f.(fabric.Failing)
		if !ok {
			continue
		}
		for _, one := range failing.Failures() {
			for code, n := range one.In {
				counter(dPeerFailures, n, name, one.Peer, direction(true), reasonOf(code))
			}
			for code, n := range one.Out {
				counter(dPeerFailures, n, name, one.Peer, direction(false), reasonOf(code))
			}
		}
	}
}

// relays shows what was carried for others. Sources are names of the configuration.
func (c *collector) relays(gauge func(*prometheus.Desc, float64, ...string), counter func(*prometheus.Desc, uint64, ...string)) {
	for name, f := range c.a.whole {
		r, ok := f.(fabric.Relay)
		if !ok {
			continue
		}
		for _, n := range r.Relayed() {
			gauge(dRelayConns, float64(n.Connections), name, n.Source)
			counter(dRelayBytes, n.Written, name, n.Source, direction(true))
			counter(dRelayBytes, n.Read, name, n.Source, direction(false))
			counter(dRelayRequests, n.Requests, name, n.Source)
			counter(dRelayNotifies, n.Notifies, name, n.Source)
			for code, refused := range n.Refused {
				counter(dRelayRefused, refused, name, n.Source, reasonOf(code))
			}
		}
	}
}

// onePerName bounds the values of the peer label; ListPeers shows the rest. An
// agent that is on no list can have several sessions and so several rows, and
// one name twice would fail the whole scrape.
func onePerName(rows []fabric.Peer) []fabric.Peer {
	slices.SortStableFunc(rows, func(a, b fabric.Peer) int { return strings.Compare(a.Name, b.Name) })
	rows = slices.CompactFunc(rows, func(a, b fabric.Peer) bool { return a.Name == b.Name })
	return rows[:min(len(rows), maxPeerLabels)]
}

func (c *collector) engines(out chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string), counter func(*prometheus.Desc, uint64, ...string)) {
	st := c.a.engines.Stats()
	gauge(dSessions, float64(st.Sessions))
	gauge(dEngines, float64(st.Engines))
	counter(dAdvice, st.Dropped.Phase, proto.TypePhase.String())
	counter(dAdvice, st.Dropped.PhaseAt, proto.TypePhaseAt.String())
	counter(dAdvice, st.Dropped.Evicted, proto.TypeEvicted.String())
	counter(dEngineEvicted, st.Evicted)
	gauge(dParkedLoads, float64(st.ParkedLoads))
	gauge(dWaiting, float64(st.Asking), "yes")
	gauge(dWaiting, float64(max(st.Waiting-st.Asking, 0)), "no")
	counter(dWaits, st.WaitsWoken, "came")
	counter(dWaits, st.WaitsExpired, "late")
	counter(dWaitAsks, st.WaitsAsked)
	for o := range transfer.HintOutcomes {
		counter(dHints, c.a.mover.Hinted(o), o.String())
	}
	gauge(dTracked, float64(st.Scheduler.Tracked()))
	for p := scheduler.Prefill; p <= scheduler.Complete; p++ {
		gauge(dPhases, float64(st.Scheduler.Phases[p]), p.String())
	}
	h := &st.Scheduler.Think
	out <- prometheus.MustNewConstHistogram(dThinkTokens, h.Count(), float64(h.Sum), h.Buckets())
	counter(dForced, st.Scheduler.Events[scheduler.ForceBudget])
	for _, why := range []scheduler.Reason{scheduler.Converged, scheduler.Overthinking, scheduler.HardCap} {
		counter(dForceReason, st.Scheduler.Reason[why], why.String())
	}
	counter(dVocab, st.Scheduler.VocabFallback)
	counter(dUnknownModel, st.Scheduler.UnknownModel)
}
