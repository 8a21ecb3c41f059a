package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/internal/halfopen"
	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// ErrClosed is returned by Serve after Close.
var ErrClosed = errors.New("engine: server closed")

// acceptPause is how long Serve waits after a connection could not be accepted:
// most likely the process has no descriptor left.
const acceptPause = 50 * time.Millisecond

// goodbyeWait is how long Drain waits for engines that do not take their GOAWAY,
// once nothing is in flight.
const goodbyeWait = 500 * time.Millisecond

// Server serves one socket.
type Server struct {
	cfg     Config
	log     *slog.Logger
	uids    []uint32
	tenants atomic.Pointer[map[string]bool]
	start   time.Time // origin of the schedulers' clock
	l       *listener

	models   atomic.Pointer[scheduler.Models] // instead of cfg.Scheduler's, once set
	draining atomic.Bool
	closing  chan struct{}
	closed   sync.Once
	running  sync.WaitGroup // sessions
	flights  flightCount    // asynchronous requests of all sessions
	reserved atomic.Uint64  // number of the last reservation
	evicted  atomic.Uint64  // blocks of running requests, counted for each

	advice adviceCount // dropped
	waits  *waits      // blocks that LOADs wait for
	asker  *asker      // asks other holders for them

	places halfopen.Table // connections that have opened no namespace

	unknown unknown // models of BEGIN that nobody knows

	mu       sync.Mutex
	sessions map[*session]struct{} // all connections
	groups   map[*group]struct{}   // engines, half-open ones too
	named    map[groupName]*group  // of them that several sessions may share
	seated   int                   // of them that have opened a namespace
	stopped  bool
	gone     scheduler.Stats // of engines that ended, without Phases
	accepted uint64
	refused  uint64
}

// Listen takes the socket's path: a file that a dead daemon left is removed, a
// live daemon's is refused with an *InUseError. Connections wait until Serve.
func Listen(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Limits.fill()
	if cfg.Process == nil {
		cfg.Process = blocks.PeerProcess
	}
	s := &Server{
		cfg:      cfg,
		log:      cfg.Log,
		uids:     cfg.UIDs,
		start:    time.Now(),
		closing:  make(chan struct{}),
		sessions: make(map[*session]struct{}),
		waits:    newWaits(cfg.Store),
		groups:   make(map[*group]struct{}),
		named:    make(map[groupName]*group),
	}
	s.asker = newAsker(cfg.Host, s.closing)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.cfg.Quota == nil {
		s.cfg.Quota = &quota.Book{}
		s.cfg.Quota.SetLimit(quota.HalfOpen, quota.Source, link.HalfOpenPerSource)
	}
	if len(s.uids) == 0 {
		s.uids = []uint32{uint32(os.Geteuid())}
	}
	s.uids = slices.Compact(slices.Sorted(slices.Values(s.uids))) // one that is named twice is one
	s.SetTenants(cfg.Tenants)
	l, err := listen(cfg.Path, socketMode(cfg.UIDs))
	if err != nil {
		return nil, err
	}
	s.l = l
	s.running.Go(s.tellEvictions)
	return s, nil
}

// SetTenants changes the tenants that engines may open. What is open stays open
// until its engine leaves.
func (s *Server) SetTenants(tenants []string) {
	m := make(map[string]bool, len(tenants))
	for _, t := range tenants {
		m[t] = true
	}
	s.tenants.Store(&m)
}

// Path is the socket's.
func (s *Server) Path() string { return s.cfg.Path }

// Serve accepts engines until Close, and then returns ErrClosed.
func (s *Server) Serve() error {
	for {
		c, cred, err := s.l.accept()
		select {
		case <-s.closing:
			if err == nil {
				c.close()
			}
			return ErrClosed
		default:
		}
		if err != nil {
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBADF) {
				return fmt.Errorf("engine: the listening socket is gone: %w", err)
			}
			// Of one connection, or of what the process has left.
			s.log.Warn("cannot accept an engine", "err", err)
			s.pause(acceptPause)
			continue
		}
		s.admit(c, cred)
	}
}

func (s *Server) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.closing:
	}
}

// admit starts a session, or says why not.
func (s *Server) admit(c *conn, cred *unix.Ucred) {
	c.patience = s.cfg.Limits.SendTimeout
	code, text := wire.CodeOK, ""
	switch {
	case !slices.Contains(s.uids, cred.Uid):
		code, text = wire.CodeAuth, fmt.Sprintf("uid %d is not allowed", cred.Uid)
	case s.draining.Load():
		code, text = wire.CodeDraining, "this daemon is leaving"
	}
	ss := newSession(s, c, int(cred.Pid), cred.Uid)
	if code == wire.CodeOK {
		if err := s.enter(ss); err != nil {
			code, text = wire.CodeTooMany, words(err)
		}
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		ss.place.leave()
		c.close()
		return
	}
	if code == wire.CodeOK {
		s.sessions[ss] = struct{}{}
		s.accepted++
		s.running.Add(1)
	}
	s.mu.Unlock()
	if code != wire.CodeOK {
		ss.place.leave()
		// A message that fits the empty send buffer: this cannot block.
		_ = c.write(link.AppendMessage(nil, link.Frame{Type: link.TypeError, Flags: link.FlagCritical}, link.Error{Code: code, Text: text}))
		s.refuse(code, "pid", cred.Pid, "uid", cred.Uid, "reason", text)
		c.close()
		return
	}
	// Now, and not when HELLO has come: until then the number may be another process's.
	var err error
	ss.peer, err = s.cfg.Process(c.fd, ss.pid) // without it there are no hold leases
	ss.unknown = errors.Is(err, unix.ENOPROTOOPT)
	go ss.run()
}

// refuse counts and logs a connection that was ended with ERROR.
func (s *Server) refuse(code wire.Code, args ...any) {
	s.mu.Lock()
	s.refused++
	s.mu.Unlock()
	s.log.Warn("engine refused", append([]any{"code", code.String()}, args...)...)
	if o := s.cfg.Observer; o != nil {
		o.Refused(code)
	}
}

// ended takes a session out.
func (s *Server) ended(ss *session) {
	s.mu.Lock()
	delete(s.sessions, ss)
	s.mu.Unlock()
	s.running.Done()
}

func (s *Server) each(f func(*session)) {
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for ss := range s.sessions {
		all = append(all, ss)
	}
	s.mu.Unlock()
	for _, ss := range all {
		f(ss)
	}
}

// Drain tells every engine by GOAWAY that the daemon leaves, refuses what is new
// with DRAINING, and returns when the requests in flight have ended, or with
// ctx's error. Leases stay valid until Close.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	left := link.MaxDeadline
	if t, ok := ctx.Deadline(); ok {
		left = max(link.MinDeadline, min(left, time.Until(t)))
	}
	told := make(chan struct{})
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil
	}
	s.running.Add(1) // Close ends every session, and so every write
	s.mu.Unlock()
	go func() {
		defer s.running.Done()
		defer close(told)
		var all sync.WaitGroup // at once: an engine that reads nothing holds up no other
		s.each(func(ss *session) { all.Go(func() { ss.goAway(uint32(left.Milliseconds())) }) })
		all.Wait()
	}()
	s.each(func(ss *session) { ss.endLoads(wire.CodeDraining) })
	if err := s.flights.wait(ctx); err != nil {
		return err
	}
	late := time.NewTimer(goodbyeWait)
	defer late.Stop()
	select {
	case <-told:
	case <-late.C: // who does not read by now is not going to
	case <-ctx.Done():
	}
	return nil
}

// Close ends every session, waits until each has given back what it held, and
// removes the socket. It may be called again, and without Serve.
func (s *Server) Close() error {
	s.closed.Do(func() {
		s.draining.Store(true)
		close(s.closing)
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
		s.l.shutdown(unix.SHUT_RDWR)
		s.each(func(ss *session) { ss.stop() })
		s.running.Wait()
		s.asker.stop()
		s.asker.wg.Wait()
		if err := s.l.file.Remove(); err != nil {
			s.log.Warn("engine socket's file is left", "err", err)
		}
		s.l.close()
	})
	return nil
}

// now is the schedulers' clock.
func (s *Server) now() scheduler.Time { return scheduler.Time(time.Since(s.start)) }

// Stats are a server's counts.
type Stats struct {
	Sessions  int    // connected now
	Engines   int    // of one session or more, with a namespace open or not
	Accepted  uint64 // since Listen
	Refused   uint64 // connections ended with ERROR
	InFlight  int    // PUTs and fetches that run
	Evicted   uint64 // blocks of running requests that were evicted, counted for each request, since Listen
	Dropped   Advice // since Listen
	Scheduler scheduler.Stats

	ParkedLoads int    // LOADs that wait for blocks, or may have to
	ParkedItems int    // blocks that they count for
	Waiting     int    // items that are not here yet
	Asking      int    // of them, those that other holders are asked for again
	WaitsWoken  uint64 // items that were published while a LOAD waited for them
	// WaitsExpired are items that did not come by the LOAD's deadline, and WaitsAsked
	// the questions to other holders about items that are waited for.
	WaitsExpired, WaitsAsked uint64
}

// Stats sums all engines, the ended ones too, without stopping them.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Sessions: len(s.sessions), Engines: len(s.groups), Accepted: s.accepted, Refused: s.refused, InFlight: s.flights.now(), Evicted: s.evicted.Load(), Scheduler: s.gone,
		Dropped: Advice{s.advice.phase.Load(), s.advice.phaseAt.Load(), s.advice.evicted.Load()}}
	for g := range s.groups {
		one := g.life.stats()
		st.Scheduler.Add(&one)
		loads, items := g.parking.counts()
		st.ParkedLoads, st.ParkedItems = st.ParkedLoads+loads, st.ParkedItems+items
	}
	st.Waiting, st.Asking = s.waits.waiting(), s.asker.waiting()
	st.WaitsWoken, st.WaitsExpired, st.WaitsAsked = s.waits.woken.Load(), s.waits.expired.Load(), s.asker.asked.Load()
	return st
}

// flightCount counts asynchronous requests and lets Drain wait for none. Unlike a
// WaitGroup it may grow again while somebody waits.
type flightCount struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed at 0; nil: nobody waits
}

func (f *flightCount) add(d int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n += d
	if f.n == 0 && f.zero != nil {
		close(f.zero)
		f.zero = nil
	}
}

func (f *flightCount) now() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *flightCount) wait(ctx context.Context) error {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return nil
	}
	if f.zero == nil {
		f.zero = make(chan struct{})
	}
	zero := f.zero
	f.mu.Unlock()
	select {
	case <-zero:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetModels is for what is learnt of a model after Listen: sessions whose first
// request comes later follow it.
func (s *Server) SetModels(m *scheduler.Models) { s.models.Store(m) }

// schedulerConfig is that of a session's new core.
func (s *Server) schedulerConfig() scheduler.Config {
	c := s.cfg.Scheduler
	if m := s.models.Load(); m != nil {
		c.Models = m
	}
	return c
}
