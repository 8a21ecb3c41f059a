package grafana

// Rows are the rows of the daemon's board, top to bottom.
func Rows() []Row {
	return []Row{health(), transfers(), failures(), tiers(), leases(), phases(), llama(), truth(), budget(), process()}
}

func health() Row {
	return Row{"Health and peers", []Panel{
		{
			Title: "Ready", Kind: Tile, Unit: "bool_yes_no", Width: 4, Base: Bad, Steps: []Step{{1, Good}},
			About:   "Whether the self-test moved a block on every path and enough peers can be reached.",
			Queries: []Query{{`meridian_ready{@}`, "{{instance}}"}},
		},
		{
			Title: "Version", Kind: Names, Unit: "none", Width: 4,
			About:   "What runs, and how many of it. Two versions for long is a roll-out that stopped.",
			Queries: []Query{{`count by (version, wire_version) (meridian_build_info{@})`, "{{version}}, wire {{wire_version}}"}},
		},
		{
			Title: "Peers by state", Unit: "bool_yes_no", Width: 8, Max: 1, Base: Bad, Steps: []Step{{1, Good}},
			About:   "1 while the peer is connected. A line at 0 is a peer that cannot be reached or was refused; the log and `mrdn peer list` say why.",
			Queries: []Query{{`min by (instance, peer) (meridian_peer_ready{@})`, "{{instance}} → {{peer}}"}},
		},
		{
			Title: "Peer round trip", Unit: "s", Width: 8, Steps: []Step{{0.01, Warn}, {0.1, Bad}},
			About:   "Last round trip of a ping to each peer. Beyond 10 ms a peer is not in the same rack.",
			Queries: []Query{{`max by (instance, peer) (meridian_peer_rtt_seconds{@})`, "{{instance}} → {{peer}}"}},
		},
		{
			Title: "Peer restarts", Unit: "short", Width: 12, Steps: []Step{{1, Warn}},
			About:   "New incarnations seen: all state of the old one was dropped. More than a roll-out explains is a crash loop.",
			Queries: []Query{{`sum by (peer) (increase(meridian_peer_incarnation_changes_total{@}[$__rate_interval]))`, "{{peer}}"}},
		},
		{
			Title: "Engine sessions", Unit: "short", Width: 12, Base: Warn, Steps: []Step{{1, Good}},
			About:   "Engines that are connected to their daemon. 0 is a daemon that nobody uses.",
			Queries: []Query{{`sum by (instance) (meridian_engines{@})`, "{{instance}}"}},
		},
	}}
}

func transfers() Row {
	return Row{"Transfers", []Panel{
		{
			Title: "Bytes", Unit: "Bps", Width: 8,
			About:   "Body bytes moved, by fabric and direction.",
			Queries: []Query{{rate("meridian_transfer_bytes_total", "fabric", "direction"), "{{fabric}} {{direction}}"}},
		},
		{
			Title: "Blocks by outcome", Unit: "ops", Width: 8,
			About:   "Blocks of transfers, by what the transfer was for and how each block ended.",
			Queries: []Query{{rate("meridian_transfer_blocks_total", "fabric", "direction", "operation", "outcome"), "{{fabric}} {{direction}} {{operation}} {{outcome}}"}},
		},
		{
			Title: "In flight", Unit: "short", Width: 8,
			About:   "Batches that run now. A line that never comes down is a transfer that nobody ends.",
			Queries: []Query{{`sum by (direction) (meridian_transfers_in_flight{@})`, "{{direction}}"}},
		},
		{
			Title: "Duration of a batch", Unit: "s", Width: 12, Steps: []Step{{1, Warn}, {10, Bad}},
			About:   "From a batch's first frame to its end, by fabric, direction, class and operation. Users wait for pull of class urgent; offload, store and probe are the daemon's own.",
			Queries: quantiles("meridian_transfer_duration_seconds", "fabric", "direction", "class", "operation"),
		},
		{
			Title: "Engine ACQUIRE", Unit: "s", Width: 12, Steps: []Step{{0.001, Warn}, {0.1, Bad}},
			About:   "Time in the daemon until an engine had its blocks, fetches from peers included. Local hits take microseconds.",
			Queries: quantiles("meridian_engine_acquire_duration_seconds"),
		},
	}}
}

func failures() Row {
	return Row{"Refusals and failures", []Panel{
		{
			Title: "Failures by reason", Unit: "ops", Width: 6, Steps: []Step{{0.1, Warn}, {1, Bad}},
			About:   "What failed, by the name of its code. `mrdn errors lookup NAME` explains each.",
			Queries: []Query{{rate("meridian_failures_total", "reason"), "{{reason}}"}},
		},
		{
			Title: "Refusals by reason", Unit: "ops", Width: 6, Steps: []Step{{0.1, Warn}, {1, Bad}},
			About:   "What this daemon refused, by the name of the code: peers not on the list, geometry that differs, limits.",
			Queries: []Query{{rate("meridian_refusals_total", "reason"), "{{reason}}"}},
		},
		{
			Title: "Checksum failures", Unit: "short", Width: 6, Steps: []Step{{1, Bad}},
			About:   "Bodies that did not match their BLAKE3-128, by where they were caught. None was served; one is a reason to look at memory and network.",
			Queries: []Query{{`sum by (where) (increase(meridian_checksum_failures_total{@}[$__rate_interval]))`, "{{where}}"}},
		},
		slowHolders(),
	}}
}

func slowHolders() Panel {
	return Panel{
		Title: "Slow holders", Unit: "short", Width: 6, Steps: []Step{{1, Warn}},
		About:   "Times that a holder kept a load waiting for longer than agent.find_timeout, or a pull stood still. It is left alone until it answers again.",
		Queries: []Query{{`sum by (fabric) (increase(meridian_slow_holders_total{@}[$__rate_interval]))`, "{{fabric}}"}},
	}
}

func tiers() Row {
	return Row{"Tiers", []Panel{
		{
			Title: "Arena in use", Unit: "percentunit", Width: 6, Max: 1, Steps: []Step{{0.9, Warn}, {0.98, Bad}},
			About:   "Used share of the arena. A full arena is normal for a cache; OutputCritical evictions are not.",
			Queries: []Query{{`meridian_block_manager_used_bytes{@} / meridian_block_manager_capacity_bytes{@}`, "{{instance}}"}},
		},
		{
			Title: "Bytes by tier", Kind: Stack, Unit: "bytes", Width: 6,
			About:   "Bytes of published blocks, by tier.",
			Queries: []Query{{`sum by (tier) (meridian_block_manager_block_bytes{@})`, "{{tier}}"}},
		},
		{
			Title: "Blocks by tier", Kind: Stack, Unit: "short", Width: 6,
			About:   "Published blocks, by tier.",
			Queries: []Query{{`sum by (tier) (meridian_block_manager_blocks{@})`, "{{tier}}"}},
		},
		{
			Title: "Prefix hit ratio", Unit: "percentunit", Width: 6, Max: 1,
			About:   "Keys found in an unbroken run from the front of their chain, of keys looked up.",
			Queries: []Query{{rate("meridian_prefix_hits_total", "instance") + " / " + rate("meridian_prefix_lookups_total", "instance"), "{{instance}}"}},
		},
		{
			Title: "Evictions by tier", Unit: "ops", Width: 12,
			About:   "Blocks evicted, by tier: ThinkComplete goes first, OutputCritical last.",
			Queries: []Query{{rate("meridian_block_manager_evictions_total", "tier"), "{{tier}}"}},
		},
		{
			Title: "OutputCritical evictions of running requests", Unit: "short", Width: 12, Steps: []Step{{1, Bad}},
			About:   "Blocks of running requests that were evicted. Each costs its request a recompute: the arena is too small, or too many requests are admitted.",
			Queries: []Query{{`sum by (instance) (increase(meridian_output_critical_eviction_total{@}[$__rate_interval]))`, "{{instance}}"}},
		},
	}}
}

func leases() Row {
	return Row{"Leases and reservations", []Panel{
		{
			Title: "Leases by kind", Unit: "short", Width: 5,
			About:   "Live leases. Holds never lapse while their process lives, and are bounded in bytes.",
			Queries: []Query{{`sum by (kind) (meridian_leases{@})`, "{{kind}}"}},
		},
		{
			Title: "Lapsed without an end", Unit: "ops", Width: 5, Steps: []Step{{0.1, Warn}, {10, Bad}},
			About: "Leases and reservations that their deadline freed: readers or writers that died, or deadlines that are too short.",
			Queries: []Query{
				{rate("meridian_leases_expired_total", "instance"), "leases {{instance}}"},
				{rate("meridian_reservations_expired_total", "instance"), "reservations {{instance}}"},
			},
		},
		{
			Title: "Reservations", Unit: "short", Width: 5,
			About:   "Slots reserved and not yet committed. They return to zero when the traffic stops.",
			Queries: []Query{{`sum by (instance) (meridian_reservations{@})`, "{{instance}}"}},
		},
		{
			Title: "Quarantine", Unit: "bytes", Width: 5,
			About:   "Bytes out of use until a fabric is quiet or a process is gone.",
			Queries: []Query{{`sum by (instance) (meridian_quarantined_bytes{@})`, "{{instance}}"}},
		},
		{
			Title: "Leaked", Unit: "short", Width: 4, Max: 1, Steps: []Step{{1, Bad}},
			About:   "Slots and references that no account explains. The line is zero, always.",
			Queries: []Query{{`sum by (instance, what) (meridian_leaked{@})`, "{{what}} {{instance}}"}},
		},
	}}
}

func phases() Row {
	return Row{"Scheduler by phase", []Panel{
		{
			Title: "Requests by phase", Kind: Stack, Unit: "short", Width: 8,
			About:   "Generation requests that are followed, by phase.",
			Queries: []Query{{`sum by (phase) (meridian_phase_requests{@})`, "{{phase}}"}},
		},
		{
			Title: "Tracked requests", Unit: "short", Width: 8,
			About:   "Entries of the phase routers. One that only rises means that an engine does not send FINISH.",
			Queries: []Query{{`sum by (instance) (meridian_phase_router_tracked_requests{@})`, "{{instance}}"}},
		},
		{
			Title: "Thinking tokens a request", Unit: "short", Width: 8, Steps: []Step{{16384, Warn}, {32768, Bad}},
			About:   "Thinking tokens of each request that stopped thinking, or ended in it.",
			Queries: quantiles("meridian_think_tokens_per_request"),
		},
		{
			Title: "Off-loaded", Unit: "Bps", Width: 6,
			About: "Bytes copied away because their request stopped thinking, by fabric, and bytes of the arena that this freed.",
			Queries: []Query{
				{rate("meridian_disagg_bytes_offloaded_total", "fabric"), "off-loaded {{fabric}}"},
				{rate("meridian_disagg_bytes_reclaimed_total", "instance"), "reclaimed {{instance}}"},
			},
		},
		{
			Title: "Off-loaded blocks", Unit: "ops", Width: 6,
			About:   "Blocks copied away because their request stopped thinking, by fabric.",
			Queries: []Query{{rate("meridian_disagg_blocks_offloaded_total", "fabric"), "{{fabric}}"}},
		},
		{
			Title: "Token ids from the built-in table", Unit: "short", Width: 6, Steps: []Step{{1, Warn}},
			About:   "Requests of a model that has no [model.NAME] table in the configuration. Its ids were guessed by the model's name.",
			Queries: []Query{{`sum by (instance) (increase(meridian_vocab_fallback_total{@}[$__rate_interval]))`, "{{instance}}"}},
		},
		{
			Title: "Requests of unknown models", Unit: "short", Width: 6, Steps: []Step{{1, Warn}},
			About:   "Requests of a model that neither [model.NAME] nor the built-in table knows. Their thinking is not followed.",
			Queries: []Query{{`sum by (instance) (increase(meridian_unknown_model_total{@}[$__rate_interval]))`, "{{instance}}"}},
		},
	}}
}

func llama() Row {
	return Row{"Queue of a llama.cpp node", []Panel{
		{
			Title: "Requests by class and state", Unit: "short", Width: 6,
			About:   "Requests of the node that run, that wait for a slot, and that gave theirs up for another. Those that gave it up count as waiting too.",
			Queries: []Query{{`sum by (class, state) (meridian_llama_queue_requests{@})`, "{{class}} {{state}}"}},
		},
		{
			Title: "Slots given up", Unit: "ops", Width: 6,
			About:   "Times that a request gave its slot up for another, by class and scheduler.policy.",
			Queries: []Query{{rate("meridian_llama_preempted_total", "class", "policy"), "{{class}} {{policy}}"}},
		},
		{
			Title: "Turns held back", Unit: "ops", Width: 6,
			About:   "Quanta and pieces of prompts that waited, since an interactive answer was late or another prompt came first. A background that is always held back has a budget that this machine cannot keep: raise scheduler.output_tpot_budget_ms.",
			Queries: []Query{{rate("meridian_llama_turns_held_total", "class"), "{{class}}"}},
		},
		{
			Title: "Refused by the queue", Unit: "ops", Width: 6, Steps: []Step{{0.1, Warn}, {1, Bad}},
			About:   "Requests that were answered 429, since as many waited for a slot as may, by class.",
			Queries: []Query{{rate("meridian_llama_queue_refused_total", "class"), "{{class}}"}},
		},
	}}
}

func truth() Row {
	return Row{"Fabric truth", []Panel{
		{
			Title: "Transport really used", Kind: Stack, Unit: "Bps", Width: 8,
			About:   "Body bytes by the transport that carried them, whatever was configured.",
			Queries: []Query{{rate("meridian_transfer_bytes_total", "fabric", "transport"), "{{fabric}} over {{transport}}"}},
		},
		{
			Title: "Peers by transport", Kind: Stack, Unit: "short", Width: 8,
			About:   "Connected peers, by the transport to them.",
			Queries: []Query{{`count by (transport) (meridian_peer_ready{@} == 1)`, "{{transport}}"}},
		},
		{
			Title: "Fallbacks", Unit: "ops", Width: 8, Steps: []Step{{0.001, Warn}},
			About:   "Blocks that went over another fabric than their route prefers. A route with require refuses instead.",
			Queries: []Query{{rate("meridian_fabric_fallbacks_total", "wanted", "used"), "{{wanted}} → {{used}}"}},
		},
	}}
}

func budget() Row {
	return Row{"Budget forcing", []Panel{
		{
			Title: "Thinking cut short", Unit: "ops", Width: 12,
			About:   "Requests whose engine was asked to end their thinking.",
			Queries: []Query{{rate("meridian_budget_force_triggered_total", "instance"), "{{instance}}"}},
		},
		{
			Title: "Thinking cut short, by reason", Kind: Stack, Unit: "ops", Width: 12,
			About:   "Requests whose engine was asked to end their thinking, by reason. Mostly hard_cap: the signals decide nothing, and only the cap ends thinking.",
			Queries: []Query{{rate("meridian_budget_force_reason_total", "reason"), "{{reason}}"}},
		},
	}}
}

func process() Row {
	return Row{"Process", []Panel{
		{
			Title: "CPU", Unit: "percentunit", Width: 6,
			About:   "Cores in use; 100 % is one.",
			Queries: []Query{{rate("process_cpu_seconds_total", "instance"), "{{instance}}"}},
		},
		{
			Title: "Memory", Unit: "bytes", Width: 6,
			About: "Resident memory, the touched arena included, and the Go heap, which should be small compared with it.",
			Queries: []Query{
				{`process_resident_memory_bytes{@}`, "resident {{instance}}"},
				{`go_memstats_heap_inuse_bytes{@}`, "heap {{instance}}"},
			},
		},
		{
			Title: "Descriptors", Unit: "percentunit", Width: 6, Max: 1, Steps: []Step{{0.7, Warn}, {0.9, Bad}},
			About:   "Open file descriptors of those allowed.",
			Queries: []Query{{`process_open_fds{@} / process_max_fds{@}`, "{{instance}}"}},
		},
		{
			Title: "Goroutines", Unit: "short", Width: 6, Steps: []Step{{10000, Warn}},
			About:   "A line that only rises is a leak.",
			Queries: []Query{{`go_goroutines{@}`, "{{instance}}"}},
		},
	}}
}
