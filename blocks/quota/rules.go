package quota

import (
	"cmp"
	"maps"
	"slices"
)

// Rule is one limit: what each holder of a kind may have of a resource.
type Rule struct {
	Resource Resource
	Kind     Kind
}

// keys has every rule, and the configuration key that sets its limit.
var keys = map[Rule]string{
	{ArenaBytes, Peer}:        "quota.peer_arena_share",
	{ArenaBytes, Peers}:       "quota.peers_arena_share",
	{ArenaBytes, Tenant}:      "quota.tenant_arena_share",
	{ArenaBytes, Engine}:      "quota.engine_arena_share",
	{EndedBytes, Source}:      "quota.user_ended_share",
	{GuaranteedBytes, Tenant}: "quota.tenant_guaranteed_share",
	{GuaranteedBytes, Engine}: "quota.engine_guaranteed_share",
	{StagingBytes, All}:       "quota.staging_share",
	{StagingBytes, Tenant}:    "quota.tenant_staging_share",
	{StagingBytes, Engine}:    "quota.engine_staging_share",
	{Namespaces, All}:         "quota.namespaces",
	{Namespaces, Peers}:       "quota.peers_namespaces",
	{Namespaces, Peer}:        "quota.peer_namespaces",
	{Namespaces, Tenant}:      "quota.tenant_namespaces",
	{Namespaces, Engine}:      "quota.engine_namespaces",
	{Namespaces, Process}:     "quota.process_namespaces",
	{Namespaces, Source}:      "quota.user_namespaces",
	{Engines, All}:            "engine.max_sessions",
	{Engines, Process}:        "quota.process_engines",
	{Engines, Source}:         "quota.user_engines",
	{Sessions, Peer}:          "quota.peer_sessions",
	{Sessions, Source}:        "quota.unlisted_sessions",
	{HalfOpen, Source}:        "quota.source_half_open",
	{HalfOpen, All}:           "quota.half_open",
	{HTTPConns, All}:          "quota.http_connections",
	{HTTPConns, Source}:       "quota.source_http_connections",
	{FrontConns, All}:         "quota.front_connections",
	{FrontConns, Source}:      "quota.source_front_connections",
	{MetadataConns, All}:      "quota.metadata_connections",
	{MetadataConns, Source}:   "quota.source_metadata_connections",
	{MetadataEntries, All}:    "quota.metadata_entries",
	{MetadataEntries, Source}: "quota.source_metadata_entries",
	{MetadataBytes, All}:      "quota.metadata_bytes",
	{MetadataBytes, Source}:   "quota.source_metadata_bytes",
	{DataConns, All}:          "quota.data_connections",
	{DataConns, Source}:       "quota.source_data_connections",
	{DataReads, All}:          "quota.data_reads",
	{DataReads, Source}:       "quota.source_data_reads",
	{HandshakeConns, All}:     "quota.handshake_connections",
	{HandshakeConns, Source}:  "quota.source_handshake_connections",
	{HandshakeBytes, All}:     "quota.handshake_bytes",
	{HandshakeBytes, Source}:  "quota.source_handshake_bytes",
	{RelayBytes, All}:         "quota.relay_bytes",
	{RelayBytes, Source}:      "quota.source_relay_bytes",
	{RelayCalls, All}:         "quota.relay_calls",
	{RelayCalls, Source}:      "quota.source_relay_calls",
}

// parted are the resources of which a source or a process, besides its limit, has no more
// than is free of the total then: however many of them take all they can, each leaves
// half of the rest for others.
var parted = map[Resource]bool{Engines: true, Namespaces: true, StagingBytes: true, DataConns: true, DataReads: true, HandshakeConns: true, HandshakeBytes: true, RelayBytes: true, RelayCalls: true}

// Key is the configuration key that sets the rule's limit.
func (r Rule) Key() string { return keys[r] }

// Rules are all that there are, in order of resource and kind.
func Rules() []Rule {
	return slices.SortedFunc(maps.Keys(keys), compare)
}

func compare(a, b Rule) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Kind, b.Kind))
}
