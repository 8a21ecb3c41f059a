package client

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"meridian/internal/invariants"
	"meridian/wire"
	"meridian/wire/link"
)

// Holder is an agent that is said to have a block, as Engine.Agent of its daemon tells
// it. The zero Holder is nobody.
type Holder struct {
	Agent [16]byte
	Inc   uint64
}

// LoadItem names a block of a load.
type LoadItem struct {
	NS  NS
	Key wire.Key
	// Holder is asked first and alone for what is not here, by Slot and Gen of its own
	// if Gen is not 0.
	Holder    Holder
	Slot, Gen uint32
}

// LoadOptions of Load. The zero value takes timed leases of what is here.
type LoadOptions struct {
	Wait      bool          // wait until a block that is not here is published here, or found
	Fetch     bool          // pull what is missing from other holders, also those that are not named
	Transient bool          // do not keep what is fetched: it is freed at Release
	Hold      bool          // never lapses while the process lives
	TTL       time.Duration // of a timed lease; 0 and above link.MaxLease: that
	Deadline  time.Duration // for fetching and waiting; 0: DefaultDeadline
	Holder    Holder        // of every block, for Load; LoadItems says it by item
}

// Load is a request for leases that is answered in parts, in the order asked: what is
// here at once, and then what was fetched or published meanwhile. One goroutine at a
// time uses it.
//
//	var l client.Load
//	err := e.LoadInto(ctx, &l, ns, keys, client.LoadOptions{Wait: true, Fetch: true})
//	for {
//		var part client.Lease
//		first, err := l.Next(ctx, &part) // blocks first, first+1, ...
//		if err != nil {
//			break // io.EOF after the last one
//		}
//		... part.Release()
//	}
//	l.Close()
type Load struct {
	e  *Engine
	in *loading
}

// loading is a Load as the reader knows it.
type loading struct {
	life  invariants.Life
	req   uint64
	items []link.LoadItem
	seen  []link.Holder // of items

	mu     sync.Mutex
	parts  []link.Loaded // that came; used again and again
	taken  int           // of parts, by Next
	next   int           // the item that the next part begins with
	end    link.End
	over   bool  // END came, or the connection is over
	err    error // of the connection
	gaveUp bool  // Close came first: what comes is given back

	more chan struct{} // holds one when parts or over has changed
}

// Load asks for leases on blocks of one namespace, and does not wait for an answer.
func (e *Engine) Load(ctx context.Context, ns NS, keys []wire.Key, o LoadOptions) (*Load, error) {
	l := new(Load)
	if err := e.LoadInto(ctx, l, ns, keys, o); err != nil {
		return nil, err
	}
	return l, nil
}

// LoadInto is Load into a Load that is new or was closed, in its memory.
func (e *Engine) LoadInto(ctx context.Context, l *Load, ns NS, keys []wire.Key, o LoadOptions) error {
	in, err := e.prepare(l, len(keys))
	if err != nil {
		return err
	}
	holder := in.holder(o.Holder)
	for i := range keys {
		in.items[i] = link.LoadItem{NS: uint16(ns), Flags: o.flags(), Holder: holder, Key: keys[i]}
	}
	return e.startLoad(ctx, l, in, &o)
}

// LoadItems is LoadInto for blocks of several namespaces and holders.
func (e *Engine) LoadItems(ctx context.Context, l *Load, items []LoadItem, o LoadOptions) error {
	in, err := e.prepare(l, len(items))
	if err != nil {
		return err
	}
	for i := range items {
		it := &items[i]
		in.items[i] = link.LoadItem{NS: uint16(it.NS), Flags: o.flags(), Holder: in.holder(it.Holder), Slot: it.Slot, Gen: it.Gen, Key: it.Key}
	}
	if len(in.seen) > link.MaxHolders {
		return &RequestError{Op: "load", Code: wire.CodeTooLarge, Text: "more holders than one load may name"}
	}
	return e.startLoad(ctx, l, in, &o)
}

func (o *LoadOptions) flags() (f uint16) {
	if o.Wait {
		f |= link.WantWait
	}
	if o.Fetch {
		f |= link.WantFetch
	}
	if o.Transient {
		f |= link.WantTransient
	}
	return f
}

// prepare finds the memory for a load of n items.
func (e *Engine) prepare(l *Load, n int) (*loading, error) {
	if err := e.needGroup("load"); err != nil {
		return nil, err
	}
	if l.e != nil {
		return nil, &RequestError{Op: "load", Code: wire.CodeState, Text: "the load was not closed"}
	}
	if err := e.tooMany("load", n); err != nil {
		return nil, err
	}
	in := l.in
	if in == nil {
		in = &loading{more: make(chan struct{}, 1)}
		l.in = in
	}
	in.items, in.seen = slices.Grow(in.items[:0], n)[:n], in.seen[:0]
	return in, nil
}

// holder is the number of a holder in the request; 0: nobody.
func (in *loading) holder(h Holder) uint16 {
	if h == (Holder{}) {
		return 0
	}
	k := slices.Index(in.seen, link.Holder(h))
	if k < 0 {
		k = len(in.seen)
		in.seen = append(in.seen, link.Holder(h))
	}
	return uint16(k + 1)
}

// startLoad sends LOAD.
func (e *Engine) startLoad(ctx context.Context, l *Load, in *loading, o *LoadOptions) error {
	if err := ctx.Err(); err != nil {
		return contextError("load", err)
	}
	if !e.maps.get() {
		return e.Err()
	}
	select {
	case <-in.more:
	default:
	}
	in.parts, in.taken, in.next, in.over, in.err, in.gaveUp = in.parts[:0], 0, 0, false, nil, false
	in.end = link.End{Status: in.end.Status[:0]}
	ask := link.Load{
		DeadlineMS: deadlineMS(ctx, o.Deadline), LeaseMS: uint32(min(o.TTL, link.MaxLease).Milliseconds()),
		Hold: o.Hold, Holders: in.seen, Items: in.items,
	}
	if err := e.lockForRequest(); err != nil {
		e.maps.put()
		return err
	}
	defer e.wmu.Unlock()
	e.appendReleases()
	in.req = e.nextReq(e.loadSlot())
	e.lmu.Lock()
	invariants.Begin(&in.life, "load")
	e.loads[in.req] = in
	e.lmu.Unlock()
	e.out = link.AppendLocal(e.out, e.plain, link.Frame{Type: link.TypeLoad, Req: in.req}, ask)
	e.flush()
	e.due.wait(len(e.out))
	l.e = e
	return nil
}

// releaseSlot and loadSlot stand, in request numbers, for all RELEASEs and all LOADs;
// what is less is a call's.
func (e *Engine) releaseSlot() int { return len(e.calls) }

func (e *Engine) loadSlot() int { return len(e.calls) + 1 }

// Next waits for the next part, and makes a lease of it: of the blocks from first on, in
// the order asked. part is new or was released. io.EOF: there are no more, and every
// block was in one. Another error is of the load as a whole, or of ctx: then Next may be
// called again. Parts that came before an error stay valid.
func (l *Load) Next(ctx context.Context, part *Lease) (first int, err error) {
	if l.e == nil {
		return 0, &RequestError{Op: "load", Code: wire.CodeState, Text: "closed"}
	}
	if part.e != nil {
		return 0, &RequestError{Op: "load", Code: wire.CodeState, Text: "the lease was not released"}
	}
	e, in := l.e, l.in
	stop, token := ctx.Done(), e.token
	for {
		in.mu.Lock()
		switch {
		case in.taken < len(in.parts):
			p := &in.parts[in.taken]
			in.taken++
			in.mu.Unlock() // parts that came do not change until the load ends
			return int(p.First), e.partOf(part, in, p)
		case in.over:
			err := in.ended()
			in.mu.Unlock()
			return 0, err
		}
		in.mu.Unlock()
		select {
		case <-in.more:
		case <-token:
			e.leadLoad(stop, in)
			e.token <- struct{}{}
			token = nil
		case <-stop:
			return 0, contextError("load", ctx.Err())
		}
	}
}

// ended is what Next returns after the last part. mu is held.
func (in *loading) ended() error {
	if in.err != nil {
		return in.err
	}
	if err := ended("load", &in.end); err != nil {
		return err
	}
	return io.EOF
}

// leadLoad reads, as the holder of the token, until something of the load came, or
// nothing does.
func (e *Engine) leadLoad(stop <-chan struct{}, in *loading) {
	e.readers.Add(1)
	for {
		in.mu.Lock()
		news := in.over || in.taken < len(in.parts)
		in.mu.Unlock()
		if news {
			return
		}
		select {
		case <-stop:
			return
		default:
		}
		_, err := e.receive(0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			e.fail(err)
			return
		}
	}
}

// partOf makes a lease of a part.
func (e *Engine) partOf(part *Lease, in *loading, p *link.Loaded) error {
	if !e.maps.get() {
		return e.Err()
	}
	part.Blocks = slices.Grow(part.Blocks[:0], len(p.Items))[:len(p.Items)]
	for i := range p.Items {
		it := &in.items[int(p.First)+i]
		if err := e.blockOf(&part.Blocks[i], NS(it.NS), it.Key, &p.Items[i]); err != nil {
			e.giveBack(p.Lease)
			e.maps.put()
			return err
		}
	}
	part.e, part.id, part.Why = e, p.Lease, ""
	part.lost.Store(false)
	return nil
}

// Why says for people what the codes of missing blocks do not, once Next has returned
// io.EOF.
func (l *Load) Why() string {
	if l.in == nil {
		return ""
	}
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	return l.in.end.Text
}

// Close ends the load: what has not come yet is not waited for. Parts that Next has
// returned stay valid until they are released. It may be called again.
func (l *Load) Close() {
	if l.e == nil {
		return
	}
	e, in := l.e, l.in
	l.e = nil
	in.mu.Lock()
	in.gaveUp = true
	left, over := in.parts[in.taken:], in.over
	in.taken = len(in.parts)
	in.mu.Unlock()
	for i := range left {
		if left[i].Lease != ([16]byte{}) {
			e.giveBack(left[i].Lease)
		}
	}
	if !over {
		l.in = nil // the reader's until END
		e.sendCancel(in.req)
	}
	e.maps.put()
}

// loaded handles a frame of a LOAD.
func (e *Engine) loaded(f link.Frame, p []byte) (woke bool, err error) {
	e.lmu.Lock()
	in := e.loads[f.Req]
	e.lmu.Unlock()
	if in == nil || f.Req&1 == 0 {
		return false, protocolError(wire.CodeState, "%s of a request that does not run", f.Type)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	switch f.Type {
	case link.TypeLoaded:
		err = in.part(p)
	case link.TypeEnd:
		if err = in.last(p); err == nil {
			e.lmu.Lock()
			delete(e.loads, f.Req)
			e.lmu.Unlock()
		}
	default:
		err = protocolError(wire.CodeState, "%s answers a LOAD", f.Type)
	}
	if err != nil {
		return false, err
	}
	if in.gaveUp {
		for ; in.taken < len(in.parts); in.taken++ {
			if id := in.parts[in.taken].Lease; id != ([16]byte{}) {
				e.queueRelease(id)
			}
		}
		return false, nil
	}
	in.tell()
	return true, nil
}

// part takes LOADED: the parts come in order, without gap or overlap. mu is held.
func (in *loading) part(p []byte) error {
	n := len(in.parts)
	in.parts = slices.Grow(in.parts, 1)[:n+1]
	x := &in.parts[n]
	if err := x.Parse(p); err != nil {
		in.parts = in.parts[:n]
		return err
	}
	if int(x.First) != in.next || len(x.Items) > len(in.items)-in.next {
		in.parts = in.parts[:n]
		return protocolError(wire.CodeState, "LOADED of %d items from %d on, where %d of %d came before", len(x.Items), x.First, in.next, len(in.items))
	}
	in.next += len(x.Items)
	return nil
}

// last takes END. mu is held.
func (in *loading) last(p []byte) error {
	if err := in.end.Parse(p); err != nil {
		return err
	}
	if in.end.Code == wire.CodeOK && in.next != len(in.items) {
		return protocolError(wire.CodeState, "LOAD of %d items has ended with %d", len(in.items), in.next)
	}
	in.finish(nil)
	return nil
}

// finish ends the load as far as the reader is concerned. mu is held.
func (in *loading) finish(err error) {
	in.over, in.err = true, err
	invariants.End(&in.life, "load")
}

// tell wakes Next. mu is held.
func (in *loading) tell() {
	select {
	case in.more <- struct{}{}:
	default:
	}
}

// loseLoads ends every load when the connection is over.
func (e *Engine) loseLoads() {
	err := e.Err()
	e.lmu.Lock()
	left := e.loads
	e.loads = map[uint64]*loading{} // nothing is sent any more
	e.lmu.Unlock()
	for _, in := range left {
		in.mu.Lock()
		in.finish(err)
		in.tell()
		in.mu.Unlock()
	}
}

// Loaded is what LoadAll has leased.
type Loaded struct {
	Blocks []Block // one for each key, in order
	Why    string  // see Lease.Why
	parts  []*Lease
}

// Release gives the blocks back.
func (l *Loaded) Release() {
	for _, p := range l.parts {
		p.Release()
	}
	l.parts, l.Blocks = nil, nil
}

// LoadAll is Load for a caller that has nothing to do with parts: it returns when the
// last one has come. Each block of the result has its own Err. After an error nothing
// is leased.
func (e *Engine) LoadAll(ctx context.Context, ns NS, keys []wire.Key, o LoadOptions) (*Loaded, error) {
	var l Load
	if err := e.LoadInto(ctx, &l, ns, keys, o); err != nil {
		return nil, err
	}
	defer l.Close()
	all := &Loaded{Blocks: make([]Block, 0, len(keys))}
	for {
		part := new(Lease)
		_, err := l.Next(ctx, part)
		if errors.Is(err, io.EOF) {
			all.Why = l.Why()
			return all, nil
		}
		if err != nil {
			all.Release()
			return nil, err
		}
		all.parts, all.Blocks = append(all.parts, part), append(all.Blocks, part.Blocks...)
	}
}
