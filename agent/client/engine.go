package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// A request's way:
//
//	1 take   a free call; as many exist as the daemon takes requests
//	2 send   encodes into out and writes, under wmu; leases that were released
//	         meanwhile travel in front, in the same system call; see outbox.go for
//	         a socket that is full
//	3 wait   the caller reads the socket itself, or waits for one that does, or
//	         gives up; see reader.go for who reads
//	4 answer the reader finds the call by the request number, parses the answer
//	         into it, and signals at END; it cleans up if the caller has gone
//	5 put back
//
// Between send and END a call's fields are the reader's, except to send.

// readBuffer is what one read may bring.
const readBuffer = 64 << 10

// releaseDelay is how long a released lease may wait for a request to travel
// with.
const releaseDelay = time.Millisecond

// closeWait is how long Close leaves the daemon to end its side. Its answers to
// what was sent last would otherwise meet a closed socket, which looks to it like
// an engine that died.
const closeWait = 250 * time.Millisecond

// releaseAtOnce is how many released leases are sent without waiting.
const releaseAtOnce = 64

// Engine is a connection to the daemon. It is safe for concurrent use.
type Engine struct {
	sock    *socket
	options Options
	maps    mapTable
	ring    ring
	renewer renewer
	advice  advice

	items     int                    // of a batch, at most
	features  uint64                 // of the daemon's HELLO
	plain     bool                   // frames behind HELLO have no checksums
	grouped   bool                   // both HELLOs have GROUP
	secret    [link.GroupSecret]byte // of the group; zero: none
	agent     [16]byte
	inc       uint64
	draining  atomic.Bool
	lastReq   atomic.Uint32 // generation requests
	calls     []*call
	free      chan *call
	gone      chan struct{} // closed when the connection is over
	readerEnd chan struct{} // closed when nobody uses the socket any more

	token   chan struct{} // holds one while nobody reads
	readers atomic.Uint32 // callers that began to read
	split   link.Splitter // of the token's holder, as the next two
	buf     []byte
	fds     []int // that came, and whose MAP did not yet

	dropped atomic.Uint64 // calls of Tokens
	pushers sync.WaitGroup

	lmu   sync.Mutex
	loads map[uint64]*loading // by request number, until END

	wmu      sync.Mutex // nobody waits for anything with it
	out      []byte     // frames that the socket has not taken; the first may have begun
	pushing  bool       // push runs
	due      due
	shorter  chan struct{} // not nil: closed when out gets shorter
	seq      uint64        // of request numbers
	err      error         // why the connection is over
	pending  link.Release
	releases *time.Timer
	armed    bool // releases will run
}

func newEngine(s *socket, o Options) *Engine {
	e := &Engine{
		sock: s, options: o,
		gone:      make(chan struct{}),
		readerEnd: make(chan struct{}),
		token:     make(chan struct{}, 1),
		loads:     make(map[uint64]*loading),
	}
	e.maps.init()
	e.ring.init()
	e.renewer.e = e
	return e
}

// start begins reading.
func (e *Engine) start(h link.Hello) {
	reqs := int(h.Limits.Reqs)
	if reqs <= 0 || reqs > link.MaxReqs {
		reqs = link.MaxReqs
	}
	e.items = int(h.Limits.Items)
	if e.items <= 0 || e.items > link.MaxItems {
		e.items = link.MaxItems
	}
	e.features, e.agent, e.inc = h.Features, h.Agent, h.Inc
	e.calls = make([]*call, reqs)
	e.free = make(chan *call, reqs)
	for i := range e.calls {
		e.calls[i] = &call{slot: i, done: make(chan struct{}, 1)}
		e.free <- e.calls[i]
	}
	e.advice.start(e.options)
	e.buf = make([]byte, readBuffer)
	e.token <- struct{}{}
	go e.read()
}

// Agent is the daemon's id, and its incarnation: new at each start.
func (e *Engine) Agent() ([16]byte, uint64) { return e.agent, e.inc }

// Draining tells whether the daemon has said that it leaves. It then refuses new
// requests with DRAINING.
func (e *Engine) Draining() bool { return e.draining.Load() }

// Gone is closed when the connection is over; Err says why.
func (e *Engine) Gone() <-chan struct{} { return e.gone }

// Err is a *ClosedError once the connection is over, nil before.
func (e *Engine) Err() error {
	e.wmu.Lock()
	defer e.wmu.Unlock()
	return e.err
}

// Close ends the connection: the daemon takes back every lease. It must not be
// called from OnPhase. Memory of leases that were not released, and of bodies that
// were staged and not put, stays mapped until they are.
func (e *Engine) Close() error {
	e.flushReleases() // a hold that is not released outlives the connection
	e.drained(closeWait)
	e.failBy(&ClosedError{Code: wire.CodeLaneLost, Text: "closed by this side"}, e.sock.shutdownWrite)
	late := time.AfterFunc(closeWait, e.sock.shutdown)
	<-e.readerEnd
	late.Stop()
	e.advice.stop()
	return nil
}

// fail ends the connection once, for the reason of the first call.
func (e *Engine) fail(err error) { e.failBy(err, e.sock.shutdown) }

func (e *Engine) failBy(err error, shutdown func()) {
	e.wmu.Lock()
	if e.err != nil {
		e.wmu.Unlock()
		return
	}
	var closed *ClosedError
	if !errors.As(err, &closed) {
		lost := &ClosedError{Code: codeOf(err), Cause: err}
		switch {
		case lost.Code == wire.CodeLaneLost && e.draining.Load(): // as GOAWAY announced
			lost.Code, lost.Text = wire.CodeDraining, "the daemon is draining and has closed the connection"
		case errors.Is(err, io.EOF):
			lost.Text = "the daemon has gone"
		}
		if err == io.EOF { // which is how a Load says that all of it came
			lost.Cause = io.ErrUnexpectedEOF
		}
		err = lost
	}
	e.err = err
	close(e.gone)
	e.wmu.Unlock()
	shutdown()
}

// event handles one frame; woke says that a goroutine was woken.
func (e *Engine) event(ev link.Event, fds []int) (woke bool, left []int, err error) {
	switch {
	case ev.Kind == link.EventNone || ev.Kind == link.EventSkipped:
		return false, fds, nil
	case ev.Kind != link.EventMessage:
		return false, fds, protocolError(wire.CodeFlowViolation, "DATA has no place on an engine's socket")
	case !e.grouped && ev.Frame.Type.NeedsGroup(): // unknown where it was not agreed on
		return false, fds, nil
	}
	switch ev.Frame.Type {
	case link.TypeMap:
		left, err = e.mapped(ev.Payload, fds)
		return false, left, err
	case link.TypePhase:
		return true, fds, e.phase(ev.Payload)
	case link.TypePhaseAt:
		return true, fds, e.phaseAt(ev.Payload)
	case link.TypeEvicted:
		return true, fds, e.evicted(ev.Payload)
	case link.TypeGoAway:
		_, err := link.Parse[link.GoAway](ev.Payload)
		e.draining.Store(true)
		return false, fds, err
	case link.TypeError:
		return false, fds, refused(ev.Payload)
	}
	woke, err = e.answer(ev.Frame, ev.Payload)
	return woke, fds, err
}

// answer gives a frame to its call.
func (e *Engine) answer(f link.Frame, p []byte) (woke bool, err error) {
	slot := int((f.Req >> 1) % uint64(len(e.calls)+2))
	if slot == e.loadSlot() {
		return e.loaded(f, p)
	}
	if slot == e.releaseSlot() {
		if f.Type != link.TypeEnd {
			return false, protocolError(wire.CodeState, "%s answers a RELEASE", f.Type)
		}
		return false, nil
	}
	c := e.calls[slot]
	if f.Req&1 == 0 || c.req.Load() != f.Req {
		return false, protocolError(wire.CodeState, "%s of a request that does not run", f.Type)
	}
	switch f.Type {
	case link.TypeAcquired:
		err = c.acquired.Parse(p)
	case link.TypeTable:
		err = c.table.Parse(p)
	case link.TypeOpened:
		err = c.opened.Parse(p)
	case link.TypeReserved:
		err = c.reserved.Parse(p)
	case link.TypeEnd:
		if err = c.end.Parse(p); err == nil {
			return e.complete(c), nil
		}
	default:
		err = protocolError(wire.CodeState, "%s does not come from a daemon", f.Type)
	}
	if err == nil {
		c.got = f.Type
	}
	return false, err
}

// Ping asks whether the daemon answers.
func (e *Engine) Ping(ctx context.Context) error {
	c, err := e.take(ctx, "ping")
	if err != nil {
		return err
	}
	return simple(ctx, e, c, link.TypePing, link.Empty{})
}
