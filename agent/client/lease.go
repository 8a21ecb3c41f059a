package client

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// NS numbers a namespace that Open returned. It is good on its Engine only.
type NS uint16

// Block is a block to be put, or one that is leased.
type Block struct {
	NS   NS
	Key  wire.Key
	Tier wire.Tier
	Body []byte // leased: mapped read-only; not touched after Release, never written to
	Req  uint32 // Put: the generation request that it belongs to, of Begin; 0: none

	// Of a block to be put, in a group. Auto: the daemon chooses the tier by Pos, the
	// position of the block's first token in its request, with the prompt's first as 0.
	// Pin keeps the block from eviction until a peer has pulled it once, for that time at
	// most, or until its request is finished.
	Auto bool
	Pos  uint32
	Pin  time.Duration
	Len  int // Reserve: bytes of the body

	// Of a leased block.
	Err  error       // why it was not granted; the other fields are then zero
	Head wire.Header // as it was fixed when the block was stored
	Att  wire.Attest
	Slot uint32
	Gen  uint32

	gen *uint64
}

// Check says whether Body is still this block: STALE once its slot is used for
// something else. A reader that copies checks before and after; see CopyTo.
func (b *Block) Check() error {
	if b.gen == nil {
		if b.Err != nil {
			return b.Err
		}
		return wire.CodeInvalid
	}
	if atomic.LoadUint64(b.gen) != uint64(b.Gen) {
		return wire.CodeStale
	}
	return nil
}

// fenced is written to order loads; its value means nothing.
var fenced atomic.Uint32

// CopyTo copies the body to dst, which must have room for it, and says whether
// what was copied is this block. STALE: it is not, and counts as a miss.
func (b *Block) CopyTo(dst []byte) error {
	if err := b.Check(); err != nil {
		return err
	}
	if len(dst) < len(b.Body) {
		return wire.CodeTooLarge
	}
	copy(dst, b.Body)
	// An atomic load keeps what follows behind it, not what came before in front
	// of it: on arm64 the copy's loads could pass it. A read-modify-write keeps
	// both.
	fenced.Add(1)
	return b.Check()
}

// AcquireOptions of Acquire. The zero value takes timed leases of what is here.
type AcquireOptions struct {
	Fetch     bool          // pull what is missing from other holders
	Transient bool          // do not keep what is fetched: it is freed at Release
	Hold      bool          // never lapses while the process lives
	Renew     bool          // renew until Release
	TTL       time.Duration // of a timed lease; 0 and above link.MaxLease: that
	Deadline  time.Duration // for fetching; 0: DefaultDeadline
}

// Lease is the right to read some blocks.
type Lease struct {
	Blocks []Block // one for each key, in order
	// Why says for people what the codes of missing blocks do not: which holders
	// could not be asked. Empty where the daemon has nothing to add.
	Why string

	e    *Engine
	id   [16]byte
	lost atomic.Bool
	kept bool // the renewer has it
}

// Acquire leases blocks. Each block of the result has its own Err; the error is
// of the request as a whole. What is granted comes back by Release.
func (e *Engine) Acquire(ctx context.Context, ns NS, keys []wire.Key, o AcquireOptions) (*Lease, error) {
	l := new(Lease)
	if err := e.AcquireInto(ctx, l, ns, keys, o); err != nil {
		return nil, err
	}
	return l, nil
}

// AcquireInto is Acquire into a Lease that is new or was released, in the memory
// of its Blocks.
func (e *Engine) AcquireInto(ctx context.Context, l *Lease, ns NS, keys []wire.Key, o AcquireOptions) error {
	if l.e != nil {
		return &RequestError{Op: "acquire", Code: wire.CodeState, Text: "the lease was not released"}
	}
	if err := e.tooMany("acquire", len(keys)); err != nil {
		return err
	}
	c, err := e.take(ctx, "acquire")
	if err != nil {
		return err
	}
	c.wants = wantsOf(c.wants, ns, keys, o.flags())
	ask := link.Acquire{
		DeadlineMS: deadlineMS(ctx, o.Deadline), LeaseMS: uint32(min(o.TTL, link.MaxLease).Milliseconds()),
		Hold: o.Hold, Items: c.wants,
	}
	if !e.maps.get() {
		e.putBack(c)
		return e.Err()
	}
	if err := send(e, c, link.TypeAcquire, ask); err != nil {
		e.maps.put()
		e.putBack(c)
		return err
	}
	if err := e.wait(ctx, c); err != nil {
		e.maps.put()
		return err
	}
	err = e.granted(c, l, ns, keys)
	e.putBack(c)
	if err != nil {
		e.maps.put()
		return err
	}
	if o.Renew && l.id != ([16]byte{}) {
		e.renewer.add(l, o.TTL)
	}
	return nil
}

func (o *AcquireOptions) flags() (f uint16) {
	if o.Fetch {
		f |= link.WantFetch
	}
	if o.Transient {
		f |= link.WantTransient
	}
	return f
}

func wantsOf(w []link.Want, ns NS, keys []wire.Key, flags uint16) []link.Want {
	w = slices.Grow(w[:0], len(keys))[:len(keys)]
	for i := range keys {
		w[i] = link.Want{NS: uint16(ns), Flags: flags, Max: wire.MaxBody, Key: keys[i]}
	}
	return w
}

// granted makes a lease of an answer.
func (e *Engine) granted(c *call, l *Lease, ns NS, keys []wire.Key) error {
	if err := ended("acquire", &c.end); err != nil {
		return err
	}
	a := &c.acquired
	if c.got != link.TypeAcquired || len(a.Items) != len(keys) {
		return protocolError(wire.CodeState, "ACQUIRE of %d items was answered with %d", len(keys), len(a.Items))
	}
	l.Blocks = slices.Grow(l.Blocks[:0], len(keys))[:len(keys)]
	for i := range a.Items {
		p := &a.Items[i]
		b := &l.Blocks[i]
		if err := e.blockOf(b, ns, keys[i], p); err != nil {
			e.giveBack(a.Lease)
			return err
		}
	}
	l.e, l.id, l.Why = e, a.Lease, c.end.Text
	l.lost.Store(false)
	return nil
}

// blockOf makes a block of a place. An error is a daemon that breaks the protocol.
func (e *Engine) blockOf(b *Block, ns NS, key wire.Key, p *link.Place) error {
	*b = Block{NS: ns, Key: key, Err: itemError(p.Status)}
	if granted := p.Status == wire.CodeOK; !granted {
		return nil
	}
	body, head, gen, err := e.maps.place(p)
	if err != nil {
		return err
	}
	b.Tier, b.Att, b.Slot, b.Gen = p.Tier, p.Att, p.Slot, p.Gen
	b.Body, b.gen = body, gen
	if b.Head, err = wire.ParseHeader(head[:], wire.Strict, p.Len); err != nil {
		*b = Block{NS: ns, Key: key, Err: err}
	}
	return nil
}

// Release gives the blocks back: with the engine's next request, or within a
// millisecond. Again, and after the connection's end, it does nothing more.
func (l *Lease) Release() {
	e := l.e
	if e == nil {
		return
	}
	if l.kept {
		e.renewer.remove(l)
	}
	clear(l.Blocks)
	l.Blocks = l.Blocks[:0]
	l.e = nil
	if l.id != ([16]byte{}) {
		e.giveBack(l.id)
	}
	e.maps.put()
}

// Renew makes a timed lease last for ttl from now on; 0 and above link.MaxLease:
// that. LEASE_LOST: it has lapsed.
func (l *Lease) Renew(ctx context.Context, ttl time.Duration) error {
	if l.e == nil {
		return &RequestError{Op: "renew", Code: wire.CodeLeaseLost, Text: "released"}
	}
	return l.e.renew(ctx, l.id, ttl)
}

// Lost tells whether automatic renewal found the lease lapsed.
func (l *Lease) Lost() bool { return l.lost.Load() }

func (e *Engine) renew(ctx context.Context, id [16]byte, ttl time.Duration) error {
	c, err := e.take(ctx, "renew")
	if err != nil {
		return err
	}
	return simple(ctx, e, c, link.TypeRenew, link.Renew{Lease: id, MS: uint32(min(ttl, link.MaxLease).Milliseconds())})
}
