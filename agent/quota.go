package agent

import (
	"errors"
	"net"
	"net/netip"

	"meridian/agent/config"
	"meridian/blocks/quota"
	"meridian/internal/connshare"
)

// setQuotas gives the book the limits of the configuration. The shares of the
// arena and of staging are the store's own to count, and log lines those of the log.
func (a *Agent) setQuotas(q config.Quota) {
	a.quota.SetLimit(quota.Engines, quota.All, uint64(a.cfg.Engine.MaxSessions))
	for r, limit := range map[quota.Rule]uint64{
		{Resource: quota.Namespaces, Kind: quota.All}:     uint64(q.Namespaces),
		{Resource: quota.Namespaces, Kind: quota.Peers}:   uint64(q.PeersNamespaces),
		{Resource: quota.Namespaces, Kind: quota.Peer}:    uint64(q.PeerNamespaces),
		{Resource: quota.Namespaces, Kind: quota.Tenant}:  uint64(q.TenantNamespaces),
		{Resource: quota.Namespaces, Kind: quota.Engine}:  uint64(q.EngineNamespaces),
		{Resource: quota.Namespaces, Kind: quota.Process}: uint64(q.ProcessNamespaces),
		{Resource: quota.Namespaces, Kind: quota.Source}:  uint64(q.UserNamespaces),
		{Resource: quota.Engines, Kind: quota.Process}:    uint64(q.ProcessEngines),
		{Resource: quota.Engines, Kind: quota.Source}:     uint64(q.UserEngines),
		{Resource: quota.Sessions, Kind: quota.Peer}:      uint64(q.PeerSessions),
		{Resource: quota.Sessions, Kind: quota.Source}:    uint64(q.UnlistedSessions),
		{Resource: quota.HalfOpen, Kind: quota.Source}:    uint64(q.SourceHalfOpen),
		{Resource: quota.HTTPConns, Kind: quota.All}:      uint64(q.HTTPConns),
		{Resource: quota.HTTPConns, Kind: quota.Source}:   uint64(q.SourceHTTPConns),
		{Resource: quota.FrontConns, Kind: quota.All}:     uint64(q.FrontConns),
		{Resource: quota.FrontConns, Kind: quota.Source}:  uint64(q.SourceFrontConns),
		{Resource: quota.HalfOpen, Kind: quota.All}:       uint64(q.HalfOpen),

		{Resource: quota.MetadataConns, Kind: quota.Source}:   uint64(q.SourceMetadataConns),
		{Resource: quota.MetadataConns, Kind: quota.All}:      uint64(q.MetadataConns),
		{Resource: quota.MetadataEntries, Kind: quota.Source}: uint64(q.SourceMetadataEntries),
		{Resource: quota.MetadataEntries, Kind: quota.All}:    uint64(q.MetadataEntries),
		{Resource: quota.MetadataBytes, Kind: quota.Source}:   q.SourceMetadataBytes,
		{Resource: quota.MetadataBytes, Kind: quota.All}:      q.MetadataBytes,

		{Resource: quota.DataConns, Kind: quota.All}:         uint64(q.DataConns),
		{Resource: quota.DataConns, Kind: quota.Source}:      uint64(q.SourceDataConns),
		{Resource: quota.DataReads, Kind: quota.All}:         uint64(q.DataReads),
		{Resource: quota.DataReads, Kind: quota.Source}:      uint64(q.SourceDataReads),
		{Resource: quota.HandshakeConns, Kind: quota.All}:    uint64(q.HandshakeConns),
		{Resource: quota.HandshakeConns, Kind: quota.Source}: uint64(q.SourceHandshakeConns),
		{Resource: quota.HandshakeBytes, Kind: quota.All}:    q.HandshakeBytes,
		{Resource: quota.HandshakeBytes, Kind: quota.Source}: q.SourceHandshakeBytes,
		{Resource: quota.RelayBytes, Kind: quota.All}:        q.RelayBytes,
		{Resource: quota.RelayBytes, Kind: quota.Source}:     q.SourceRelayBytes,
		{Resource: quota.RelayCalls, Kind: quota.All}:        uint64(q.RelayCalls),
		{Resource: quota.RelayCalls, Kind: quota.Source}:     uint64(q.SourceRelayCalls),
	} {
		a.quota.SetLimit(r.Resource, r.Kind, limit)
	}
}

// share gives each connection of a listener a place of its source's and of all.
func (a *Agent) share(ln net.Listener, r quota.Resource) net.Listener {
	return connshare.Listen(ln, func(from net.Addr) (connshare.Place, error) {
		source := sourceOf(from)
		// The source comes first: one that has its share takes nobody else's place.
		hold, err := a.quota.Take(r, 1, source, quota.Total)
		var full *quota.Error
		own := errors.As(err, &full) && full.Holder == source
		return connshare.Place{Source: source.Name, Own: own, Give: hold.Give}, err
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
