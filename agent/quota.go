package agent

import (
	"net"
	"net/netip"

	"meridian/agent/config"
	"meridian/blocks/quota"
	"meridian/internal/connshare"
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
		{Resource: quota.HTTPConns, Kind: quota.All}:     q.HTTPConns,
		{Resource: quota.HTTPConns, Kind: quota.Source}:  q.SourceHTTPConns,
		{Resource: quota.FrontConns, Kind: quota.All}:    q.FrontConns,
		{Resource: quota.FrontConns, Kind: quota.Source}: q.SourceFrontConns,
		{Resource: quota.HalfOpen, Kind: quota.All}:      q.HalfOpen,

		{Resource: quota.MetadataConns, Kind: quota.Source}:   q.SourceMetadataConns,
		{Resource: quota.MetadataConns, Kind: quota.All}:      q.MetadataConns,
		{Resource: quota.MetadataEntries, Kind: quota.Source}: q.SourceMetadataEntries,
		{Resource: quota.MetadataEntries, Kind: quota.All}:    q.MetadataEntries,
	} {
		a.quota.SetLimit(r.Resource, r.Kind, uint64(limit))
	}
}

// share gives each connection of a listener a place of its source's and of all.
func (a *Agent) share(ln net.Listener, r quota.Resource) net.Listener {
	return connshare.Listen(ln, func(from net.Addr) (func(), error) {
		hold, err := a.quota.Take(r, 1, quota.Total, sourceOf(from))
		if err != nil {
			return nil, err
		}
		return hold.Give, nil
	})
}

// sourceOf is the holder for a connection: its address, or all users of a Unix socket
// of mode 0600, who are one.
func sourceOf(from net.Addr) quota.Holder {
	if at, err := netip.ParseAddrPort(from.String()); err == nil {
		return quota.SourceOf(at.Addr())
	}
	return quota.Holder{Kind: quota.Source, Name: from.Network()}
}
