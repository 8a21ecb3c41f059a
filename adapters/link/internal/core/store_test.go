package core

import (
	"fmt"
	"slices"
	"time"

	"meridian/wire"
)

type memStore struct {
	blocks   map[wire.Key]*Block
	reserved map[uint32]Block
	leases   map[Lease][]wire.Key
	renewed  map[Lease]time.Duration // nil: not noted
	nextSlot uint32
	nextID   byte
	ttl      time.Duration // of the last Pin, Reserve or Stock
	full     bool
	shut     bool // Housed refuses
	dropped  bool
	came     func(b *Block, n int) // nil, or told of what is reserved
	faults   []string
	pulled   []wire.Key
}

func newMemStore() *memStore {
	return &memStore{blocks: map[wire.Key]*Block{}, reserved: map[uint32]Block{}, leases: map[Lease][]wire.Key{}}
}

func (h *memStore) put(ns wire.Namespace, key wire.Key, body []byte) {
	h.nextSlot++
	h.blocks[key] = &Block{
		NS: ns, Key: key, Slot: h.nextSlot, Gen: 2, Body: body, Tier: wire.OutputCritical, Att: wire.AttestProducer,
		Head: wire.Header{BodyLen: uint32(len(body)), Tier: wire.OutputCritical, Sum: wire.SumOf(body)},
	}
}

func (h *memStore) find(b *Block) *Block {
	for _, x := range h.blocks {
		switch {
		case x.NS != b.NS:
		case b.Gen != 0 && x.Slot == b.Slot && x.Gen == b.Gen, b.Gen == 0 && x.Key == b.Key:
			return x
		}
	}
	return nil
}

func (h *memStore) Stat(b []Block) {
	for i := range b {
		if b[i].Code != wire.CodeOK {
			continue
		}
		x := h.find(&b[i])
		switch {
		case x != nil:
			b[i] = *x
			b[i].Body = nil
		case b[i].Gen != 0:
			b[i].Code = wire.CodeStale
		default:
			b[i].Code = wire.CodeAbsent
		}
	}
}

func (h *memStore) Pin(b []Block, ttl time.Duration) Lease {
	h.ttl = ttl
	h.Stat(b)
	var keys []wire.Key
	for i := range b {
		if b[i].Code == wire.CodeOK {
			b[i].Body = h.find(&b[i]).Body
			keys = append(keys, b[i].Key)
		}
	}
	if keys == nil {
		return Lease{}
	}
	h.nextID++
	l := Lease{0: h.nextID}
	h.leases[l] = keys
	return l
}

func (h *memStore) Renew(l Lease, ttl time.Duration) wire.Code {
	if h.leases[l] == nil {
		return wire.CodeLeaseLost
	}
	if h.renewed != nil {
		h.renewed[l] = ttl
	}
	return wire.CodeOK
}

func (h *memStore) Unpin(l Lease) {
	if h.leases[l] == nil && l[0] != 0 && l[15] == 0 {
		h.faults = append(h.faults, "a lease was given back twice")
	}
	delete(h.leases, l)
}

func (h *memStore) Pulled(b []Block) {
	for i := range b {
		h.pulled = append(h.pulled, b[i].Key)
		if !h.leased(b[i].Key) {
			h.faults = append(h.faults, "a block was pulled that is not pinned")
		}
	}
}

func (h *memStore) leased(k wire.Key) bool {
	for _, keys := range h.leases {
		if slices.Contains(keys, k) {
			return true
		}
	}
	return false
}

func (h *memStore) Reserve(b []Block, ttl time.Duration) {
	h.ttl = ttl
	for i := range b {
		switch {
		case b[i].Code != wire.CodeOK:
		case h.blocks[b[i].Key] != nil:
			x := h.blocks[b[i].Key]
			b[i].Code, b[i].Slot, b[i].Gen = wire.CodeExists, x.Slot, x.Gen
		case h.full || b[i].Head.BodyLen > 64<<20:
			b[i].Code = wire.CodeFull
		default:
			h.nextSlot++
			b[i].Slot, b[i].Gen, b[i].Body = h.nextSlot, 1, make([]byte, b[i].Head.BodyLen)
			if x := b[i]; h.came != nil {
				b[i].Came = func(n int) { h.came(&x, n) }
			}
			h.reserved[b[i].Slot] = b[i]
		}
	}
}

func (h *memStore) Housed(b []Block) {
	for i := range b {
		x := b[i]
		switch {
		case h.shut:
			h.take(x.Slot)
			b[i].Code = wire.CodeBusy
		case h.came != nil:
			b[i].Came = func(n int) { h.came(&x, n) }
		}
	}
}

func (h *memStore) Stock(b []Block, ttl time.Duration) { h.Reserve(b, ttl) }

func (h *memStore) take(slot uint32) {
	if _, ok := h.reserved[slot]; !ok {
		h.faults = append(h.faults, fmt.Sprintf("slot %d was freed twice", slot))
	}
	delete(h.reserved, slot)
}

func (h *memStore) Publish(b []Block) {
	for i := range b {
		if b[i].Code != wire.CodeOK {
			continue
		}
		h.take(b[i].Slot)
		if h.blocks[b[i].Key] != nil {
			b[i].Code = wire.CodeExists
			continue
		}
		if wire.SumOf(b[i].Body) != b[i].Head.Sum {
			h.faults = append(h.faults, "an unverified block was published")
		}
		b[i].Gen = 2
		x := b[i]
		h.blocks[x.Key] = &x
	}
}

func (h *memStore) Abort(b []Block) {
	for i := range b {
		if b[i].Code == wire.CodeOK {
			h.take(b[i].Slot)
		}
	}
}

func (h *memStore) Drop() {
	if h.dropped {
		h.faults = append(h.faults, "dropped twice")
	}
	h.dropped = true
	if len(h.reserved) > 0 {
		h.faults = append(h.faults, fmt.Sprintf("%d reservations at Drop", len(h.reserved)))
	}
	h.leases = map[Lease][]wire.Key{}
}

type namespaces struct{}

func manifest(tenant string) wire.Manifest {
	return wire.Manifest{Tenant: tenant, Model: "m", Role: "decode", BlockTokens: 16, BlockBytes: 1 << 20}
}
