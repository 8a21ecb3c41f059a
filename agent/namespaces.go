package agent

import (
	"context"
	"encoding/hex"
	"fmt"

	"meridian/agent/adminpb"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/blocks/quota"
)

// openNamespaces opens what [[namespace]] names, before a fabric or an engine can ask.
func (a *Agent) openNamespaces(context.Context) error {
	commit, _, err := a.spaces.Configure(a.cfg.Namespaces)
	if err != nil {
		return fmt.Errorf("[[namespace]]: %w", err)
	}
	commit()
	return nil
}

// prepareNamespaces opens what another configuration names. A share that it raises counts
// already: its file was checked with that.
func (a *Agent) prepareNamespaces(now *config.Config) (openers.Prepared, error) {
	limit := func(n int) { a.quota.SetLimit(quota.Namespaces, quota.Engine, uint64(n)) }
	was := a.now().Quota.EngineNamespaces
	limit(max(was, now.Quota.EngineNamespaces))
	commit, cancel, err := a.spaces.Configure(now.Namespaces)
	if err != nil {
		limit(was)
		return openers.Prepared{}, fmt.Errorf("[[namespace]]: %w", err)
	}
	return openers.Prepared{
		Apply:  func() error { commit(); return nil },
		Cancel: func() { cancel(); limit(was) },
	}, nil
}

// ListNamespaces lists the namespaces that are known here, and who has each open.
func (s *adminServer) ListNamespaces(context.Context, *adminpb.ListNamespacesRequest) (*adminpb.ListNamespacesResponse, error) {
	out := &adminpb.ListNamespacesResponse{}
	for _, n := range s.a.spaces.List() {
		ns, m := n.Manifest.Namespace(), &n.Manifest
		out.Namespaces = append(out.Namespaces, &adminpb.Namespace{
			Namespace: hex.EncodeToString(ns[:]), Tenant: m.Tenant, Model: m.Model, Role: m.Role, BlockBytes: m.BlockBytes,
			Manifest: string(m.Append(nil)), Configured: n.Configured, Own: n.Own, Engines: uint32(n.Engines), Peers: n.Peers,
		})
	}
	return out, nil
}
