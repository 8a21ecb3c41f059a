package config

import "time"

// Quota is what one holder may have. A share is a part of kv_memory.capacity_bytes.
type Quota struct {
	PeerArena         float64       // of one peer's reservations and leases
	PeersArena        float64       // of those of all peers together
	PeerReserve       time.Duration // a peer's reservation ends after it
	PeerStanding      uint64        // reserved ahead for the small pushes of one session of a peer
	PeerLeaseAge      time.Duration // a peer's lease ends after it, however often it is renewed
	TenantArena       float64       // of all reservations and leases in a tenant's namespaces
	EngineArena       float64       // of one engine process's reservations and leases
	UserEnded         float64       // of hold leases of one user's engine sessions that have ended
	TenantGuaranteed  float64       // divided among the tenants that have a namespace here
	EngineGuaranteed  float64       // divided among the engines that are connected
	Staging           float64       // of all engines' staging rings
	EngineStaging     float64       // of them, of one engine process's
	TenantStaging     float64       // of them, of one tenant's engines'
	Namespaces        int
	PeersNamespaces   int
	PeerNamespaces    int
	TenantNamespaces  int
	EngineNamespaces  int
	ProcessNamespaces int
	UserNamespaces    int
	ProcessEngines    int
	UserEngines       int
	PeerSessions      int
	UnlistedSessions  int
	SourceHalfOpen    int
	HalfOpen          int
	HTTPConns         int
	SourceHTTPConns   int
	FrontConns        int
	SourceFrontConns  int
	LogLines          int // of one kind, a minute

	// Of a metadata server for Mooncake nodes.
	SourceMetadataConns   int
	MetadataConns         int
	SourceMetadataEntries int
	MetadataEntries       int
	SourceMetadataBytes   uint64
	MetadataBytes         uint64

	// Of listeners for foreign initiators, and of relays between them.
	DataConns            int
	SourceDataConns      int
	DataReads            int
	SourceDataReads      int
	HandshakeConns       int
	SourceHandshakeConns int
	HandshakeBytes       uint64
	SourceHandshakeBytes uint64
	RelayBytes           uint64
	SourceRelayBytes     uint64
	RelayCalls           int
	SourceRelayCalls     int
}

// The defaults suit a cluster of 100 nodes, in which a node serves 99 peers: a
// quarter of the arena is far more than one peer uses when all work, and stops one
// that took everything; half of it for all peers leaves the node's own engines the
// other half. A single engine of a single tenant may use everything. Of several
// each is sure of an equal part of half the arena. Eight Mooncake engines on each of 99
// nodes, with four lanes each, are 3168 data connections and 792 handshakes.
var quotaTable = table[Config]{"quota", "What one peer, tenant, engine or source address may hold. A refusal names the key, the holder and both amounts; the metrics are meridian_quota_used, _limit and _refused_total.", []field[Config]{
	key("peer_arena_share", func(c *Config) *float64 { return &c.Quota.PeerArena }, floats, 0.25, fraction, "Share of kv_memory.capacity_bytes that one peer may hold in reservations and leases together, over all its sessions."),
	key("peers_arena_share", func(c *Config) *float64 { return &c.Quota.PeersArena }, floats, 0.5, fraction, "Share of kv_memory.capacity_bytes that all peers together may hold in reservations and leases. A block that several peers lease counts once."),
	key("peer_reserve_time", func(c *Config) *time.Duration { return &c.Quota.PeerReserve }, durations, time.Minute, between(time.Second, 10*time.Minute), "A peer's reservation is freed after this time, whatever deadline it asked for."),
	key("peer_standing_bytes", func(c *Config) *uint64 { return &c.Quota.PeerStanding }, sizes, 4<<20, bytesBetween(0, 256<<20), "Bytes that are reserved ahead for the small pushes of a peer's session, so that they need not ask for room first: after a push of few blocks, for 10 s. They count for quota.peer_arena_share, of which they are an eighth at most. 0: none."),
	key("peer_lease_age", func(c *Config) *time.Duration { return &c.Quota.PeerLeaseAge }, durations, 10*time.Minute, between(30*time.Second, 24*time.Hour), "A peer's lease ends at this age, however often the peer renews it."),
	key("tenant_arena_share", func(c *Config) *float64 { return &c.Quota.TenantArena }, floats, 1, fraction, "Share of kv_memory.capacity_bytes that a tenant's reserved and leased blocks may take together, for all holders. 1: no limit but what quota.tenant_guaranteed_share leaves."),
	key("engine_arena_share", func(c *Config) *float64 { return &c.Quota.EngineArena }, floats, 1, fraction, "Share of kv_memory.capacity_bytes that one engine process may hold in reservations and leases together. A block leased twice counts twice. 1: no limit but what quota.engine_guaranteed_share leaves."),
	key("user_ended_share", func(c *Config) *float64 { return &c.Quota.UserEnded }, floats, 0.25, fraction, "Share of kv_memory.capacity_bytes that hold leases may take of which the engine session has ended and the process has not, for all processes of one user. Beyond it the user's engines get no more hold leases. 1: no limit but arena.hold_bytes a process."),
	key("tenant_guaranteed_share", func(c *Config) *float64 { return &c.Quota.TenantGuaranteed }, floats, 0.5, fraction, "Share of kv_memory.capacity_bytes that is divided equally among the tenants that have a namespace here. What one of them does not use of its part, no other may hold in reservations and leases; blocks in the cache may lie there. Where less is left than that, because another took more before the others came, it is shared by those that are below their parts. A single tenant may use everything. Memory passes between tenants in whole extents (arena.extent_bytes), so an extent in which one block is held counts as free and is not."),
	key("engine_guaranteed_share", func(c *Config) *float64 { return &c.Quota.EngineGuaranteed }, floats, 0.5, fraction, "Share of kv_memory.capacity_bytes that is divided equally among the engine processes that are connected. What one of them does not use of its part, neither another engine nor a peer may hold in reservations and leases; blocks in the cache may lie there. Where less is left than that, because another took more before the others connected, it is shared by those that are below their parts. A single engine may use everything."),
	key("staging_share", func(c *Config) *float64 { return &c.Quota.Staging }, floats, 0.5, fraction, "Share of kv_memory.capacity_bytes that the staging rings of all engines may take. Rings are part of the capacity: what they take, blocks cannot. A session has no ring before its first put, which then gets at most half of what this and the next two leave, and at least one full block. Where several users may connect (security.uids), the rings of one of them never get more than are free then."),
	key("engine_staging_share", func(c *Config) *float64 { return &c.Quota.EngineStaging }, floats, 0.5, fraction, "Share of the bytes of quota.staging_share that one engine process may have, over all its connections."),
	key("tenant_staging_share", func(c *Config) *float64 { return &c.Quota.TenantStaging }, floats, 1, fraction, "Share of the bytes of quota.staging_share that the engines of one tenant may have. An engine of several tenants counts for each. 1: no limit, as a node with one tenant wants it."),
	key("namespaces", func(c *Config) *int { return &c.Quota.Namespaces }, integers, 1024, between(16, 1024), "Namespaces that may be open or have blocks here, of engines and peers together."),
	key("peers_namespaces", func(c *Config) *int { return &c.Quota.PeersNamespaces }, integers, 768, between(16, 1024), "Namespaces that peers opened first and that are open or have blocks here. What quota.namespaces has above it is for this node's engines."),
	key("peer_namespaces", func(c *Config) *int { return &c.Quota.PeerNamespaces }, integers, 64, between(16, 1024), "Namespaces that one peer may hold open, over all its sessions."),
	key("tenant_namespaces", func(c *Config) *int { return &c.Quota.TenantNamespaces }, integers, 256, between(1, 1024), "Namespaces of one tenant that may be open here."),
	key("engine_namespaces", func(c *Config) *int { return &c.Quota.EngineNamespaces }, integers, 64, between(1, 1024), "Namespaces that one engine process may hold open, and all `[[namespace]]` of the file together."),
	key("process_namespaces", func(c *Config) *int { return &c.Quota.ProcessNamespaces }, integers, 256, between(1, 1024), "Namespaces that one process may hold open, over all engines that it begins. It never has more than are free then: what one process takes leaves others a part."),
	key("user_namespaces", func(c *Config) *int { return &c.Quota.UserNamespaces }, integers, 1024, between(1, 1024), "Where several users may connect (security.uids): namespaces that the engines of one of them may hold open, which never has more than are free then."),
	key("process_engines", func(c *Config) *int { return &c.Quota.ProcessEngines }, integers, 8, between(1, 1024), "Of engine.max_sessions, those that one process may begin. It never has more than are free then."),
	key("user_engines", func(c *Config) *int { return &c.Quota.UserEngines }, integers, 1024, between(1, 1024), "Where several users may connect: of engine.max_sessions, those of one of them, which never has more than are free then."),
	key("peer_sessions", func(c *Config) *int { return &c.Quota.PeerSessions }, integers, 4, between(1, 64), "Sessions of one peer that are accepted at a time, by its proven name."),
	key("unlisted_sessions", func(c *Config) *int { return &c.Quota.UnlistedSessions }, integers, 64, between(1, 65536), "Sessions of peers on no list that come from one source address, or from one user of a Unix socket."),
	key("source_half_open", func(c *Config) *int { return &c.Quota.SourceHalfOpen }, integers, 16, between(1, 65536), "Connections of one source address, or of one user of a Unix socket, whose HELLO is not through. For one more the oldest silent one is closed. An IPv6 source is a /64."),
	key("half_open", func(c *Config) *int { return &c.Quota.HalfOpen }, integers, 256, between(16, 65536), "Connections whose HELLO is not through, of all sources together. For one more the oldest silent one of the source that has most is closed."),
	key("http_connections", func(c *Config) *int { return &c.Quota.HTTPConns }, integers, 128, between(4, 65536), "Connections to admin.http, of all sources together. One more takes the place of one that runs no request; where there is none, it is answered 503 with this key's name."),
	key("source_http_connections", func(c *Config) *int { return &c.Quota.SourceHTTPConns }, integers, 32, between(1, 65536), "Of them, those of one source address. An IPv6 source is a /64."),
	key("front_connections", func(c *Config) *int { return &c.Quota.FrontConns }, integers, 1024, between(4, 65536), "Connections to llama.listen and front.sock, of all sources together. One more takes the place of one that runs no request; where there is none, it is answered 503 with this key's name."),
	key("source_front_connections", func(c *Config) *int { return &c.Quota.SourceFrontConns }, integers, 512, between(1, 65536), "Of them, those of one source address, such as a reverse proxy: it may need most of them. front.sock is one source. An IPv6 source is a /64."),
	key("log_lines", func(c *Config) *int { return &c.Quota.LogLines }, integers, 10, between(1, 10000), "Log lines of one kind (level, message and peer) that are written in a minute. Another line then says how many more there were."),
	key("source_metadata_connections", func(c *Config) *int { return &c.Quota.SourceMetadataConns }, integers, 128, between(4, 65536), "Connections of one source address to the metadata server for Mooncake nodes, to listen of NIXL fabrics and to hubs for NIXL agents. For one more the oldest one without a request is closed. All loopback addresses are one source, as is an IPv6 /64."),
	key("metadata_connections", func(c *Config) *int { return &c.Quota.MetadataConns }, integers, 1024, between(16, 65536), "Connections to the same, of all sources together."),
	key("source_metadata_entries", func(c *Config) *int { return &c.Quota.SourceMetadataEntries }, integers, 1024, between(2, 1<<20), "Entries of the metadata server, and of hubs for NIXL agents, that nodes of one source address may have. A Mooncake node has two."),
	key("metadata_entries", func(c *Config) *int { return &c.Quota.MetadataEntries }, integers, 16384, between(16, 1<<20), "Entries of the same, of all sources together."),
	key("source_metadata_bytes", func(c *Config) *uint64 { return &c.Quota.SourceMetadataBytes }, sizes, 32<<20, bytesBetween(2<<20, 1<<32), "Bytes of the entries of one source address, with their keys. A descriptor has about 75 bytes a buffer, and 1 MiB at most."),
	key("metadata_bytes", func(c *Config) *uint64 { return &c.Quota.MetadataBytes }, sizes, 256<<20, bytesBetween(2<<20, 1<<36), "Bytes of all these entries."),
	key("data_connections", func(c *Config) *int { return &c.Quota.DataConns }, integers, 4096, between(4, 65536), "Connections to the data planes of Mooncake fabrics and relays, of all sources together. For one more the oldest one that never made a valid request is closed; where there is none, the new one is."),
	key("source_data_connections", func(c *Config) *int { return &c.Quota.SourceDataConns }, integers, 2048, between(1, 65536), "Of them, those of one source address, which never has more than are free then. An IPv6 source is a /64. An engine without its connection pool has one for each request of a batch."),
	key("data_reads", func(c *Config) *int { return &c.Quota.DataReads }, integers, 512, between(2, 65536), "Data connections of Mooncake fabrics to which bodies of reads are being sent. One more waits for 30 s in its source's turn, then its read is refused."),
	key("source_data_reads", func(c *Config) *int { return &c.Quota.SourceDataReads }, integers, 256, between(1, 65536), "Of them, those of one source address, which never has more than are free then."),
	key("handshake_connections", func(c *Config) *int { return &c.Quota.HandshakeConns }, integers, 1024, between(4, 65536), "Connections to the handshakes of Mooncake fabrics and relays, of all sources together. For one more the oldest silent one is closed; where there is none, the new one is."),
	key("source_handshake_connections", func(c *Config) *int { return &c.Quota.SourceHandshakeConns }, integers, 512, between(1, 65536), "Of them, those of one source address, which never has more than are free then. An IPv6 source is a /64."),
	key("handshake_bytes", func(c *Config) *uint64 { return &c.Quota.HandshakeBytes }, sizes, 64<<20, bytesBetween(2<<20, 1<<36), "Bytes of all handshake requests that have not come whole, but for the first 4 KiB of each, and of metadata that NIXL agents send. A descriptor has about 75 bytes a buffer, and 1 MiB at most."),
	key("source_handshake_bytes", func(c *Config) *uint64 { return &c.Quota.SourceHandshakeBytes }, sizes, 32<<20, bytesBetween(1<<20, 1<<36), "Of them, those of one source address, which never has more than are free then."),
	key("relay_bytes", func(c *Config) *uint64 { return &c.Quota.RelayBytes }, sizes, 64<<20, bytesBetween(1<<20, 1<<36), "Bytes of memory for what Mooncake relays carry at a time: 256 KiB a request. One more waits for 10 s in its source's turn, then it is refused."),
	key("source_relay_bytes", func(c *Config) *uint64 { return &c.Quota.SourceRelayBytes }, sizes, 32<<20, bytesBetween(256<<10, 1<<36), "Of them, those of one source address, which never has more than are free then."),
	key("relay_calls", func(c *Config) *int { return &c.Quota.RelayCalls }, integers, 128, between(2, 65536), "Probes and notifies that Mooncake relays have under way at their targets. One more waits for 10 s in its source's turn, then it is refused."),
	key("source_relay_calls", func(c *Config) *int { return &c.Quota.SourceRelayCalls }, integers, 64, between(1, 65536), "Of them, those of one source address, which never has more than are free then."),
}}.reloads()
