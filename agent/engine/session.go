package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/internal/invariants"
	"meridian/internal/unixrecv"
	"meridian/wire"
	"meridian/wire/link"
)

// A request's way through a session:
//
//	1 run      reads into buf; the Splitter finds frames           reader
//	2 dispatch parses in place and calls the type's method         reader
//	3 acquire, has, put, ... work on the Store                     reader, or a flight
//	4 answer   appends to out, under wmu
//	5 flush    writes out: the reader when buf is used up, so that answers to
//	           pipelined requests share a system call; a flight at once
//
// Fields without a lock belong to the reader.

// readBuffer is what one read may bring: some hundred ACQUIREs of 16 blocks, or
// none of the largest frames, which the Splitter assembles.
const readBuffer = 64 << 10

// maxCopies is how many PUTs of a session are copied and hashed at the same time, on
// a processor each. An engine's one thread fills the ring at about twice the rate of
// one that copies and hashes.
const maxCopies = 4

// flushAt bounds what waits in out before it is written anyway.
const flushAt = 256 << 10

type session struct {
	srv   *Server
	c     *conn
	pid   int // 0: not visible from here
	uid   uint32
	log   *slog.Logger
	owner blocks.Owner // of what is the session's own: reservations, hold leases, ring
	ctx   context.Context
	end   context.CancelFunc

	place   *place
	split   link.Splitter
	group   *group         // nil before HELLO
	grouped bool           // HELLO has feature GROUP
	peer    blocks.Process // who connected, until the store has it; nil: not known, or it had ended
	unknown bool           // the kernel cannot say who connected
	watched bool           // the store has its process

	receiver *unixrecv.Receiver // of the reader, as the next three
	passed   passed             // with the last bytes that had any
	taken    uint64             // bytes behind HELLO that the splitter took
	begun    uint64             // where the frame at hand begins among them

	in   inbox
	ring []byte // staging: none before the engine needs it, and then never moved
	asks bool   // for its ring: HELLO has feature RING

	wmu      sendLock
	out      []byte              // whole frames, but that the first may have begun
	dead     bool                // the descriptor takes no more bytes
	greeted  bool                // our HELLO, the first frame, is out
	plain    bool                // what follows has no checksums: PLAIN in both HELLOs
	mapped   map[uint32]struct{} // segments whose descriptors were sent
	ringSent uint64              // bytes of the ring that the engine was given a descriptor for

	advice    advice
	spare     frames // of the holder of wmu
	finishing bool   // sendLater runs; under wmu
	finisher  sync.WaitGroup
	loads     loads
	ticket    uint64 // of the last request that fetched, or may have to

	fmu     sync.Mutex
	flights map[uint64]*flight
	fetches int // LOADs that fetch; with flights at most Limits.Reqs
	flown   sync.WaitGroup
	copies  chan struct{} // holds a token for each PUT or FILL that copies
	rooms   reservations
}

// inbox is memory that parsed messages and the store's views reuse.
type inbox struct {
	acquire link.Acquire
	load    link.Load
	has     link.Has
	put     link.Put
	putAt   link.PutAt
	reserve link.Reserve
	fill    link.Fill
	resume  link.Resume
	stored  []link.StoreItem
	release link.Release
	begin   link.Begin
	tokens  link.Tokens
	views   []blocks.View
	keys    []wire.Key
	places  []link.Place
	haves   []link.Have
	copy    copyJob
}

// done is called when the message at hand has been dealt with: who still works for
// it has a copy of what it needs.
func (in *inbox) done() {
	invariants.OverwriteItems(in.acquire.Items)
	invariants.OverwriteItems(in.load.Items)
	invariants.OverwriteItems(in.load.Holders)
	invariants.OverwriteItems(in.has.Items)
	invariants.OverwriteItems(in.put.Items)
	invariants.OverwriteItems(in.putAt.Items)
	invariants.OverwriteItems(in.reserve.Items)
	invariants.OverwriteItems(in.fill.Items)
	invariants.OverwriteItems(in.resume.Prompt)
	invariants.OverwriteItems(in.resume.Decoded)
	invariants.OverwriteItems(in.stored)
	invariants.OverwriteItems(in.release.Leases)
	invariants.OverwriteItems(in.begin.Prompt)
	invariants.OverwriteItems(in.tokens.Tok)
	invariants.OverwriteItems(in.keys)
	invariants.OverwriteItems(in.places)
	invariants.OverwriteItems(in.haves)
}

func newSession(srv *Server, c *conn, pid int, uid uint32) *session {
	s := &session{
		srv:     srv,
		c:       c,
		pid:     max(pid, 0),
		uid:     uid,
		log:     srv.log.With("engine_pid", pid),
		mapped:  make(map[uint32]struct{}),
		flights: make(map[uint64]*flight),
		copies:  make(chan struct{}, min(maxCopies, runtime.GOMAXPROCS(0))),
	}
	s.place = &place{first: s}
	s.wmu.s = s
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// run is the session's reader, from HELLO to the last byte given back.
func (s *session) run() {
	defer s.srv.ended(s)
	err := s.hello()
	if err == nil {
		s.log.Info("engine connected")
		err = s.serve()
	}
	err = s.outcome(err)
	s.passed.close()
	if s.peer != nil {
		_ = s.peer.Close() // nothing was done with it
	}
	s.end()
	s.endLoads(wire.CodeCancelled)
	refused := s.fault(err)
	s.flown.Wait()
	s.srv.leave(s)
	if refused {
		s.linger()
	}
	s.wmu.Lock()
	s.dead = true
	s.wmu.Unlock()
	s.c.shutdown(unix.SHUT_RDWR) // ends the wait of sendLater
	s.finisher.Wait()
	s.c.close()
	var why []any
	if err != nil {
		why = append(why, "reason", err)
	}
	s.log.Info("engine gone", why...)
}

// fault tells the peer why the connection is closed, where that is the peer's
// doing, and half-closes.
func (s *session) fault(err error) bool {
	var fe *link.FrameError
	if !errors.As(err, &fe) {
		return false
	}
	s.srv.refuse(fe.Code, "engine_pid", s.pid, "offset", fe.Offset, "reason", fe.Text)
	s.wmu.Lock()
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeError, Flags: link.FlagCritical}, fe.Message())
	s.flushLocked()
	s.dead = true // ERROR is the last frame of its sender
	s.wmu.Unlock()
	s.c.shutdown(unix.SHUT_WR)
	return true
}

// linger reads on until the peer has closed, or for link.DrainError: a descriptor
// that is closed with bytes unread would make the peer's next write fail before it
// reads ERROR.
func (s *session) linger() {
	end := time.Now().Add(link.DrainError)
	var sink [4096]byte
	for {
		left := time.Until(end)
		if left <= 0 || s.c.receiveTimeout(max(left, time.Millisecond)) != nil {
			return
		}
		if _, err := s.c.read(sink[:]); err != nil {
			return
		}
	}
}

// stop ends the session from outside. The socket ends first: no request is answered
// CANCELLED that the engine has not cancelled.
func (s *session) stop() {
	s.c.shutdown(unix.SHUT_RDWR)
	s.end()
}

// hello exchanges HELLO within link.HelloTimeout.
func (s *session) hello() error {
	end := time.Now().Add(link.HelloTimeout)
	buf := make([]byte, 4096)
	late := &link.FrameError{Code: wire.CodeHelloTimeout, Text: "no complete HELLO in time"}
	var ev link.Event
	for ev.Kind == link.EventNone {
		left := time.Until(end)
		if left <= 0 {
			return late
		}
		if err := s.c.receiveTimeout(max(left, time.Millisecond)); err != nil {
			return err
		}
		// No further than HELLO's own end: what follows belongs to serve.
		n, err := s.c.read(buf[:min(len(buf), s.split.Need())])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return late
		}
		if err != nil {
			return err
		}
		if _, ev, err = s.split.Next(buf[:n]); err != nil {
			return err
		}
	}
	if ev.Kind != link.EventMessage || ev.Frame.Type != link.TypeHello {
		return s.wrong(wire.CodeLinkMagic, "the first frame is no HELLO")
	}
	var theirs link.Hello
	if err := s.parse(&theirs, ev.Payload); err != nil {
		return err
	}
	s.spoke()
	s.asks = theirs.Features&link.FeatureRing != 0
	ours := s.ourHello()
	if _, err := ours.Agree(theirs); err != nil {
		return err
	}
	switch {
	case theirs.Features&link.FeatureLocal == 0:
		return s.wrong(wire.CodeUnsupported, "this socket is for engines: HELLO needs feature LOCAL")
	case theirs.Lane != 0:
		return s.wrong(wire.CodeState, "an engine's session has lane 0 only")
	}
	auth, err := s.join(&theirs)
	if err != nil {
		return err
	}
	ours.Auth = auth
	if err := s.c.receiveTimeout(s.srv.cfg.Limits.FrameTime); err != nil {
		return err
	}
	s.wmu.Lock()
	s.plain = ours.Features&theirs.Features&link.FeaturePlain != 0
	s.advice.ready.Store(true) // what comes from here on goes out behind our HELLO
	s.out = link.AppendMessage(s.out, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical}, ours)
	s.flushLocked()
	s.greeted = true
	s.wmu.Unlock()
	s.split.Plain = s.plain
	if s.srv.draining.Load() { // Drain may have passed by before we greeted
		s.goAway(uint32(link.MaxDeadline.Milliseconds()))
	}
	return nil
}

func (s *session) ourHello() link.Hello {
	cfg := &s.srv.cfg
	h := link.Hello{
		Min: link.Version, Max: link.Version,
		Agent: cfg.Agent, Inc: cfg.Incarnation,
		Features: link.FeatureLocal | link.FeatureRing | link.FeatureGroup | link.FeaturePlain,
		Limits: link.Limits{
			Reqs:          uint32(cfg.Limits.Reqs),
			Items:         uint32(cfg.Limits.Items),
			Frame:         link.MaxControl,
			BytesInFlight: uint32(min(cfg.Limits.StagingBytes, link.MaxBytesInFlight)),
		},
	}
	_, _ = rand.Read(h.Session[:]) // never fails
	_, _ = rand.Read(h.Nonce[:])
	return h
}

// serve reads until the connection ends; a *link.FrameError is the peer's fault.
func (s *session) serve() error {
	buf := make([]byte, readBuffer)
	var began time.Time // the frame of which some has come; zero: none has
	var frame uint64    // where it begins
	for {
		n, err := s.read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if began.IsZero() && errors.Is(err, os.ErrDeadlineExceeded) {
			continue // between two frames an engine may be silent
		}
		// A read waits for FrameTime at most: who sends a byte now and then has twice that.
		if most := s.srv.cfg.Limits.FrameTime; !began.IsZero() && (errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > most) {
			return s.wrong(wire.CodeNoProgress, fmt.Sprintf("of a frame %d bytes have come, and not all of it within %v", s.split.Offset()-s.split.Whole(), most))
		}
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			took, ev, err := s.split.Next(b)
			if err != nil {
				return err
			}
			b = b[took:]
			s.taken += uint64(took)
			if err := s.event(ev); err != nil {
				return err
			}
			s.in.done()
			if ev.Kind != link.EventNone {
				s.frameEnded()
			}
		}
		switch whole := s.split.Whole(); {
		case whole == s.split.Offset():
			began = time.Time{}
		case began.IsZero() || whole != frame:
			began, frame = time.Now(), whole
		}
		invariants.Overwrite(buf[:n])
		s.flush()
	}
}

func (s *session) event(ev link.Event) error {
	if ev.Kind != link.EventNone && !s.seated() {
		s.spoke()
	}
	switch ev.Kind {
	case link.EventNone:
		return nil
	case link.EventSkipped:
		return s.unsupported(ev.Frame)
	case link.EventMessage:
		return s.dispatch(ev.Frame, ev.Payload)
	}
	return s.wrong(wire.CodeFlowViolation, "DATA has no place on an engine's socket")
}

// dispatch handles a control frame.
func (s *session) dispatch(f link.Frame, p []byte) error {
	if f.Type.NeedsGroup() && !s.grouped { // unknown where it was not agreed on
		return s.unsupported(f)
	}
	switch f.Type {
	case link.TypeStanding, link.TypeDeliver: // of agents only: unknown here
		return s.unsupported(f)
	case link.TypeTokens:
		return s.tokens(p)
	case link.TypeCancel:
		return s.cancel(f)
	case link.TypeError:
		return s.peerError(p)
	}
	if f.Req&1 == 0 {
		return s.wrong(wire.CodeState, f.Type.String()+" without an odd request number")
	}
	if s.running(f.Req) { // before anything is done for it
		return s.wrong(wire.CodeState, f.Type.String()+" with the number of a request that runs")
	}
	if f.Type.NeedsGroup() {
		return s.dispatchGrouped(f, p)
	}
	switch f.Type {
	case link.TypeAcquire:
		return s.acquire(f, p)
	case link.TypeRelease:
		return s.release(f, p)
	case link.TypePut:
		return s.put(f, p)
	case link.TypeHas:
		return s.has(f, p)
	case link.TypeRenew:
		return s.renew(f, p)
	case link.TypeBegin:
		return s.begin(f, p)
	case link.TypeFinish:
		return s.finish(f, p)
	case link.TypeOpen:
		return s.open(f, p)
	case link.TypeMap:
		return s.remap(f, p)
	case link.TypePing:
		s.answerEnd(f.Req, link.End{})
		return nil
	case link.TypePull, link.TypePush, link.TypeStat, link.TypeAbort, link.TypeWindow, link.TypeWindowEnd:
		return s.unsupported(f)
	}
	return s.wrong(wire.CodeState, f.Type.String()+" does not come from an engine")
}

// peerError ends the session because the engine says that it must end.
func (s *session) peerError(p []byte) error {
	var x link.Error
	if err := s.parse(&x, p); err != nil {
		return err
	}
	return fmt.Errorf("the engine sent ERROR %s: %s", x.Code.String(), x.Text)
}

// parse sets m from p. The offset of what is wrong with p counts from the lane's
// start, as ERROR says it.
func (s *session) parse(m interface{ Parse([]byte) error }, p []byte) error {
	err := m.Parse(p)
	if err == nil {
		return nil
	}
	var fe *link.FrameError
	if errors.As(err, &fe) {
		fe.Offset += s.split.Offset() - uint64(len(p)) - link.TrailerLen
	}
	return err
}

// wrong is a fault of the peer at the current place of the lane.
func (s *session) wrong(code wire.Code, text string) error {
	return &link.FrameError{Code: code, Offset: s.split.Offset(), Text: text}
}

func (s *session) unsupported(f link.Frame) error {
	if f.Flags&link.FlagCritical != 0 {
		return s.wrong(wire.CodeUnsupported, "critical "+f.Type.String()+" is not spoken here")
	}
	if f.Req&1 == 1 { // another id is not one of an engine's requests
		s.answerEnd(f.Req, link.End{Code: wire.CodeUnsupported, Text: f.Type.String() + " is not spoken on an engine's socket"})
	}
	return nil
}

// admit checks what every request with items has in common.
func (s *session) admit(items int, deadlineMS uint32) error {
	switch most := s.srv.cfg.Limits.Items; {
	case s.srv.draining.Load():
		return errLeaving
	case items > most:
		return fmt.Errorf("%d items, the limit of a request is %d: %w", items, most, wire.CodeTooLarge)
	case deadlineMS == 0:
		return errNoTime
	}
	return nil
}

// refuse answers a request that err refuses as a whole.
func (s *session) refuse(f link.Frame, items int, since time.Time, err error) {
	e := refusal(err)
	s.answerEnd(f.Req, e)
	s.observe(f.Type, items, since, e.Code)
}

// observe tells the observer of a request that has been answered.
func (s *session) observe(t link.Type, items int, since time.Time, code wire.Code) {
	if o := s.srv.cfg.Observer; o != nil {
		o.Request(t, items, time.Since(since), code)
	}
}
