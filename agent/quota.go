package agent

import (
	"meridian/agent/config"
	"meridian/blocks/quota"
)

// setQuotas gives the book the limits of the configuration. The shares of the
// arena and of staging are the store's own to count, and log lines those of the log.
func (a *Agent) setQuotas(q config.Quota) {
	for r, limit := range map[quota.Rule]uint64{
		{Resource: quota.MetadataBytes, Kind: quota.Source}: q.SourceMetadataBytes,
		{Resource: quota.MetadataBytes, Kind: quota.All}:    q.MetadataBytes,
	} {
		a.quota.SetLimit(r.Resource, r.Kind, limit)
	}
	for r, limit := range map[quota.Rule]int{
		{Resource: quota.Namespaces, Kind: quota.All}:    q.Namespaces,
		{Resource: quota.Namespaces, Kind: quota.Peers}:  q.PeersNamespaces,
		{Resource: quota.Namespaces, Kind: quota.Peer}:   q.PeerNamespaces,
		{Resource: quota.Namespaces, Kind: quota.Tenant}: q.TenantNamespaces,
		{Resource: quota.Namespaces, Kind: quota.Engine}: q.EngineNamespaces,
		{Resource: quota.Sessions, Kind: quota.Peer}:     q.PeerSessions,
		{Resource: quota.Sessions, Kind: quota.Source}:   q.UnlistedSessions,
		{Resource: quota.HalfOpen, Kind: quota.Source}:   q.SourceHalfOpen,
		{Resource: quota.HalfOpen, Kind: quota.All}:      q.HalfOpen,

		{Resource: quota.MetadataConns, Kind: quota.Source}:   q.SourceMetadataConns,
		{Resource: quota.MetadataConns, Kind: quota.All}:      q.MetadataConns,
		{Resource: quota.MetadataEntries, Kind: quota.Source}: q.SourceMetadataEntries,
		{Resource: quota.MetadataEntries, Kind: quota.All}:    q.MetadataEntries,
	} {
		a.quota.SetLimit(r.Resource, r.Kind, uint64(limit))
	}
}
