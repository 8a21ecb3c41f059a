package blocks

import (
	"errors"
	"fmt"
	"slices"

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
	return n + m.pinBytes(func(o Owner) bool { return m.who[o] == who })
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

// peersHave is tenantHas for what peers reserved or lease, of all tenants.
func (m *model) peersHave() (n uint64) {
	for _, b := range m.bySlot {
		if b.group != nil && b.state != transient && m.isPeer(b.group.owner) {
			n += m.stride(b)
		}
		if m.leasedByPeer(b) {
			n += m.stride(b)
		}
	}
	return n
}

func (m *model) leasedByPeer(b *mBlock) bool {
	_, sets := m.pinsOf(b)
	return slices.ContainsFunc(m.leases, func(l *mLease) bool { return m.isPeer(l.owner) && slices.Contains(l.held, b) }) ||
		slices.ContainsFunc(sets, func(s *mSet) bool { return m.isPeer(s.owner) })
}

func (m *model) limit(k quota.Kind) uint64 {
	of := map[quota.Kind]float64{quota.Peer: m.cfg.Shares.Peer, quota.Peers: m.cfg.Shares.Peers, quota.Engine: m.cfg.Shares.Engine, quota.Tenant: m.cfg.Shares.Tenant}
	if f, ok := of[k]; ok && f > 0 && f < 1 {
		return uint64(f * float64(m.c.cfg.Capacity))
	}
	return 1 << 62
}

// left is the capacity without what is set aside.
func (m *model) left() uint64 {
	n := m.c.cfg.Capacity
	for _, a := range m.aside {
		n -= a
	}
	return n
}

// unused is what the others of n holders do not use of what is guaranteed to them.
func (m *model) unused(share float64, n int, others ...uint64) (sum uint64) {
	part := uint64(share*float64(m.left())) / uint64(n)
	for _, has := range others {
		sum += part - min(has, part)
	}
	return sum
}

// mShared is what the shares look at, of which an Acquire call takes more and more.
type mShared struct {
	holder, peers uint64
	tenants       map[string]uint64
}

// mayTake says whether an owner may have need more bytes of a tenant; fresh: that
// nobody has yet, toPeers: that no peer has.
func (m *model) mayTake(s *mShared, o Owner, tenant string, need uint64, fresh, toPeers bool) bool {
	who, capacity := m.who[o], m.left()
	if who != quota.Total && s.holder+need > m.limit(who.Kind) || toPeers && s.peers+need > m.limit(quota.Peers) {
		return false
	}
	if !fresh {
		return true
	}
	all, others := s.tenants["t"]+s.tenants["u"], []uint64{}
	if !m.exact {
		others = append(others, s.tenants[map[string]string{"t": "u", "u": "t"}[tenant]])
	}
	leaves := func(unused uint64) bool { return unused == 0 || all+need+unused <= capacity }
	if s.tenants[tenant]+need > m.limit(quota.Tenant) || !leaves(m.unused(m.cfg.Shares.TenantGuaranteed, len(others)+1, others...)) {
		return false
	}
	return who.Kind != quota.Peer || leaves(m.unused(m.cfg.Shares.EngineGuaranteed, 1, m.holderHas(m.who[m.owners[0]])))
}

func (m *model) shared(o Owner) *mShared {
	return &mShared{m.holderHas(m.who[o]), m.peersHave(), map[string]uint64{"t": m.tenantHas("t"), "u": m.tenantHas("u")}}
}

func (m *model) mayReserve(o Owner, ns int, need uint64) bool {
	return m.mayTake(m.shared(o), o, m.tenant(ns), need, true, m.isPeer(o))
}

// beyondShares says which blocks of an Acquire call are refused, in their order.
func (m *model) beyondShares(o Owner, want []*mBlock) []bool {
	s, refused := m.shared(o), make([]bool, len(want))
	for i, b := range want {
		if b == nil {
			continue
		}
		n, t, toPeers := m.stride(b), m.tenant(b.k.ns), m.isPeer(o) && !m.leasedByPeer(b)
		if refused[i] = !m.mayTake(s, o, t, n, b.refs == 0, toPeers); refused[i] {
			continue
		}
		s.holder += n
		if toPeers {
			s.peers += n
		}
		if b.refs == 0 {
			s.tenants[t] += n
		}
	}
	return refused
}

func wantShare(what string, got error) error {
	var e *quota.Error
	if !errors.As(got, &e) || !errors.Is(got, wire.CodeFull) || e.InUse+e.Want <= e.Limit || e.Rule.Key() == "" {
		return fmt.Errorf("%s beyond a share: %w", what, got)
	}
	return nil
}
