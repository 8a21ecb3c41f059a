package blocks

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"meridian/wire"
)

func (m *model) sizes(n int, o op) []uint32 {
	sizes := make([]uint32, n)
	for i := range sizes {
		sizes[i] = 1000
		if !m.exact {
			sizes[i] = []uint32{0, 300, 500, 1000, 2100, m.c.geo.maxBody}[(int(o[3])+i*int(o[2]))%6]
		}
	}
	return sizes
}

func (m *model) thinkBytes() (n uint64) {
	for _, b := range m.bySlot {
		st := uint64(m.c.extent(b.id).stride)
		switch {
		case b.state == published && b.tier == wire.ThinkActive,
			b.group != nil && b.group.tier == wire.ThinkActive && b.state != transient:
			n += st
		}
	}
	return n
}

func (m *model) opReserve(o op) error {
	m.now++ // no two deadlines are the same, also where a share cuts them
	m.expire()
	n, tier := 1+int(o[1])%6, wire.Tier(o[2]>>4%3)
	if o[2]%4 != 0 {
		tier = wire.OutputCritical
	}
	owner, ns, sizes := m.owners[o[3]>>5%4], int(o[2])%mNamespaces, m.sizes(n, o)
	ttl := time.Duration(1+o[1])*time.Millisecond*7 + time.Duration(m.tick+1)
	m.tick++
	var need uint64
	for _, s := range sizes {
		_, room := m.c.geo.class(s)
		need += stride(room)
	}
	highest := wire.OutputCritical
	if tier != wire.OutputCritical && m.thinkBytes()+need > m.c.thinkMax {
		highest = wire.ThinkActive
	}
	var want []*mBlock // predicted evictions
	within := m.mayReserve(owner, ns, need)
	if m.isPeer(owner) {
		highest, ttl = min(highest, tier), min(ttl, m.cfg.Shares.ReserveTime)
	}
	idle := m.order(highest)
	room := m.slots - len(m.bySlot)
	if within && n > room && n <= room+len(idle) {
		want = idle[:n-room]
	}
	var v []View
	var err error
	for {
		v, err = m.c.Reserve(m.now, owner, mNS(ns), tier, sizes, ttl, true, nil)
		var g *GrowError
		if !errors.As(err, &g) {
			break
		}
		m.c.AddSegment(g.Tenant, m.c.SegmentExtents())
	}
	only := "" // any tenant's
	if m.isPeer(owner) {
		only = m.tenant(ns)
	}
	if err := m.evictions(want, highest, only); err != nil {
		return err
	}
	if !within {
		return wantShare("Reserve", err)
	}
	if err != nil {
		m.full++
		var f *FullError
		if !errors.As(err, &f) || f.Need != need || len(v) != 0 {
			return fmt.Errorf("Reserve with %d views: %w", len(v), err)
		}
		if m.exact && n <= room+len(idle) {
			return fmt.Errorf("Reserve of %d with %d free and %d idle: %w", n, room, len(idle), err)
		}
		return nil
	}
	if m.exact && n > room+len(idle) {
		return fmt.Errorf("Reserve of %d granted, with %d free and %d idle", n, room, len(idle))
	}
	g := &mGroup{owner: owner, at: m.now + ttl, tier: tier}
	m.resv = append(m.resv, g)
	for i := range v {
		if m.bySlot[v[i].Ref.Slot] != nil {
			return fmt.Errorf("slot %d granted twice", v[i].Ref.Slot)
		}
		if v[i].Ref.Gen%2 == 0 || v[i].Cap != sizes[i] || v[i].Off%slotAlign != 0 {
			return fmt.Errorf("bad view %+v", v[i])
		}
		b := &mBlock{id: v[i].Ref.Slot, gen: v[i].Ref.Gen, k: mKey{ns: ns}, state: reserved, tier: tier, owner: owner, group: g, size: sizes[i]}
		g.slots = append(g.slots, b)
		m.bySlot[b.id] = b
	}
	return nil
}

// evictions takes what the core evicted since the last call into the model.
func (m *model) evictions(want []*mBlock, highest wire.Tier, tenant string) error {
	got := m.c.evicted
	m.c.evicted = nil
	if m.exact && len(got) != len(want) {
		return fmt.Errorf("%d evictions, want %d", len(got), len(want))
	}
	for i, e := range got {
		b := m.bySlot[e.Ref.Slot]
		if b == nil || b.state != published || b.refs != 0 || b.gen != e.Ref.Gen || b.tier != e.Tier || (m.exact || tenant != "") && b.tier > highest || tenant != "" && m.tenant(b.k.ns) != tenant {
			return fmt.Errorf("evicted %+v, which is %+v", e, b)
		}
		if e.Live != (b.live && b.tier == wire.OutputCritical) {
			return fmt.Errorf("evicted %+v, live %v", e, b.live)
		}
		if m.exact && b != want[i] {
			return fmt.Errorf("evicted slot %d, want %d", b.id, want[i].id)
		}
		m.evict[b.tier]++
		m.unpublish(b)
		m.free(b)
	}
	return nil
}

// pick chooses a slot that was reserved, also one that no longer is.
func (m *model) pick(o op) *mBlock {
	var all []*mBlock
	for _, g := range m.resv {
		all = append(all, g.slots...)
	}
	if len(all) == 0 {
		return nil
	}
	return all[(int(o[1])+int(o[2])<<8)%len(all)]
}

func (m *model) commitOf(b *mBlock, o op) Commit {
	k := m.key(o)
	return Commit{
		Slot: b.id, Gen: b.gen, NS: mNS(b.k.ns), Key: k.key, Tier: wire.Tier(o[1]>>3) % 3, Len: b.size / 2,
		Live: o[1]&64 != 0, Transient: o[1]&7 == 7, Att: wire.AttestProducer,
	}
}

func (m *model) opCommit(o op) error {
	m.expire()
	b := m.pick(o)
	if b == nil || b.state != reserved && b.state != late {
		return nil
	}
	k := []Commit{m.commitOf(b, o)}
	wasLate := b.state == late
	m.c.Commit(m.now, b.owner, k)
	if wasLate {
		m.abandon(b)
		return wantErr("Commit of a late slot", k[0].Err, wire.CodeDeadline)
	}
	return m.published(b, &k[0])
}

// published takes the outcome of a finished commit into the model.
func (m *model) published(b *mBlock, k *Commit) error {
	key := mKey{b.k.ns, k.Key}
	old := m.blocks[key]
	if old == nil && k.Transient {
		old = m.private(b.owner, key)
	}
	switch {
	case b.expired || b.cancel || old != nil:
		m.leave(b)
		m.free(b)
		switch {
		case b.expired:
			return wantErr("Finish", k.Err, wire.CodeDeadline)
		case b.cancel:
			return wantErr("Finish", k.Err, wire.CodeCancelled)
		}
		if old.state == published {
			m.reuse(old)
		}
		return wantErr("Finish", k.Err, wire.CodeExists)
	}
	if k.Err != nil {
		return fmt.Errorf("commit: %w", k.Err)
	}
	b.k, b.tier, b.live, b.gen = key, k.Tier, k.Live, b.gen+1
	b.moved = false
	if k.Transient {
		b.state, b.trans = transient, true
		return nil
	}
	m.leave(b)
	b.state = published
	m.blocks[key] = b
	m.touch(b)
	return nil
}

func (m *model) private(o Owner, k mKey) *mBlock {
	for _, b := range m.bySlot {
		if b.state == transient && b.owner == o && b.k == k {
			return b
		}
	}
	return nil
}

func (m *model) opBegin(o op) error {
	m.expire()
	b := m.pick(o)
	if b == nil {
		return nil
	}
	k := m.commitOf(b, o)
	err := m.c.Begin(m.now, b.owner, &k)
	switch b.state {
	case reserved:
		b.state, b.write = writing, &k
		return err
	case late:
		m.abandon(b)
		return wantErr("Begin", err, wire.CodeDeadline)
	}
	return wantErr("Begin", err, wire.CodeStale)
}

func (m *model) opFinish(o op) error {
	m.expire()
	var open []*mBlock
	for _, b := range m.bySlot {
		if b.state == writing {
			open = append(open, b)
		}
	}
	if len(open) == 0 {
		return nil
	}
	sort.Slice(open, func(i, j int) bool { return open[i].id < open[j].id })
	b := open[int(o[1])%len(open)]
	k := b.write
	var failed error
	if o[2]%8 == 0 {
		failed = wire.CodeChecksum
	}
	m.c.Finish(m.now, k, wire.Header{BodyLen: k.Len, Tier: k.Tier}, failed)
	if failed != nil && !b.expired && !b.cancel {
		m.leave(b)
		m.free(b)
		return wantErr("Finish", k.Err, wire.CodeChecksum)
	}
	return m.published(b, k)
}

func (m *model) opAbort(o op) error {
	ids := []uint32{uint32(o[3]), 1 << 30}
	b := m.pick(o)
	if b != nil {
		ids = append(ids, b.id, b.id)
	}
	owner := m.owners[o[2]%4]
	m.c.Abort(owner, ids)
	for _, id := range ids {
		if b := m.bySlot[id]; b != nil && b.owner == owner && b.group != nil {
			m.abort(b)
		}
	}
	return nil
}

func (m *model) opRoom(o op) error {
	b := m.pick(o)
	if b == nil {
		return nil
	}
	ok := m.c.Room(View{Ref: wire.Ref{Slot: b.id, Gen: b.gen}})
	if ok != (b.state == reserved) {
		return fmt.Errorf("Room of state %d: %v", b.state, ok)
	}
	b.roomed = b.roomed || ok
	return nil
}

// opLate acts on a slot by a reference that is no longer right.
func (m *model) opLate(o op) error {
	b := m.pick(o)
	if b == nil || b.gen < 2 {
		return nil
	}
	k := m.commitOf(b, o)
	k.Gen -= 2
	if err := m.c.Begin(m.now, b.owner, &k); !errors.Is(err, wire.CodeStale) {
		return fmt.Errorf("Begin of an older reservation: %w", err)
	}
	m.expire()
	return nil
}
