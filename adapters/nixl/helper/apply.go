package helper

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"meridian/adapters/nixl/capi"
	"meridian/adapters/nixl/control"
)

// What the daemon may have here at a time.
const (
	MaxWindows = 128
	MaxMoves   = 1024
)

// mapped is a window.
type mapped struct {
	b       []byte
	addr    uint64
	staging bool // of our transfers; else peers use it
}

// move is a transfer under way.
type move struct {
	req  control.Req
	peer string
	t    transfer

	write bool
	bytes uint64
	began time.Time
	pace  *control.Pace
}

// apply does a request, or says why not. An error is the end of the helper: the daemon
// has broken the rules, or does not listen.
func (s *server) apply(m control.Message, fd int) error {
	if fd >= 0 {
		defer func() { _ = unix.Close(fd) }() // a map outlives its descriptor
	}
	if start, ok := m.(*control.Start); ok {
		return s.start(start)
	}
	if ask, ok := m.(*control.GPUs); ok && s.engine == nil {
		return s.listGPUs(ask)
	}
	if s.engine == nil {
		return fmt.Errorf("%T before Start", m)
	}
	switch m := m.(type) {
	case *control.Ping:
		return s.send(&control.Done{Req: m.Req})
	case *control.Map:
		return s.mapWindow(m, fd)
	case *control.Metadata:
		b, err := s.engine.Metadata()
		if err == nil && len(b) > control.MaxMetadata {
			err = fmt.Errorf("metadata of %d bytes, limit %d", len(b), control.MaxMetadata)
		}
		return s.answer(m.Req, err, &control.Blob{Req: m.Req, Blob: b})
	case *control.Load:
		peer, err := s.engine.Load(m.Blob)
		if err == nil && (peer == "" || len(peer) > control.MaxName) {
			err = fmt.Errorf("a name of %d bytes, limit %d", len(peer), control.MaxName)
		}
		return s.answer(m.Req, err, &control.Loaded{Req: m.Req, Peer: peer})
	case *control.Forget:
		delete(s.told, m.Peer)
		delete(s.paces, m.Peer)
		s.out.forget(m.Peer)
		return s.answer(m.Req, s.engine.Forget(m.Peer), &control.Done{Req: m.Req})
	case *control.Notify:
		return s.answer(m.Req, s.engine.Notify(m.Peer, m.Text), &control.Done{Req: m.Req})
	case *control.Move:
		return s.begin(m)
	}
	return fmt.Errorf("%T is not a request", m)
}

func (s *server) start(m *control.Start) error {
	if s.engine != nil {
		return errors.New("a second Start")
	}
	e, answer, stays, err := s.open(m)
	if err != nil {
		return s.send(&control.Failed{Req: m.Req, Stays: stays, Quiet: true, Text: s.why(err)})
	}
	s.engine = e
	return s.send(answer)
}

// listGPUs answers by the driver, which may take its time, or never answer.
func (s *server) listGPUs(m *control.GPUs) error {
	driver, list, err := s.gpus()
	if err != nil {
		return s.send(&control.Failed{Req: m.Req, Quiet: true, Text: s.why(err)})
	}
	return s.send(&control.GPUList{Req: m.Req, Driver: driver, GPUs: list})
}

// answer sends ok, or why not.
func (s *server) answer(req control.Req, err error, ok control.Message) error {
	if err != nil {
		return s.send(&control.Failed{Req: req, Quiet: true, Text: s.why(err)})
	}
	return s.send(ok)
}

// why is an error's text within the limit, with what UCX said of it: the library's
// status tells next to nothing.
func (s *server) why(err error) string {
	text := err.Error()
	if said := s.out.words(); said != "" {
		text += "; UCX said: " + said
	}
	return text[:min(len(text), control.MaxText)]
}

func (s *server) mapWindow(m *control.Map, fd int) error {
	var st unix.Stat_t
	var err error
	switch {
	case s.windows[m.Window] != nil:
		err = fmt.Errorf("window %d is mapped", m.Window)
	case len(s.windows) >= MaxWindows:
		err = fmt.Errorf("%d windows are mapped, limit %d", len(s.windows), MaxWindows)
	default:
		// A window that is shorter than it says would end the process at a touch.
		if err = unix.Fstat(fd, &st); err == nil && (m.Bytes == 0 || m.Bytes > uint64(max(st.Size, 0))) {
			err = fmt.Errorf("window %d has %d bytes, and should have %d", m.Window, st.Size, m.Bytes)
		}
	}
	if err != nil {
		return s.answer(m.Req, err, nil)
	}
	b, err := unix.Mmap(fd, 0, int(m.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return s.answer(m.Req, fmt.Errorf("window %d: %w", m.Window, err), nil)
	}
	_ = unix.Madvise(b, unix.MADV_DONTDUMP) // a tenant's bytes have no place in a core file
	w := &mapped{b: b, staging: m.Staging}
	if w.addr, err = s.engine.Register(b, m.Staging); err != nil {
		_ = unix.Munmap(b) // nobody knows it
		return s.answer(m.Req, err, nil)
	}
	s.windows[m.Window] = w
	return s.send(&control.Mapped{Req: m.Req, Addr: w.addr})
}

// begin begins a transfer whose parts lie wholly in their window.
func (s *server) begin(m *control.Move) error {
	local, remote, err := s.parts(m)
	if err != nil {
		return s.answer(m.Req, err, nil)
	}
	op := capi.Read
	if m.Write {
		op = capi.Write
	}
	var t transfer
	var quiet bool
	began := time.Now()
	s.out.during(m.Peer, func() { t, quiet, err = s.engine.Begin(op, local, remote, m.Peer, m.Notif) })
	if err != nil {
		return errors.Join(s.tell(m.Peer), s.send(&control.Failed{Req: m.Req, Quiet: quiet, Text: s.why(err)}))
	}
	s.moves = append(s.moves, s.under(m, t, began))
	return nil
}

// under is a transfer that is under way now.
func (s *server) under(m *control.Move, t transfer, began time.Time) move {
	paces := s.paces[m.Peer]
	if paces == nil {
		paces = &[2]control.Pace{}
		s.paces[m.Peer] = paces
	}
	one := move{req: m.Req, peer: m.Peer, t: t, write: m.Write, began: began, pace: &paces[0]}
	if m.Write {
		one.pace = &paces[1]
	}
	for i := range m.Parts {
		one.bytes += m.Parts[i].Len
	}
	if takes, known := one.pace.Takes(one.bytes); !one.write || !known || takes < 2*spinTime {
		s.spins = began.Add(spinTime)
	}
	return one
}

// tell says which transports a peer's transfers use, where that is news.
func (s *server) tell(peer string) error {
	u := s.out.of(peer)
	if u == s.told[peer] {
		return nil
	}
	s.told[peer] = u
	return s.send(&control.Uses{Peer: peer, Read: u[read], Write: u[write]})
}

func (s *server) parts(m *control.Move) (local, remote []capi.Span, err error) {
	w := s.windows[m.Window]
	switch {
	case w == nil:
		return nil, nil, fmt.Errorf("window %d is not mapped", m.Window)
	case !w.staging:
		return nil, nil, fmt.Errorf("window %d is for peers, and no staging", m.Window)
	case len(m.Parts) == 0:
		return nil, nil, errors.New("a transfer of nothing")
	case len(s.moves) >= MaxMoves:
		return nil, nil, fmt.Errorf("%d transfers are under way, limit %d", len(s.moves), MaxMoves)
	}
	for _, p := range m.Parts {
		if size := uint64(len(w.b)); p.Len == 0 || p.Off > size || p.Len > size-p.Off || p.Addr+p.Len < p.Addr {
			return nil, nil, fmt.Errorf("%d bytes at %d are not in window %d of %d bytes, or not in a peer at %#x", p.Len, p.Off, m.Window, size, p.Addr)
		}
		local = append(local, capi.Span{Addr: w.addr + p.Off, Len: p.Len})
		remote = append(remote, capi.Span{Addr: p.Addr, Len: p.Len})
	}
	return local, remote, nil
}
