package config

import (
	"log/slog"
	"time"
)

// The tables that are Meridian's own.
var ourTables = []table[Config]{
	{"agent", "Who the daemon is, how it starts and stops.", []field[Config]{
		key("name", func(c *Config) *string { return &c.Agent.Name }, words, "", nameRule, "Name in peer lists, logs and certificates.").HostDefault("the host's name"),
		key("id", func(c *Config) *string { return &c.Agent.ID }, words, "", hexID(16), "Identity, 16 bytes. Empty: made at random once and kept in state_dir."),
		key("state_dir", func(c *Config) *string { return &c.Agent.StateDir }, words, "", free[string](), "Folder of what survives a restart.").HostDefault("`/var/lib/meridian` for root, else `meridian` in the user's state folder"),
		key("ready_min_peers", func(c *Config) *int { return &c.Agent.ReadyMinPeers }, autoCount, Auto, rule[int]{`"auto", or at least 0`, nil}, "Peers that must be reachable before the daemon is ready. \"auto\" is 0 without peers, else 1.").Live(),
		key("log_level", func(c *Config) *slog.Level { return &c.Agent.LogLevel }, levels, slog.LevelInfo, rule[slog.Level]{"one of debug, info, warn, error", nil}, "Records below are dropped.").Live(),
		key("log_format", func(c *Config) *string { return &c.Agent.LogFormat }, words, "text", oneOf("text", "json"), "Form of log lines."),
		key("drain_timeout", func(c *Config) *time.Duration { return &c.Agent.DrainTimeout }, durations, 30*time.Second, between(0, 10*time.Minute), "After SIGTERM, how long running transfers may take to end.").Live(),
		key("find_timeout", func(c *Config) *time.Duration { return &c.Agent.FindTimeout }, durations, 250*time.Millisecond, between(time.Millisecond, time.Minute), "How long a load waits for a holder to say what it has. One that takes longer is not waited for until it answers again."),
		key("topology_file", func(c *Config) *string { return &c.Agent.TopologyFile }, words, "", free[string](), "TOML file that overrides what the kernel says of NICs and RDMA ports, or the device that is chosen. docs/nixl.md has its form. Empty: none."),
	}},
	{"arena", "The arena beyond its size, which is kv_memory.capacity_bytes.", []field[Config]{
		key("verify", func(c *Config) *string { return &c.Arena.Verify }, words, "commit", oneOf("commit", "always"), "When a body is hashed: once at its commit, or at each local read too."),
		key("hold_bytes", func(c *Config) *uint64 { return &c.Arena.Hold }, sizes, 1<<30, bytesBetween(1<<20, 1<<46), "Bytes that one engine process may hold without a time limit, over all its sessions: also those that have ended, until the process has."),
		key("extent_bytes", func(c *Config) *uint64 { return &c.Arena.Extent }, sizes, 64<<20, extentRule, "Unit in which the arena grows; one size class an extent. An arena of fewer than 8 extents is cut finer."),
		key("window_bytes", func(c *Config) *uint64 { return &c.Arena.Windows }, sizes, 1<<30, bytesBetween(1<<20, 1<<46), "Bytes of all windows together, besides the arena: memory that a foreign fabric's peers read and write. None is taken before a window is opened; one that would exceed it is FULL."),
		key("ahead_bytes", func(c *Config) *uint64 { return &c.Arena.Ahead }, sizes, 1<<30, bytesBetween(0, 1<<46), "Memory that is allocated, zeroed and mapped before a block needs it, as part of kv_memory.capacity_bytes: a load into memory that was never touched is half as fast. None is taken before a namespace is open, nor while the host or the memory cgroup has little left. 0: none."),
	}},
	{"engine", "The engines' block socket.", []field[Config]{
		key("socket", func(c *Config) *string { return &c.Engine.Socket }, words, "", free[string](), "Path of the Unix socket, made with mode 0600.").HostDefault("`engine.sock` in `/run/meridian` for root, else in `$XDG_RUNTIME_DIR/meridian`").Listens(),
		key("staging_bytes", func(c *Config) *uint64 { return &c.Engine.Staging }, sizes, 64<<20, bytesBetween(1<<20, 1<<32), "Most that one session's staging ring may have, part of kv_memory.capacity_bytes. It is made for the first put, smaller where the staging shares of quota do not leave twice as much, and grows when a larger block needs it."),
		key("max_sessions", func(c *Config) *int { return &c.Engine.MaxSessions }, integers, 16, between(1, 1024), "Engines that have a namespace open, at the same time: the sessions of one scheduler and its ranks are one engine. Connections that have none yet count by user: quota.source_half_open."),
		key("max_group_sessions", func(c *Config) *int { return &c.Engine.MaxGroupSessions }, integers, 40, between(1, 1024), "Sessions of one engine at the same time: its scheduler and a worker for each rank."),
		key("max_pin", func(c *Config) *time.Duration { return &c.Engine.MaxPin }, durations, time.Minute, between(time.Second, time.Hour), "Longest that an engine may pin a block: until a peer has pulled it, its request ends, or this time is over. More counts as this. Pinned bytes are of the engine's share: quota.engine_arena_share."),
		key("max_parked_loads", func(c *Config) *int { return &c.Engine.MaxParkedLoads }, integers, 10_000, between(1, 1_000_000), "Loads of one engine that wait for blocks at the same time: one more is BUSY."),
		key("max_parked_blocks", func(c *Config) *int { return &c.Engine.MaxParkedBlocks }, integers, 1<<18, between(1, 1<<26), "Blocks that the waiting loads of one engine wait for, of some 150 bytes each. With those that they do not wait for, such loads may have four times as many, of some 70 bytes each."),
	}},
	{"security", "Who may use the engine socket.", []field[Config]{
		key("tenants", func(c *Config) *[]string { return &c.Security.Tenants }, strs, []string{"default"}, rule[[]string]{"names without control characters", nil}, "Tenants that local engines may open, and peers of this host where none is listed. Empty: none, so that no engine can work.").Live(),
		key("uids", func(c *Config) *[]uint32 { return &c.Security.UIDs }, uidList, nil, free[[]uint32](), "Users that may connect in addition to the daemon's own."),
	}},
	{"gateway", "Blocks that peers bring and that go on to another fabric, by a [[route]] with from.", []field[Config]{
		key("queue_bytes", func(c *Config) *uint64 { return &c.Gateway.Queue }, sizes, 0, bytesBetween(0, 1<<46), "Bytes of the arena in which blocks wait to be sent on. One source may have a quarter of them and one fabric half; a block that would exceed that is refused as BUSY before it is stored. 0: an eighth of kv_memory.capacity_bytes."),
		key("cut_through_bytes", func(c *Config) *uint64 { return &c.Gateway.Cut }, sizes, 1<<20, bytesBetween(0, 1<<30), "From what size on a block that a peer of the link brings, and that goes on over the link, goes on while it comes. The next daemon publishes it only once this one has checked all of it. 0: each block is stored first."),
		key("look_timeout", func(c *Config) *time.Duration { return &c.Gateway.Look }, durations, 2*time.Second, between(time.Millisecond, time.Minute), "How long a block that a peer asks for and that is not here is looked for in other fabrics."),
	}},
	{"admin", "The operator's side.", []field[Config]{
		key("socket", func(c *Config) *string { return &c.Admin.Socket }, words, "", free[string](), "Path of the admin API's Unix socket, made with mode 0600.").HostDefault("`admin.sock` in `/run/meridian` for root, else in `$XDG_RUNTIME_DIR/meridian`").Listens(),
		key("http", func(c *Config) *string { return &c.Admin.HTTP }, words, "127.0.0.1:0", free[string](), "host:port of metrics, health and status. Port 0 takes a free one. Empty: none.").Listens(),
		key("insecure", func(c *Config) *bool { return &c.Admin.Insecure }, booleans, false, free[bool](), "Allow http beyond loopback: it has no TLS and asks nobody who they are."),
		key("hosts", func(c *Config) *[]string { return &c.Admin.Hosts }, strs, nil, rule[[]string]{"host names or addresses, with or without a port", nil}, "What the Host header of a request to http may be, besides loopback and the address of http: the names by which Prometheus and others reach it. Other names are refused, so that no web page can rebind its own."),
		key("origins", func(c *Config) *[]string { return &c.Admin.Origins }, strs, nil, rule[[]string]{"scheme://host[:port]", nil}, "Web pages that may read http. Without any, requests of web pages are refused."),
	}},
	{"llama", "A llama-server that this daemon supervises, with an OpenAI-compatible front. Without model there is none.", []field[Config]{
		key("model", func(c *Config) *string { return &c.Llama.Model }, words, "", free[string](), "Path of the GGUF file."),
		key("server", func(c *Config) *string { return &c.Llama.Server }, words, "", free[string](), "Path of the llama-server binary. Required with model."),
		key("args", func(c *Config) *[]string { return &c.Llama.Args }, strs, nil, free[[]string](), "Further arguments of llama-server, such as [\"-ngl\", \"99\"]."),
		key("name", func(c *Config) *string { return &c.Llama.Name }, words, "", free[string](), "The model's name in requests, and that of its [model.NAME].").HostDefault("the file's name without its extension"),
		key("listen", func(c *Config) *string { return &c.Llama.Listen }, words, "127.0.0.1:0", free[string](), "host:port of the OpenAI front. Port 0 takes a free one. Beyond loopback it takes insecure."),
		key("insecure", func(c *Config) *bool { return &c.Llama.Insecure }, booleans, false, free[bool](), "Allow the front beyond loopback: it has no TLS."),
		key("token", func(c *Config) *Secret { return &c.Llama.Token }, secrets, "", free[Secret](), "Bearer token that the front asks for, and that the partner's is asked with. Empty: none. Required beyond loopback."),
		key("hosts", func(c *Config) *[]string { return &c.Llama.Hosts }, strs, nil, rule[[]string]{"host names or addresses, with or without a port", nil}, "What the Host header of a request to the front may be, besides loopback and the address of listen. A request with the right token may have any."),
		key("origins", func(c *Config) *[]string { return &c.Llama.Origins }, strs, nil, rule[[]string]{"scheme://host[:port]", nil}, "Web pages that may call the front. Without any, requests of web pages are refused."),
		key("dir", func(c *Config) *string { return &c.Llama.Dir }, words, "", free[string](), "Folder of llama-server's socket and of slot states on their way, best in memory.").HostDefault("`/dev/shm/meridian-NAME`, with the agent's name"),
		key("context", func(c *Config) *int { return &c.Llama.Context }, integers, 4096, between(64, 1<<22), "Tokens of a slot's context."),
		key("slots", func(c *Config) *int { return &c.Llama.Slots }, integers, 2, between(1, 64), "Requests that are generated at the same time."),
		key("threads", func(c *Config) *int { return &c.Llama.Threads }, integers, 0, between(0, 1024), "Threads of llama-server. 0: its own choice."),
		key("tenant", func(c *Config) *string { return &c.Llama.Tenant }, words, "default", nonEmpty, "Tenant of the node's blocks, one of security.tenants."),
		key("block_tokens", func(c *Config) *int { return &c.Llama.BlockTokens }, integers, 16, between(1, 1024), "Tokens of a full block. Both nodes of a split need the same."),
		key("quantum", func(c *Config) *int { return &c.Llama.Quantum }, integers, 16, between(1, 1024), "Most tokens that are decoded between two decisions of the scheduler. With a seed and a temperature it is as many always, so that the same request draws the same tokens."),
		key("tick", func(c *Config) *time.Duration { return &c.Llama.Tick }, durations, 100*time.Millisecond, between(time.Millisecond, 10*time.Second), "What a quantum of thinking or of the background, and a piece of a prompt while there are other requests, should take: as many tokens as by the measured pace fit. A longer prompt stalls the answers beside it for this long at a time."),
		key("hold", func(c *Config) *time.Duration { return &c.Llama.Hold }, durations, 10*time.Second, between(time.Millisecond, time.Hour), "How often one of the quanta and pieces of prompts that wait, because an interactive answer is late (scheduler.output_tpot_budget_ms) or another prompt comes first, goes on all the same; one in the background then for a third of it, so that the background has a quarter of the time in any case."),
		key("role", func(c *Config) *string { return &c.Llama.Role }, words, "both", oneOf("both", "prefill", "decode"), "What the node does with a prompt: prefill and hand over, let the partner prefill and decode, or both."),
		key("partner", func(c *Config) *string { return &c.Llama.Partner }, words, "", free[string](), "The other node's front: http://host:port, https://host:port, or on the same host unix:// and the path of front.sock in its llama.dir. Required with role prefill and decode."),
		key("partner_timeout", func(c *Config) *time.Duration { return &c.Llama.PartnerTime }, durations, 2*time.Minute, between(2*time.Second, time.Hour), "How long the partner may take for one prompt, and for the next token of an answer, however it works. Then this node does it by itself, and leaves the partner alone for twice as long and more. One that gives no sign of life is not waited for beyond 2 s, nor one without progress beyond 2 s and what it says that its step may take."),
		key("remote_prefill_tokens", func(c *Config) *int { return &c.Llama.Remote }, integers, 32, between(1, 1<<22), "A decode node computes fewer missing prompt tokens than this itself."),
		key("think_start", func(c *Config) *string { return &c.Llama.ThinkStart }, words, "", free[string](), "Text of the marker that opens thinking, such as <think>. Its token ids come from the model's tokenizer; [model.NAME] overrides them."),
		key("think_end", func(c *Config) *string { return &c.Llama.ThinkEnd }, words, "", free[string](), "Text of the marker that ends it."),
		key("think_open", func(c *Config) *bool { return &c.Llama.ThinkOpen }, booleans, false, free[bool](), "Append think_start to each chat prompt, for a template that does not."),
		key("signal_probs", func(c *Config) *int { return &c.Llama.SignalProbs }, integers, 0, between(0, 1<<20), "Probabilities that a probe of the entropy signals asks llama-server for. The whole vocabulary is exact and slow. 0: no signals."),
	}},
}
