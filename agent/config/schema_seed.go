package config

import "time"

// unread is of keys that nothing here reads: the seed documents fix them too.
const unread = " No effect: nothing in this build reads it."

// The tables that the seed documents define; their names, defaults and ranges
// are fixed.
var seedTables = []table[Config]{
	{"scheduler", "Service levels and the bounds of thinking.", []field[Config]{
		key("policy", func(c *Config) *string { return &c.Scheduler.Policy }, words, "output-first", oneOf("fcfs", "output-first", "reason-first", "slo-slack"), "Which requests of a llama.cpp node are admitted first, and which yield their slot: fcfs (first come first served, whole prompts, no classes), output-first (answers before thinking), reason-first (thinking before answers whose readers have enough to read), slo-slack (the token that is due first). Ours."),
		key("think_tpot_budget_ms", func(c *Config) *float64 { return &c.Scheduler.ThinkTPOTBudget }, floats, 80, budgetMS, "Milliseconds a thinking token may take: its service level, by which slo-slack orders."),
		key("output_tpot_budget_ms", func(c *Config) *float64 { return &c.Scheduler.OutputTPOTBudget }, floats, 20, budgetMS, "Milliseconds an output token may take: its service level, and the pace of a reader. While an interactive answer is slower, requests in the background wait."),
		key("first_answer_budget_ms", func(c *Config) *float64 { return &c.Scheduler.FirstAnswerBudget }, floats, 1000, budgetMS, "Milliseconds from a request's arrival to its first token, by which slo-slack orders. Ours."),
		key("think_batch_multiplier", func(c *Config) *float64 { return &c.Scheduler.ThinkBatchMultiplier }, floats, 2.5, atLeast(1.0), "output-first: thinking requests that run for each slot that is left to others; with fewer slots than this and one, none is left. Above 3.5 is a warning."),
		key("answer_buffer", func(c *Config) *time.Duration { return &c.Scheduler.AnswerBuffer }, durations, 15*time.Second, between(time.Millisecond, time.Hour), "reason-first: an answer yields its slot only when its reader has so much to read. Ours."),
		key("min_residency", func(c *Config) *time.Duration { return &c.Scheduler.MinResidency }, durations, time.Second, between(time.Millisecond, time.Hour), "How long a request has its slot at least, while another can be preempted. Ours."),
		key("aging", func(c *Config) *time.Duration { return &c.Scheduler.Aging }, durations, time.Minute, between(time.Millisecond, 24*time.Hour), "A request that has waited so long for a slot comes first in one of four admissions, whatever its class and the policy. Ours."),
		key("max_think_tokens", func(c *Config) *uint32 { return &c.Scheduler.MaxThinkTokens }, counts, 32768, atLeast[uint32](1), "Thinking ends by force after so many tokens."),
		key("min_think_tokens", func(c *Config) *uint32 { return &c.Scheduler.MinThinkTokens }, counts, 512, free[uint32](), "Signals end no thinking before so many tokens. Below max_think_tokens."),
	}},
	{"entropy", "When signals say that a request has thought enough.", []field[Config]{
		key("enabled", func(c *Config) *bool { return &c.Entropy.Enabled }, booleans, true, free[bool](), "Use the signals that an engine sends."),
		key("ema_alpha", func(c *Config) *float64 { return &c.Entropy.EMAAlpha }, floats, 0.05, fraction, "Weight of the newest value in the moving average."),
		key("rpdi_threshold", func(c *Config) *float64 { return &c.Entropy.RPDIThreshold }, floats, 3, above(1), "The indicator above this (rpdi_indicator, where the entropy crosses its threshold) ends thinking as overthinking."),
		key("eat_ema_variance_threshold", func(c *Config) *float64 { return &c.Entropy.EATEMAVarianceThreshold }, floats, 0.001, atLeast(0.0), "Variance of the moving average of p_end, or of eat, below which thinking has converged."),
		key("transition_entropy_threshold", func(c *Config) *float64 { return &c.Entropy.TransitionEntropyThreshold }, floats, 2.5, atLeast(0.0), "Nats above which a token counts as a transition."),
		key("eat_probe_interval_tokens", func(c *Config) *uint32 { return &c.Entropy.EATProbeInterval }, counts, 32, atLeast[uint32](1), "Tokens between two probes of the signals."),
		key("p_end_level", func(c *Config) *float64 { return &c.Entropy.PEndLevel }, floats, 0.5, fraction, "Thinking converges by p_end only where its moving average is at least this. Ours: without a level a model whose p_end stays near zero would converge at once."),
	}},
	{"kv_memory", "The arena: its size and who may fill it.", []field[Config]{
		key("aggressive_think_eviction", func(c *Config) *bool { return &c.KVMemory.AggressiveThinkEviction }, booleans, false, free[bool](), "Free think blocks when thinking ends, instead of demoting them."),
		key("think_phase_memory_fraction", func(c *Config) *float64 { return &c.KVMemory.ThinkPhaseMemoryFraction }, floats, 0.4, fraction, "Share that think blocks may hold while output blocks wait."),
		key("block_size_bytes", func(c *Config) *uint64 { return &c.KVMemory.BlockSize }, sizes, 16384, bytesBetween(64, 1<<30), "Size of a full block's body, at most one extent."+unread),
		key("capacity_bytes", func(c *Config) *capacity { return &c.KVMemory.setting }, autoSize, capacity{auto: true}, capacityRule, "Bytes of the arena. \"auto\" takes half of what is free when the daemon starts (the smaller of MemAvailable and what the memory cgroup leaves), in whole extents.").called("arena.size", "arena.memory", "kv_memory.size", "kv_memory.memory"),
	}},
	{"disagg", "Off-loading of think blocks. One fabric here is short for one [[route]].", []field[Config]{
		key("enabled", func(c *Config) *bool { return &c.Disagg.Enabled }, booleans, false, free[bool](), "Off-load think blocks when thinking ends."),
		key("fabric", func(c *Config) *string { return &c.Disagg.Fabric }, words, "none", fabricOrNone, "Where to: link, a [fabric.NAME] of the file, or a kind of fabric that needs no table. None is refused when enabled."),
		key("offload_threshold_blocks", func(c *Config) *uint32 { return &c.Disagg.OffloadThresholdBlocks }, counts, 4, atLeast[uint32](1), "Blocks of one off-load batch. The rest goes by a timer and at the end."),
		key("write_through", func(c *Config) *bool { return &c.Disagg.WriteThrough }, booleans, false, free[bool](), "Copy prompt blocks to the routed fabric too, before the engine's PUT is acknowledged: for a fabric that other nodes read from."),
	}},
	{"telemetry", "OpenTelemetry.", []field[Config]{
		key("otlp_enabled", func(c *Config) *bool { return &c.Telemetry.OTLPEnabled }, booleans, false, free[bool](), "Send traces by OTLP over HTTP: a span for each load and each block that goes on to another fabric, with one below it for each attempt. Metrics are at /metrics of admin.http."),
		key("otlp_endpoint", func(c *Config) *string { return &c.Telemetry.OTLPEndpoint }, words, "http://localhost:4318", free[string](), "Where to: an http or https URL, to which /v1/traces is added."),
		key("service_name", func(c *Config) *string { return &c.Telemetry.ServiceName }, words, "meridian", nonEmpty, "Name of the service in traces."+unread),
	}},
}

var modelTable = table[Model]{"model", "One table a model, named as the engine names it. Not settable from the environment.", []field[Model]{
	key("think_start_token_ids", func(m *Model) *[]int32 { return &m.ThinkStart }, tokenIDs, nil, free[[]int32](), "The token sequence that starts thinking."),
	key("think_end_token_ids", func(m *Model) *[]int32 { return &m.ThinkEnd }, tokenIDs, nil, free[[]int32](), "The token sequence that ends it. Empty: thinking is never ended by force, with a warning."),
	key("think_space_token_ids", func(m *Model) *[]int32 { return &m.ThinkSpace }, tokenIDs, nil, free[[]int32](), "Ids that are white space, such as a newline's: those that the chat template puts after the start sequence, and those that the model decodes before it. An engine tells ids only, so a prompt whose start sequence is followed by any other id is taken for one that does not think."),
	key("reasoning_parser", func(m *Model) *string { return &m.ReasoningParser }, words, "", free[string](), "The engine's name for its parser."+unread),
	key("keeps_thinking", func(m *Model) *bool { return &m.KeepsThinking }, booleans, false, free[bool](), "Whether the chat template keeps thinking in the history, so that think blocks are read again in the next turn."),
	key("supports_think_disable", func(m *Model) *bool { return &m.SupportsThinkDisable }, booleans, false, free[bool](), "Whether a request can switch thinking off."+unread),
}}

var nonEmpty = rule[string]{"not empty", func(s string) bool { return s != "" }}

// minCapacity is the smallest arena: one extent of the smallest size.
const minCapacity = 1 << 20

var capacityRule = rule[capacity]{
	`"auto", or between ` + FormatBytes(minCapacity) + " and " + FormatBytes(1<<46),
	func(c capacity) bool { return c.auto || (c.bytes >= minCapacity && c.bytes <= 1<<46) },
}
