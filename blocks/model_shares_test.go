package blocks

import (
	"errors"
	"fmt"

	"meridian/blocks/quota"
	"meridian/wire"
)

// The shares, as the model sees them: sums over everything, each time anew.

func (m *model) tenant(ns int) string {
	if !m.exact && ns == 2 {
		return "u"
	}
	return "t"
}

func (m *model) isPeer(o Owner) bool { return m.who[o].Kind == quota.Peer }

func (m *model) stride(b *mBlock) uint64 { return uint64(m.c.extent(b.id).stride) }

// holderHas is what a holder's owners have in reservations and leases together.
func (m *model) holderHas(who quota.Holder) (n uint64) {
	for _, b := range m.bySlot {
		if b.group != nil && b.state != transient && m.who[b.group.owner] == who {
			n += m.stride(b)
		}
	}
	for _, l := range m.leases {
		if m.who[l.owner] == who {
			n += l.bytes
		}
	}
	return n
}

// tenantHas is what is reserved or referenced of a tenant, each slot once a kind.
func (m *model) tenantHas(tenant string) (n uint64) {
	for _, b := range m.bySlot {
		if m.tenant(b.k.ns) != tenant {
			continue
		}
		if b.group != nil && b.state != transient {
			n += m.stride(b)
		}
		if b.refs > 0 {
			n += m.stride(b)
		}
	}
	return n
}

func (m *model) limit(k quota.Kind) uint64 {
	of := map[quota.Kind]float64{quota.Peer: mShares.Peer, quota.Engine: mShares.Engine, quota.Tenant: mShares.Tenant}
	if f, ok := of[k]; ok {
		return uint64(f * float64(m.c.cfg.Capacity))
	}
	return 1 << 62
}

func (m *model) mayReserve(o Owner, ns int, need uint64) bool {
	who := m.who[o]
	return (who == quota.Total || m.holderHas(who)+need <= m.limit(who.Kind)) &&
		m.tenantHas(m.tenant(ns))+need <= m.limit(quota.Tenant)
}

// beyondShares says which blocks of an Acquire call are refused, in their order.
func (m *model) beyondShares(o Owner, want []*mBlock) []bool {
	who, refused := m.who[o], make([]bool, len(want))
	has := m.holderHas(who)
	tenants := map[string]uint64{"t": m.tenantHas("t"), "u": m.tenantHas("u")}
	for i, b := range want {
		if b == nil {
			continue
		}
		n, t := m.stride(b), m.tenant(b.k.ns)
		refused[i] = who != quota.Total && has+n > m.limit(who.Kind) ||
			b.refs == 0 && tenants[t]+n > m.limit(quota.Tenant)
		if refused[i] {
			continue
		}
		has += n
		if b.refs == 0 {
			tenants[t] += n
		}
	}
	return refused
}

func wantShare(what string, got error) error {
	var e *quota.Error
	if !errors.As(got, &e) || !errors.Is(got, wire.CodeFull) || e.InUse+e.Want <= e.Limit || e.Key == "" {
		return fmt.Errorf("%s beyond a share: %w", what, got)
	}
	return nil
}
