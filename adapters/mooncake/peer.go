package mooncake

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/wire"
)

const (
	// retryTime is how long a peer that could not be reached is passed over.
	retryTime = time.Second
	// quarantineTime is how long memory rests whose write ended with nobody knowing
	// what of it the peer has yet to do: longer than any time limit of an engine.
	quarantineTime = 2 * time.Minute
)

// peer is one listed peer.
type peer struct {
	PeerConfig
	node     *Node
	failures failures

	listed context.Context // ends when it is listed no more, and with the Node
	unlist context.CancelFunc

	mu     sync.Mutex
	ended  bool // no call begins any more
	calls  sync.WaitGroup
	seg    *engine.Segment // nil: not reached yet
	looked time.Time       // when it was last seen which memory it has
	place  place           // of its memory
	life   uint64          // counts the places
	failed error           // why the last call did not reach it
	retry  time.Time
}

var _ lent.Peer = (*peer)(nil)

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

func newPeer(n *Node, c PeerConfig) *peer {
	p := &peer{PeerConfig: c, node: n, failures: newFailures()}
	p.listed, p.unlist = context.WithCancel(n.life)
	return p
}

// call lets a call begin, whose context ends with the peer too.
func (p *peer) call(ctx context.Context) (within context.Context, leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, nil, p.error(wire.CodeUnreachable, "peer "+p.Name()+" is listed no more", nil)
	}
	p.calls.Add(1)
	within, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.listed, cancel)
	return within, func() {
		stop()
		cancel()
		p.calls.Done()
	}, nil
}

// retire ends a peer's calls, and the connections to it unless another peer has them.
func (p *peer) retire() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.unlist()
	p.calls.Wait()
	same := func(o *peer) bool { return o.Segment == p.Segment }
	if !slices.ContainsFunc(p.node.roster.Load().peers, same) {
		p.node.initiator.Forget(p.Segment)
	}
}

// Name is the peer's in the configuration.
func (p *peer) Name() string { return p.PeerConfig.Name }

// Via is always TCP.
func (p *peer) Via() string { return via }

func (p *peer) error(code wire.Code, text string, cause error) *fabric.Error {
	return &fabric.Error{Code: code, Fabric: p.node.cfg.Label, Text: text, Cause: cause}
}

// Reach opens the peer's segment, and says where its memory is. After a restart it is
// other memory. A peer may register memory long after its segment is there.
func (p *peer) Reach(ctx context.Context) (lent.Place, error) {
	ctx, leave, err := p.call(ctx)
	if err != nil {
		return lent.Place{}, err
	}
	defer leave()
	seg, err := p.node.initiator.Open(ctx, p.Segment)
	if err != nil {
		if ctx.Err() == nil {
			p.setFailed(err)
		}
		return lent.Place{}, err
	}
	if p.mayLookAgain(seg) {
		_ = seg.Refresh(ctx) // what is known stays where this fails
	}
	at := placeOf(seg)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seg != seg || p.place != at {
		p.seg, p.place, p.looked = seg, at, time.Now()
		p.life++
	}
	n := at.first.Len
	if most := p.node.cfg.Lent; most > 0 {
		n = min(n, most)
	}
	return lent.Place{ID: strconv.FormatUint(p.life, 10), Base: at.first.Addr, Size: n}, nil
}

// mayLookAgain says that the peer had no memory when it was last looked at, a while ago.
func (p *peer) mayLookAgain(seg *engine.Segment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.seg != seg || p.place.first.Len > 0 || now.Sub(p.looked) < retryTime {
		return false
	}
	p.looked = now
	return true
}

// Read and Write move the bytes of ops.
func (p *peer) Read(ctx context.Context, ops []lent.Op)  { p.move(ctx, ops, (*engine.Segment).Read) }
func (p *peer) Write(ctx context.Context, ops []lent.Op) { p.move(ctx, ops, (*engine.Segment).Write) }

func (p *peer) move(ctx context.Context, ops []lent.Op, by func(*engine.Segment, context.Context, []engine.Op)) {
	ctx, leave, err := p.call(ctx)
	var seg *engine.Segment
	if err == nil {
		defer leave()
		seg, err = p.node.initiator.Open(ctx, p.Segment)
	}
	if err != nil {
		for i := range ops {
			ops[i].Err, ops[i].Quiet = err, true
		}
		return
	}
	list := make([]engine.Op, len(ops))
	for i, op := range ops {
		list[i] = engine.Op{Addr: op.Addr, B: op.B}
	}
	by(seg, ctx, list)
	var first error
	for i := range list {
		err := list[i].Err
		first = cmp.Or(first, err)
		// Refused, or never sent.
		ops[i].Err, ops[i].Quiet = err, errors.Is(err, wire.CodeStale) || errors.Is(err, wire.CodeUnreachable) || errors.Is(err, wire.CodeInvalid)
	}
	p.after(ctx, seg, first)
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
	lost := p.place != at
	if lost {
		p.seg = nil
	}
	p.mu.Unlock()
	if lost {
		p.node.store.Forget(p.Name())
	}
}

// Usable is why no call should be made now.
func (p *peer) Usable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil && time.Now().Before(p.retry) {
		return p.error(wire.CodeUnreachable, "peer "+p.Name()+" failed a moment ago", p.failed)
	}
	return nil
}
