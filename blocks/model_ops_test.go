package blocks

import (
	"fmt"
	"slices"
	"time"

	"meridian/blocks/quota"
	"meridian/wire"
)

func (m *model) opLookup(o op) error {
	keys := make([]wire.Key, 1+o[1]%12)
	for i := range keys {
		keys[i] = wire.Key{1, (o[3] + byte(i)*(1+o[1]>>6)) % 24}
	}
	ns := int(o[2]) % mNamespaces
	v := make([]View, len(keys))
	hits, lead := 0, true
	got := m.c.Lookup(mNS(ns), keys, v)
	for i, k := range keys {
		key := mKey{ns, k}
		b := m.blocks[key]
		if lead = lead && b != nil; lead {
			hits++
		}
		if err := m.sameView(&v[i], b, key); err != nil {
			return err
		}
	}
	if got != hits {
		return fmt.Errorf("Lookup: %d hits, want %d", got, hits)
	}
	return nil
}

func (m *model) sameView(v *View, b *mBlock, k mKey) error {
	if v.Where != m.where[k] {
		return fmt.Errorf("%v: copy at %v, want %v", k, v.Where, m.where[k])
	}
	if b == nil {
		if v.Seg != 0 || v.Ref != (wire.Ref{}) {
			return fmt.Errorf("%v: bytes where none are: %+v", k, v)
		}
		return wantErr("look-up", v.Err, wire.CodeAbsent)
	}
	if v.Err != nil || v.Ref.Slot != b.id || v.Ref.Gen != b.gen || v.Tier != b.tier || v.Refs != b.refs ||
		v.Key != b.k.key || v.NS != mNS(b.k.ns) || v.Head.BodyLen != b.size/2 || v.Cap < b.size {
		return fmt.Errorf("view %+v of %+v", v, b)
	}
	return nil
}

func (m *model) opTouch(o op) error {
	k := m.key(o)
	keys := []wire.Key{k.key, {1, (k.key[1] + 1) % 24}}
	hits := 0
	for _, key := range keys {
		b := m.blocks[mKey{k.ns, key}]
		if b == nil {
			break
		}
		m.reuse(b)
		hits++
	}
	if got := m.c.Touch(mNS(k.ns), keys); got != hits {
		return fmt.Errorf("Touch: %d, want %d", got, hits)
	}
	return nil
}

func (m *model) opAcquire(o op) error {
	m.now++ // no two deadlines are the same, also where a share cuts them
	m.expire()
	oi := int(o[1]) % 4
	owner, k, hold := m.owners[oi], m.key(o), o[1]&32 != 0
	keys := []wire.Key{k.key, {1, (k.key[1] + 1) % 24}}
	v := make([]View, len(keys))
	want := make([]*mBlock, len(keys))
	var size, heldBytes uint64
	aged := 0
	for i, key := range keys {
		v[i] = View{NS: mNS(k.ns), Key: key}
		want[i] = m.blocks[mKey{k.ns, key}]
		if want[i] == nil {
			want[i] = m.private(owner, mKey{k.ns, key})
		}
		if want[i] != nil && o[1]&64 != 0 {
			v[i].Ref = wire.Ref{Slot: want[i].id, Gen: want[i].gen}
		}
	}
	refused := m.beyondShares(owner, want)
	for i, b := range want {
		if b != nil && !refused[i] {
			size += m.stride(b)
		}
	}
	for _, l := range m.leases {
		if l.owner == owner && l.hold {
			heldBytes += l.bytes
			if l.aged {
				aged++
			}
		}
	}
	ttl := time.Duration(1+o[3])*5*time.Millisecond + time.Duration(m.tick+1)*time.Nanosecond
	m.tick++
	l, err := m.c.Acquire(m.now, owner, v, ttl, hold)
	if hold && (aged > 0 || heldBytes+size > m.cfg.HoldBytes) {
		return wantErr("Acquire", err, wire.CodeBusy)
	}
	if err != nil {
		return err
	}
	if m.isPeer(owner) {
		ttl = min(ttl, m.cfg.Shares.LeaseAge)
	}
	r := &mLease{token: l, owner: owner, at: m.now + ttl, born: m.now, hold: hold, bytes: size}
	for i, b := range want {
		if refused[i] {
			if err := wantShare("Acquire", v[i].Err); err != nil {
				return err
			}
			continue
		}
		if b == nil {
			if err := wantErr("Acquire", v[i].Err, wire.CodeAbsent); err != nil {
				return err
			}
			continue
		}
		b.refs++
		b.used = b.used || m.who[owner] != quota.Total
		r.held = append(r.held, b)
		refs := b.refs
		if v[i].Refs != refs || v[i].Err != nil || v[i].Ref.Slot != b.id {
			return fmt.Errorf("Acquire: view %+v of %+v", v[i], b)
		}
	}
	if (len(r.held) == 0) != (l == Lease{}) {
		return fmt.Errorf("Acquire: lease %x with %d blocks", l, len(r.held))
	}
	if len(r.held) > 0 {
		m.leases = append(m.leases, r)
	}
	return nil
}

func (m *model) lease(o op) *mLease {
	if len(m.leases) == 0 {
		return nil
	}
	return m.leases[(int(o[1])+int(o[2])<<8)%len(m.leases)]
}

func (m *model) opRenew(o op) error {
	m.expire()
	l := m.lease(o)
	if l == nil {
		return nil
	}
	owner := m.owners[o[3]%4]
	ttl := time.Duration(1+o[3])*3*time.Millisecond + time.Duration(m.tick+1)*time.Nanosecond
	m.tick++
	err := m.c.Renew(m.now, owner, l.token, ttl)
	if l.owner != owner {
		return wantErr("Renew of another's lease", err, wire.CodeLeaseLost)
	}
	if m.isPeer(owner) && m.now+ttl > l.born+m.cfg.Shares.LeaseAge {
		return wantErr("Renew beyond the age of a peer's lease", err, wire.CodeBusy)
	}
	l.at, l.aged = m.now+ttl, false
	return err
}

func (m *model) opRelease(o op) error {
	l := m.lease(o)
	if l == nil {
		return nil
	}
	owner := m.owners[o[3]%4]
	m.c.Release(owner, l.token)
	if l.owner == owner {
		m.endLease(l)
		m.c.Release(owner, l.token)
	}
	return nil
}

func (m *model) opRetier(o op) error {
	k, t := m.key(o), wire.Tier(o[1]%3)
	m.c.Retier(mNS(k.ns), []wire.Key{k.key}, t)
	if b := m.blocks[k]; b != nil {
		if t == wire.ThinkComplete {
			b.live = false
		}
		if t < b.tier {
			b.tier = t
			m.touch(b)
		}
	}
	return nil
}

func (m *model) forget(k mKey) {
	if _, ok := m.where[k]; !ok {
		return
	}
	delete(m.where, k)
	for i, c := range m.copies {
		if c == k {
			m.copies = append(m.copies[:i], m.copies[i+1:]...)
			break
		}
	}
	if b := m.blocks[k]; b != nil {
		b.moved = false
	}
}

func (m *model) opDiscard(o op) error {
	k := m.key(o)
	if o[1]%4 != 0 { // rarely, or the store stays empty
		return nil
	}
	m.c.Discard(mNS(k.ns), []wire.Key{k.key})
	m.forget(k)
	if b := m.blocks[k]; b != nil {
		m.unpinBlock(b)
		m.unpublish(b)
		m.free(b)
	}
	return nil
}

func (m *model) opForget(o op) error {
	k := m.key(o)
	m.c.Forget(mNS(k.ns), []wire.Key{k.key})
	m.forget(k)
	return nil
}

func (m *model) opLoose(o op) error {
	b := m.pick(o)
	if o[3]%2 == 0 {
		b = m.blocks[m.key(o)]
	}
	if b == nil || len(m.loose) > 8 {
		return nil
	}
	m.loose = append(m.loose, &mLoose{quiet: m.c.Loose([]uint32{b.id, 1 << 30}), held: []*mBlock{b}})
	b.refs++
	return nil
}

func (m *model) opQuiet(o op) error {
	if len(m.loose) == 0 {
		return nil
	}
	i := int(o[1]) % len(m.loose)
	l := m.loose[i]
	m.loose = append(m.loose[:i], m.loose[i+1:]...)
	l.quiet()
	l.quiet()
	for _, b := range l.held {
		m.unpin(b)
		if b.refs > 0 {
			continue
		}
		b.roomed = false
		if b.state == late {
			m.abandon(b)
		}
	}
	return nil
}

func (m *model) opMoved(o op) error {
	m.expire()
	k := m.key(o)
	b := m.blocks[k]
	if b == nil || o[1]%2 == 0 {
		return nil
	}
	in := Moved{Slot: b.id, Gen: b.gen, Loc: Loc{Fabric: fmt.Sprint("f", o[1]%3), H: [32]byte{o[1], 1}}}
	if o[1]%16 == 1 {
		in.Err = wire.CodeUnreachable
	}
	m.c.Moved([]Moved{in, {Slot: b.id, Gen: b.gen + 2, Loc: in.Loc}})
	if o[1]%16 == 1 { // the copy failed
		return nil
	}
	if _, ok := m.where[k]; ok {
		for i, c := range m.copies {
			if c == k {
				m.copies = append(m.copies[:i], m.copies[i+1:]...)
				break
			}
		}
	} else if len(m.copies) >= m.cfg.RemoteBlocks {
		m.forget(m.copies[0])
	}
	m.copies, m.where[k] = append(m.copies, k), in.Loc
	if b.moved = true; b.refs == 0 {
		m.unpublish(b)
		m.free(b)
	}
	return nil
}

func (m *model) opStep(o op) error {
	m.now += time.Duration(o[1]) * time.Millisecond
	m.expire()
	var r Ready
	m.c.Step(m.now, Input{}, &r)
	return nil
}

func (m *model) opFree(o op) error {
	m.expire()
	n := uint64(o[1]) * 16
	_, room := m.c.geo.class(1000)
	var want []*mBlock
	for _, b := range m.order(wire.OutputCritical) {
		used := m.c.usedBytes() - uint64(len(want))*stride(room)
		if m.exact && m.c.cfg.Capacity-min(m.c.cfg.Capacity, used) < n {
			want = append(want, b)
		}
	}
	m.c.freeUp(n)
	return m.evictions(want, wire.OutputCritical, "")
}

// opAside takes some of the capacity for a ring, or gives the oldest back.
func (m *model) opAside(o op) error {
	m.expire()
	if m.exact { // which knows how many slots there are
		return nil
	}
	if o[1]%3 == 0 && len(m.aside) > 0 {
		m.c.GiveAside(m.aside[0])
		m.aside = m.aside[1:]
		return nil
	}
	n := m.c.geo.extent * uint64(o[2]) / 64
	if m.c.SetAside(0, n) == nil {
		m.aside = append(m.aside, n)
	}
	if arena := uint64(m.c.extents) * m.c.geo.extent; m.c.aside > m.c.cfg.Capacity || m.c.aside > 0 && m.c.aside+arena > m.c.cfg.Capacity {
		return fmt.Errorf("%d bytes are set aside, and %d are of the arena, of %d", m.c.aside, arena, m.c.cfg.Capacity)
	}
	return m.evictions(nil, wire.OutputCritical, "")
}

func (m *model) opDrop(o op) error {
	i := int(o[1]) % 4
	if o[2]%4 != 0 {
		return nil
	}
	owner := m.owners[i]
	holds := m.c.Drop(owner)
	m.c.Drop(owner)
	for _, g := range m.resv {
		if g.owner != owner {
			continue
		}
		for _, b := range slices.Clone(g.slots) {
			m.abort(b)
		}
	}
	m.dropPins(owner)
	left := false
	for _, l := range m.newestFirst() {
		if l.owner != owner {
			continue
		}
		if m.wasPid[i] && l.hold {
			left = true
			continue
		}
		m.endLease(l)
	}
	if left != holds {
		return fmt.Errorf("Drop: holds %v, want %v", holds, left)
	}
	if holds {
		m.gone = append(m.gone, owner)
	}
	m.newOwner(i)
	return nil
}

func (m *model) newestFirst() []*mLease {
	l := slices.Clone(m.leases)
	slices.Reverse(l)
	return l
}

func (m *model) opGone(o op) error {
	if len(m.gone) == 0 || o[1]%2 == 0 {
		return nil
	}
	owner := m.gone[0]
	m.gone = m.gone[1:]
	m.c.Gone(owner)
	m.c.Gone(owner)
	for _, l := range m.newestFirst() {
		if l.owner == owner {
			m.endLease(l)
		}
	}
	return nil
}

func (m *model) opVerify(o op) error {
	k, bad := m.key(o), o[1]%8 == 0
	v := View{NS: mNS(k.ns), Key: k.key}
	b := m.blocks[k]
	o2 := m.c.NewOwner(false)
	err := m.c.Borrow(o2, &v)
	m.c.Drop(o2)
	if b == nil {
		return wantErr("Borrow", err, wire.CodeAbsent)
	}
	if err != nil {
		return err
	}
	b.refs++
	m.c.GiveBack(v.Ref.Slot, bad)
	if bad {
		m.unpinBlock(b)
		m.unpublish(b)
		b.state = doomed
	}
	m.unpin(b)
	return nil
}
