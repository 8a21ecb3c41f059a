package peers

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"meridian/blocks"
	"meridian/blocks/spaces"
	"meridian/wire"
)

// tenant of every block here.
const tenant = "bench"

// manifest of the blocks of one size.
func manifest(size uint64) wire.Manifest {
	return wire.Manifest{Tenant: tenant, Model: fmt.Sprintf("bench-%d", size), BlockBytes: uint32(size)}
}

// heldKey is the key of the i-th block that a target holds to be read, oldKey of
// one that is in the way of writes, putKey of the n-th block written.
func heldKey(ns wire.Namespace, i int) wire.Key {
	return wire.KeyOf(ns, fmt.Appendf(nil, "held %d", i))
}
func oldKey(ns wire.Namespace, i int) wire.Key { return wire.KeyOf(ns, fmt.Appendf(nil, "old %d", i)) }
func putKey(ns wire.Namespace, n uint64) wire.Key {
	return wire.KeyOf(ns, fmt.Appendf(nil, "put %d", n))
}

// putCounter numbers the blocks that an initiator writes, each anew: a block
// that the target has already would not be moved again. The first byte is the
// initiator's, since several write to one target.
type putCounter struct {
	mode byte
	n    atomic.Uint64
}

func (p *putCounter) next() uint64 { return uint64(p.mode)<<56 | p.n.Add(1) }

// extent is the store's extent, the largest body that it takes: 0 leaves it to
// the store, whose own choice goes by its capacity.
func extent(size uint64) uint64 {
	if size < 4<<20 {
		return 0
	}
	return size
}

// far is the block store of a target: for reads it holds the cell's set, for
// writes it has room for about as much, and evicts.
type far struct {
	agent [16]byte
	cell  Cell // that the store was made for: Op, Size and Set
	inc   uint64
	store *blocks.Store
	reg   *spaces.Registry
	owner blocks.Owner
	ns    wire.Namespace
}

// fits tells whether the store will do for c. Batch and streams do not matter.
func (f *far) fits(c Cell) bool {
	return f.store != nil && f.cell.Op == c.Op && f.cell.Size == c.Size && f.cell.Set == c.Set
}

// open makes the store; a former one has been closed. For writes it is full of
// other blocks from the start, so that what comes evicts, and meets no page for
// the first time.
func (f *far) open(c Cell) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	capacity := c.Set + c.Set/4
	if c.Op == Read {
		capacity += 128 << 20 // slots are larger than bodies
	}
	f.inc++
	store, err := blocks.Open(blocks.Config{Capacity: capacity, Agent: f.agent, Incarnation: f.inc, ExtentBytes: extent(c.Size)})
	if err != nil {
		return err
	}
	f.cell, f.store, f.reg, f.owner = c, store, spaces.New(store.AddNamespace), store.NewOwner(0)
	if f.ns, err = f.reg.Add(manifest(c.Size)); err != nil {
		return err
	}
	n, key := int(c.Set/c.Size), heldKey
	if c.Op == Write {
		n, key = int(capacity/c.Size), oldKey
	}
	body := make([]byte, c.Size)
	for i := range n {
		fill(body, seedRemote, uint64(i)*c.Size)
		if err := f.hold(key(f.ns, i), body); err != nil {
			return fmt.Errorf("block %d of %v: %w", i, c, err)
		}
	}
	return nil
}

// hold stores a block.
func (f *far) hold(key wire.Key, body []byte) error {
	size := uint32(len(body))
	v, err := f.store.Reserve(f.owner, f.ns, []uint32{size}, time.Minute)
	if err != nil {
		return err
	}
	return f.store.Ingest(f.owner, body, &blocks.Commit{
		Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: f.ns, Key: key, Tier: wire.OutputCritical, Att: wire.AttestProducer, Len: size,
	})
}

// wipe does nothing: what is written is new blocks.
func (f *far) wipe(Cell) error { return nil }

func (f *far) verify(w []written) (uint64, error) {
	var total uint64
	for _, w := range w {
		if err := f.compare(putKey(f.ns, w.Block), w.From); err != nil {
			return total, fmt.Errorf("block %d: %w", w.Block, err)
		}
		total += f.cell.Size
	}
	return total, nil
}

func (f *far) compare(key wire.Key, from uint64) error {
	v := []blocks.View{{NS: f.ns, Key: key}}
	l, err := f.store.Acquire(f.owner, v, time.Minute, false)
	if err != nil {
		return err
	}
	defer f.store.Release(f.owner, l)
	if v[0].Err != nil {
		return v[0].Err
	}
	body := f.store.Payload(v[0])[wire.HeaderLen:]
	if uint64(len(body)) < f.cell.Size {
		return fmt.Errorf("%d bytes, want %d", len(body), f.cell.Size)
	}
	return expect(body[:f.cell.Size], seedLocal, from)
}

func (f *far) close() error {
	if f.store == nil {
		return nil
	}
	s := f.store
	f.store = nil
	return s.Close()
}
