package mooncake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/wire"
)

const (
	// retryTime is how long a peer that could not be reached is passed over.
	retryTime = time.Second
	// quarantineTime is how long memory rests whose write ended with nobody knowing
	// what of it the peer has yet to do: longer than any time limit of an engine.
	quarantineTime = 2 * time.Minute
)

type ident struct {
	ns  wire.Namespace
	key wire.Key
}

// entry is a block in a peer's memory.
type entry struct {
	ident
	h     fabric.Handle
	tier  wire.Tier
	att   wire.Attest
	head  wire.Header
	at    wire.Span
	space *space
	users int  // reads under way
	gone  bool // forgotten; its memory is free after the last read
	wrong bool // other bytes were read than were written
}

// size is the payload's, in bytes.
func (e *entry) size() uint64 { return wire.HeaderLen + uint64(e.head.BodyLen) }

// peer is one listed peer.
type peer struct {
	PeerConfig
	node     *Node
	failures failures

	mu      sync.Mutex
	seg     *engine.Segment // nil: not reached yet
	looked  time.Time       // when it was last seen which memory it has
	place   place           // where space is
	space   *space
	byKey   map[ident]*entry
	byH     map[fabric.Handle]*entry
	resting []rest
	failed  error // why the last call did not reach it
	retry   time.Time
}

// place is what of a descriptor says where blocks lie. Other memory comes and goes while
// they lie there.
type place struct {
	host  string
	port  uint16
	proto int
	first segment.Buffer // zero: nothing is registered
}

func placeOf(seg *engine.Segment) place {
	d, _ := seg.Descriptor()
	at := place{host: d.DataHost, port: d.DataPort, proto: d.Proto}
	if len(d.Buffers) > 0 {
		at.first = d.Buffers[0]
	}
	return at
}

type rest struct {
	at    wire.Span
	space *space
	until time.Time
}

func newPeer(n *Node, c PeerConfig) *peer {
	return &peer{PeerConfig: c, node: n, failures: newFailures(), byKey: map[ident]*entry{}, byH: map[fabric.Handle]*entry{}}
}

func (p *peer) error(code wire.Code, text string, cause error) *fabric.Error {
	return &fabric.Error{Code: code, Fabric: p.node.cfg.Label, Text: text, Cause: cause}
}

// reach opens the peer's segment, and makes its memory known. What lay in the memory
// that it had before a restart is forgotten. A peer may register memory long after its
// segment is there.
func (p *peer) reach(ctx context.Context) (*engine.Segment, error) {
	seg, err := p.node.initiator.Open(ctx, p.Segment)
	if err != nil {
		if ctx.Err() == nil {
			p.setFailed(err)
		}
		return nil, p.error(wire.CodeOf(err), "peer "+p.Name, err)
	}
	if p.mayLookAgain(seg) {
		_ = seg.Refresh(ctx) // what is known stays where this fails
	}
	at := placeOf(seg)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seg == seg && p.place == at {
		return seg, nil
	}
	p.forgetAll()
	p.seg, p.place, p.looked = seg, at, time.Now()
	if n := at.first.Len; n > 0 {
		if p.node.cfg.Lent > 0 {
			n = min(n, p.node.cfg.Lent)
		}
		p.space = newSpace(at.first.Addr, n)
	}
	return seg, nil
}

// mayLookAgain says that the peer had no memory when it was last looked at, a while ago.
func (p *peer) mayLookAgain(seg *engine.Segment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.seg != seg || p.space != nil || now.Sub(p.looked) < retryTime {
		return false
	}
	p.looked = now
	return true
}

// forgetAll forgets the blocks, since the memory that they lay in is gone.
func (p *peer) forgetAll() {
	for _, e := range p.byH {
		e.gone = true
	}
	clear(p.byH)
	clear(p.byKey)
	p.space, p.resting = nil, nil
}

func (p *peer) setFailed(err error) {
	p.mu.Lock()
	p.failed, p.retry = err, time.Now().Add(retryTime)
	p.mu.Unlock()
}

// after looks at what became of a call: whether the peer could be reached, and whether
// its memory is still what it was.
func (p *peer) after(ctx context.Context, seg *engine.Segment, err error) {
	switch {
	case err == nil:
		p.mu.Lock()
		p.failed = nil
		p.mu.Unlock()
		return
	case ctx.Err() != nil:
		return
	case errors.Is(err, wire.CodeUnreachable), errors.Is(err, wire.CodeLaneLost), errors.Is(err, wire.CodeNoProgress), errors.Is(err, wire.CodeDenied):
		p.setFailed(err)
	}
	_ = seg.Refresh(ctx)
	at := placeOf(seg)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.place != at {
		p.forgetAll()
		p.seg = nil
	}
}

// usable is why no call should be made now.
func (p *peer) usable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil && time.Now().Before(p.retry) {
		return p.error(wire.CodeUnreachable, "peer "+p.Name+" failed a moment ago", p.failed)
	}
	return nil
}

// find is the entry that an item names.
func (p *peer) find(it *fabric.Item) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.named(it)
}

func (p *peer) named(it *fabric.Item) *entry {
	if it.H != (fabric.Handle{}) {
		return p.byH[it.H]
	}
	return p.byKey[ident{it.NS, it.Key}]
}

// reserve takes room for a payload, unless its key is there.
func (p *peer) reserve(it *fabric.Item, head wire.Header) (*entry, error) {
	e := &entry{ident: ident{it.NS, it.Key}, tier: it.Tier, att: it.Att, head: head}
	_, _ = rand.Read(e.h[:]) // never fails
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.byKey[e.ident]; was != nil && was.wrong {
		p.forget(was)
	} else if was != nil {
		it.H = was.h
		return nil, p.error(wire.CodeExists, "", nil)
	}
	if p.space == nil {
		return nil, p.error(wire.CodeFull, "peer "+p.Name+" has registered no memory", nil)
	}
	p.wake()
	if n := len(p.byH) + len(p.resting); n >= p.node.maxBlocks {
		return nil, p.error(wire.CodeFull, fmt.Sprintf("peer %s has %d blocks, limit %d", p.Name, n, p.node.maxBlocks), nil)
	}
	at, ok := p.space.take(e.size())
	if !ok {
		return nil, &fabric.Error{
			Code: wire.CodeFull, Fabric: p.node.cfg.Label, Have: p.space.size - p.space.used, Need: e.size(),
			Text: "memory of peer " + p.Name + ", of which the longest free part is too short",
		}
	}
	e.at, e.space = at, p.space
	return e, nil
}

// wake ends the rest of memory whose time has come.
func (p *peer) wake() {
	now := time.Now()
	for len(p.resting) > 0 && !now.Before(p.resting[0].until) {
		if r := p.resting[0]; r.space == p.space {
			p.space.give(r.at)
		}
		p.resting = p.resting[1:]
	}
}

// publish makes a written entry one that can be found, unless another push of the key
// was faster, or the memory was lost meanwhile.
func (p *peer) publish(it *fabric.Item, e *entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.space != p.space {
		return p.error(wire.CodeLaneLost, "peer "+p.Name+" was restarted meanwhile", nil)
	}
	if was := p.byKey[e.ident]; was != nil {
		it.H = was.h
		p.space.give(e.at)
		return p.error(wire.CodeExists, "", nil)
	}
	p.byKey[e.ident], p.byH[e.h] = e, e
	it.H, it.Head = e.h, e.head
	return nil
}

// giveUp gives the room of a write that failed back: at once where the peer refused it
// or never got it, else after a rest.
func (p *peer) giveUp(e *entry, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.space != p.space:
	case errors.Is(err, wire.CodeStale), errors.Is(err, wire.CodeUnreachable), errors.Is(err, wire.CodeInvalid):
		p.space.give(e.at)
	default:
		p.resting = append(p.resting, rest{e.at, e.space, time.Now().Add(quarantineTime)})
	}
}

// push writes payloads that were checked.
func (p *peer) push(ctx context.Context, it []*fabric.Item, heads []wire.Header) []error {
	errs := make([]error, len(it))
	seg, err := p.reach(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	var ops []engine.Op
	var entries []*entry
	var at []int
	for i := range it {
		e, err := p.reserve(it[i], heads[i])
		if err != nil {
			errs[i] = err
			continue
		}
		ops = append(ops, engine.Op{Addr: e.space.base + e.at.Off, B: it[i].M.B})
		entries, at = append(entries, e), append(at, i)
	}
	seg.Write(ctx, ops)
	var told []message
	for k, e := range entries {
		i := at[k]
		if ops[k].Err != nil {
			p.giveUp(e, ops[k].Err)
			errs[i] = p.said(ctx, ops[k].Err)
			continue
		}
		if errs[i] = p.publish(it[i], e); errs[i] == nil {
			told = append(told, message{verbStored, e.ns, e.key, e.space.base + e.at.Off, e.size()})
		}
	}
	p.after(ctx, seg, firstOf(ops))
	p.node.tell(ctx, p, told)
	return errs
}

func firstOf(ops []engine.Op) error {
	for _, op := range ops {
		if op.Err != nil {
			return op.Err
		}
	}
	return nil
}

// said is an error of the engine as one of the contract.
func (p *peer) said(ctx context.Context, err error) error {
	if ended := fabric.ContextError(ctx, p.node.cfg.Label); ended != nil {
		return ended
	}
	return p.error(wire.CodeOf(err), "peer "+p.Name, err)
}

// use finds an entry and keeps its memory from being given out until leave.
func (p *peer) use(it *fabric.Item) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.named(it)
	if e != nil {
		e.users++
	}
	return e
}

func (p *peer) endUse(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.users--; e.users == 0 && e.gone && e.space == p.space {
		p.space.give(e.at)
	}
}

// drop forgets an entry; its memory is free when the last read of it has ended.
func (p *peer) drop(e *entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byH[e.h] != e {
		return false
	}
	p.forget(e)
	return true
}

func (p *peer) forget(e *entry) {
	delete(p.byH, e.h)
	delete(p.byKey, e.ident)
	e.gone = true
	if e.users == 0 && e.space == p.space {
		p.space.give(e.at)
	}
}

// pull reads the payloads of entries that are in use, and hashes each where it lies.
func (p *peer) pull(ctx context.Context, it []*fabric.Item, entries []*entry) []error {
	errs := make([]error, len(it))
	seg, err := p.reach(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	ops := make([]engine.Op, len(it))
	for i, e := range entries {
		ops[i] = engine.Op{Addr: e.space.base + e.at.Off, B: it[i].M.B[:e.size()]}
	}
	seg.Read(ctx, ops)
	p.after(ctx, seg, firstOf(ops))
	for i, e := range entries {
		if ops[i].Err != nil {
			errs[i] = p.said(ctx, ops[i].Err)
			continue
		}
		if errs[i] = p.check(it[i], e, ops[i].B); errs[i] != nil {
			p.spoil(e)
		}
	}
	return errs
}

// spoil has an entry no longer be found: its memory holds other bytes than were written.
// Who names it still reads what is wrong with it; the next push of its key replaces it.
func (p *peer) spoil(e *entry) {
	p.mu.Lock()
	e.wrong = true
	p.mu.Unlock()
}

// sound says whether an entry can be said to be there.
func (p *peer) sound(e *entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !e.wrong
}

// check compares what was read with what was written.
func (p *peer) check(it *fabric.Item, e *entry, b []byte) error {
	head, err := wire.ParseHeader(b, wire.Strict, wire.MaxBody)
	if err != nil || head != e.head {
		return p.error(wire.CodeChecksum, fmt.Sprintf("the memory of peer %s does not hold the header that was written", p.Name), err)
	}
	proof := wire.Hash(b[wire.HeaderLen:])
	if err := head.Match(proof); err != nil {
		return p.error(wire.CodeChecksum, "the memory of peer "+p.Name+" was changed", err)
	}
	it.H, it.Head, it.Att, it.Proof = e.h, e.head, e.att, proof
	return nil
}

// count is how many blocks and bytes lie in the peer's memory, rests included.
func (p *peer) count() (blocks int, bytes, of uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.space == nil {
		return 0, 0, 0
	}
	return len(p.byH), p.space.used, p.space.size
}

// probe moves a block there and back, which the index never has.
func (p *peer) probe(ctx context.Context) (took time.Duration, size int, err error) {
	const body = 64 << 10
	b := make([]byte, body)
	_, _ = rand.Read(b) // never fails
	payload, err := wire.AppendPayload(nil, wire.ThinkComplete, b)
	if err != nil {
		return 0, 0, err
	}
	seg, err := p.reach(ctx)
	if err != nil {
		return 0, 0, err
	}
	it := fabric.Item{M: fabric.Mem{B: payload}}
	e, err := p.reserve(&it, wire.Header{BodyLen: body, Tier: wire.ThinkComplete, Sum: wire.SumOf(b)})
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	ops := []engine.Op{{Addr: e.space.base + e.at.Off, B: payload}}
	if seg.Write(ctx, ops); ops[0].Err == nil {
		seg.Read(ctx, ops)
	}
	took = time.Since(began)
	p.after(ctx, seg, ops[0].Err)
	if ops[0].Err != nil {
		p.giveUp(e, ops[0].Err)
		return 0, 0, p.said(ctx, ops[0].Err)
	}
	p.giveUp(e, wire.CodeStale) // nothing is under way
	return took, 2 * len(payload), p.check(&it, e, ops[0].B)
}
