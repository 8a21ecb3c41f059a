package config

import "time"

// Quota is what one holder may have. A share is a part of kv_memory.capacity_bytes.
type Quota struct {
	PeerArena        float64       // of one peer's reservations and leases
	PeerReserve      time.Duration // a peer's reservation ends after it
	PeerLeaseAge     time.Duration // a peer's lease ends after it, however often it is renewed
	TenantArena      float64       // of all reservations and leases in a tenant's namespaces
	EngineArena      float64       // of one engine process's reservations and leases
	Staging          float64       // of all engines' staging rings
	PeerNamespaces   int
	TenantNamespaces int
	EngineNamespaces int
	PeerSessions     int
	SourceHalfOpen   int
	HalfOpen         int
	LogLines         int // of one kind, a minute
}

// The defaults suit a cluster of 100 nodes, in which a node serves 99 peers and one
// engine: a quarter of the arena is far more than one peer uses when all work, and
// stops one that took everything. The node's own engine may use all of it.
var quotaTable = table[Config]{"quota", "What one peer, tenant, engine or source address may hold. A refusal names the key, the holder and both amounts; the metrics are meridian_quota_used, _limit and _refused_total.", []field[Config]{
	key("peer_arena_share", func(c *Config) *float64 { return &c.Quota.PeerArena }, floats, 0.25, fraction, "Share of kv_memory.capacity_bytes that one peer may hold in reservations and leases together, over all its sessions."),
	key("peer_reserve_time", func(c *Config) *time.Duration { return &c.Quota.PeerReserve }, durations, time.Minute, between(time.Second, 10*time.Minute), "A peer's reservation is freed after this time, whatever deadline it asked for."),
	key("peer_lease_age", func(c *Config) *time.Duration { return &c.Quota.PeerLeaseAge }, durations, 10*time.Minute, between(30*time.Second, 24*time.Hour), "A peer's lease ends at this age, however often the peer renews it."),
	key("tenant_arena_share", func(c *Config) *float64 { return &c.Quota.TenantArena }, floats, 1, fraction, "Share of kv_memory.capacity_bytes that a tenant's reserved and leased blocks may take together, for all holders. 1: no limit, as a node with one tenant wants it."),
	key("engine_arena_share", func(c *Config) *float64 { return &c.Quota.EngineArena }, floats, 1, fraction, "Share of kv_memory.capacity_bytes that one engine process may hold in reservations and leases together. A block leased twice counts twice. 1: no limit, as a node with one engine wants it."),
	key("staging_share", func(c *Config) *float64 { return &c.Quota.Staging }, floats, 0.5, fraction, "Share of kv_memory.capacity_bytes that the staging rings of all engines may take. Rings are part of the capacity: what they take, blocks cannot. A ring gets at most half of what is left of the share."),
	key("peer_namespaces", func(c *Config) *int { return &c.Quota.PeerNamespaces }, integers, 64, between(16, 1024), "Namespaces that one peer may hold open, over all its sessions."),
	key("tenant_namespaces", func(c *Config) *int { return &c.Quota.TenantNamespaces }, integers, 256, between(1, 1024), "Namespaces of one tenant that may be open here."),
	key("engine_namespaces", func(c *Config) *int { return &c.Quota.EngineNamespaces }, integers, 64, between(1, 1024), "Namespaces that one engine process may hold open."),
	key("peer_sessions", func(c *Config) *int { return &c.Quota.PeerSessions }, integers, 4, between(1, 64), "Sessions of one peer that are accepted at a time, by its proven name."),
	key("source_half_open", func(c *Config) *int { return &c.Quota.SourceHalfOpen }, integers, 16, between(1, 65536), "Connections of one source address, or of one user of a Unix socket, whose HELLO is not through. For one more the oldest silent one is closed. An IPv6 source is a /64."),
	key("half_open", func(c *Config) *int { return &c.Quota.HalfOpen }, integers, 256, between(16, 65536), "Connections whose HELLO is not through, of all sources together. For one more the oldest silent one of the source that has most is closed."),
	key("log_lines", func(c *Config) *int { return &c.Quota.LogLines }, integers, 10, between(1, 10000), "Log lines of one kind (level, message and peer) that are written in a minute. Another line then says how many more there were."),
}}
