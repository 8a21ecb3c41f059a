package agent

import "meridian/blocks/quota"

// setQuotas gives the book the limits of the configuration. The shares of the
// arena are the store's own to count, and log lines those of the log.
func (a *Agent) setQuotas() {
	q := a.cfg.Quota
	for _, l := range []struct {
		r   quota.Resource
		k   quota.Kind
		max int
		key string
	}{
		{quota.Namespaces, quota.Peer, q.PeerNamespaces, "quota.peer_namespaces"},
		{quota.Namespaces, quota.Tenant, q.TenantNamespaces, "quota.tenant_namespaces"},
		{quota.Namespaces, quota.Engine, q.EngineNamespaces, "quota.engine_namespaces"},
		{quota.Sessions, quota.Peer, q.PeerSessions, "quota.peer_sessions"},
		{quota.HalfOpen, quota.Source, q.SourceHalfOpen, "quota.source_half_open"},
		{quota.HalfOpen, quota.All, q.HalfOpen, "quota.half_open"},
	} {
		a.quota.SetLimit(l.r, l.k, quota.Limit{Max: uint64(l.max), Key: l.key})
	}
}
