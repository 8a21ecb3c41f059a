package helper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/adapters/nixl/capi"
	"meridian/adapters/nixl/control"
)

// stub is an engine whose peers are "a" and "b", and which checks what it is given.
type stub struct {
	windows []capi.Span
	wrong   error
	notifs  []capi.Notif // that are to be taken
}

func (s *stub) Register(b []byte, staging bool) (uint64, error) {
	w := capi.Span{Addr: uint64(len(s.windows)+1) << 32, Len: uint64(len(b))}
	s.windows = append(s.windows, w)
	return w.Addr, nil
}
func (s *stub) Metadata() ([]byte, error)          { return []byte("blob"), nil }
func (s *stub) Load(b []byte) (string, error)      { return string(b), nil }
func (s *stub) Forget(peer string) error           { return nil }
func (s *stub) Notify(peer string, b []byte) error { return nil }
func (s *stub) Take(f func(capi.Notif)) error {
	for _, n := range s.notifs {
		f(n)
	}
	s.notifs = nil
	return nil
}

func (s *stub) Begin(_ capi.Op, local, remote []capi.Span, peer string, _ []byte) (transfer, bool, error) {
	for i, l := range local {
		inside := slices.ContainsFunc(s.windows, func(w capi.Span) bool {
			return l.Addr >= w.Addr && l.Addr-w.Addr <= w.Len && l.Len <= w.Len-(l.Addr-w.Addr)
		})
		if !inside || l.Len == 0 || remote[i].Len != l.Len {
			s.wrong = fmt.Errorf("a transfer of %+v to %+v", l, remote[i])
		}
	}
	if peer != "a" {
		return nil, true, errors.New("unknown peer")
	}
	return done{}, false, nil
}

type done struct{}

func (done) Poll() (bool, error) { return true, nil }
func (done) Release() error      { return nil }

// newStubbed is a server without a socket; it keeps what it says.
func newStubbed() (s *server, e *stub, said *[]control.Message) {
	said, e = new([]control.Message), &stub{}
	s = newServer(func(m control.Message) error {
		*said = append(*said, m)
		return nil
	}, newOutput(-1, io.Discard))
	s.open = func(m *control.Start) (engine, *control.Started, bool, error) {
		return e, &control.Started{Req: m.Req, Library: "stub"}, false, nil
	}
	return s, e, said
}

func window(t testing.TB, n int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("window", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestARequestThatCannotBeRightIsRefusedAndChangesNothing(t *testing.T) {
	s, e, said := newStubbed()
	do := func(m control.Message, fd int) control.Message {
		t.Helper()
		*said = nil
		if err := s.apply(m, fd); err != nil {
			t.Fatal(err)
		}
		if len(*said) == 0 {
			return nil
		}
		return (*said)[0]
	}
	do(&control.Start{Req: 1, Agent: "x", Backend: "y"}, -1)
	if _, ok := do(&control.Map{Req: 2, Window: 1, Bytes: 8192, Staging: true}, window(t, 8192)).(*control.Mapped); !ok {
		t.Fatal("the window is not mapped")
	}
	defer func() { _ = unix.Munmap(s.windows[1].b) }()
	part := func(off, addr, n uint64) []control.Part {
		return []control.Part{{Off: 0, Addr: 1, Len: 1}, {Off: off, Addr: addr, Len: n}}
	}
	for name, c := range map[string]struct {
		m  control.Message
		fd int
	}{
		"a number that is taken":  {&control.Map{Window: 1, Bytes: 8192}, window(t, 8192)},
		"a window that is short":  {&control.Map{Window: 2, Bytes: 8193}, window(t, 8192)},
		"a window of nothing":     {&control.Map{Window: 2}, window(t, 8192)},
		"no window":               {&control.Move{Window: 2, Peer: "a", Parts: part(0, 1, 1)}, -1},
		"no parts":                {&control.Move{Window: 1, Peer: "a"}, -1},
		"a part of nothing":       {&control.Move{Window: 1, Peer: "a", Parts: part(0, 1, 0)}, -1},
		"beyond the end":          {&control.Move{Window: 1, Peer: "a", Parts: part(8192, 1, 1)}, -1},
		"over the end":            {&control.Move{Window: 1, Peer: "a", Parts: part(8000, 1, 193)}, -1},
		"an offset that wraps":    {&control.Move{Window: 1, Peer: "a", Parts: part(^uint64(0), 1, 2)}, -1},
		"an address that wraps":   {&control.Move{Window: 1, Peer: "a", Parts: part(0, ^uint64(0), 2)}, -1},
		"a peer nobody has heard": {&control.Move{Window: 1, Peer: "z", Parts: part(0, 1, 1)}, -1},
	} {
		if m, ok := do(c.m, c.fd).(*control.Failed); !ok || !m.Quiet || m.Text == "" {
			t.Errorf("%s: %#v", name, m)
		}
	}
	if m, ok := do(&control.Map{Window: 3, Bytes: 4096}, window(t, 4096)).(*control.Mapped); !ok {
		t.Fatalf("a window for peers: %#v", m)
	}
	defer func() { _ = unix.Munmap(s.windows[3].b) }()
	if m, ok := do(&control.Move{Window: 3, Peer: "a", Parts: part(0, 1, 1)}, -1).(*control.Failed); !ok || !m.Quiet || !strings.Contains(m.Text, "no staging") {
		t.Errorf("a transfer out of a window for peers: %#v", m)
	}
	if e.wrong != nil || len(s.moves) != 0 || len(s.windows) != 2 {
		t.Errorf("%v, %d transfers, %d windows", e.wrong, len(s.moves), len(s.windows))
	}
	for range MaxMoves {
		do(&control.Move{Window: 1, Peer: "a", Parts: part(0, 1, 1)}, -1)
	}
	if m, ok := do(&control.Move{Window: 1, Peer: "a", Parts: part(0, 1, 1)}, -1).(*control.Failed); !ok || !strings.Contains(m.Text, "limit") {
		t.Errorf("one too many: %#v", m)
	}
	*said = nil
	if did, err := s.poll(); !did || err != nil || len(*said) != MaxMoves || len(s.moves) != 0 {
		t.Errorf("%v, %v, %d answers, %d transfers are left", did, err, len(*said), len(s.moves))
	}
}

func TestADaemonThatBreaksTheRulesIsTheEnd(t *testing.T) {
	s, _, _ := newStubbed()
	if err := s.apply(&control.Ping{}, -1); err == nil {
		t.Error("a request before Start was done")
	}
	start := &control.Start{Agent: "x", Backend: "y"}
	if err := errors.Join(s.apply(start, -1)); err != nil {
		t.Fatal(err)
	}
	for _, m := range []control.Message{start, &control.Done{}, &control.Notified{Peer: "p"}} {
		if err := s.apply(m, -1); err == nil {
			t.Errorf("%T was taken", m)
		}
	}
}

func TestADescriptorIsClosedWhateverCameWithIt(t *testing.T) {
	s, _, _ := newStubbed()
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := open()
	for _, m := range []control.Message{&control.Ping{}, &control.Start{Agent: "x", Backend: "y"}, &control.Map{Window: 1, Bytes: 1 << 40}, &control.Map{Window: 1, Bytes: 4096}} {
		_ = s.apply(m, window(t, 4096))
	}
	defer func() { _ = unix.Munmap(s.windows[1].b) }()
	if after := open(); after != before {
		t.Errorf("%d descriptors were open, and now %d", before, after)
	}
}

// Whatever the daemon sends, the library is asked only for what lies in a window.
func FuzzApply(f *testing.F) {
	for _, list := range [][]control.Message{
		{&control.Move{Window: 1, Peer: "a", Parts: []control.Part{{Off: 4000, Addr: 1, Len: 96}}}, &control.Ping{}},
		{&control.Load{Blob: []byte("a")}, &control.Forget{Peer: "a"}, &control.Notify{Peer: "a", Text: []byte("x")}},
		{&control.Metadata{}, &control.Done{}},
	} {
		var b []byte
		for _, m := range list {
			frame, err := control.Append(nil, m)
			if err != nil {
				f.Fatal(err)
			}
			b = append(append(b, byte(len(frame)-4)), frame[4:]...)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, e, said := newStubbed()
		if err := s.apply(&control.Start{Agent: "x", Backend: "y"}, -1); err != nil {
			t.Fatal(err)
		}
		s.windows[1] = &mapped{b: make([]byte, 4096), addr: 1 << 32, staging: true}
		e.windows = append(e.windows, capi.Span{Addr: 1 << 32, Len: 4096})
		asked := 1
		for len(b) > 0 {
			n := min(int(b[0]), len(b)-1)
			m, err := control.Parse(b[1 : 1+n])
			b = b[1+n:]
			if _, window := m.(*control.Map); err != nil || window {
				continue
			}
			if s.apply(m, -1) != nil {
				break
			}
			asked++
		}
		if _, err := s.poll(); err != nil || e.wrong != nil || len(s.moves) > 0 {
			t.Error(err, e.wrong, len(s.moves))
		}
		if len(*said) != asked {
			t.Errorf("%d requests, %d answers", asked, len(*said))
		}
	})
}

func TestTheGPUsAreAskedForBeforeStartOnly(t *testing.T) {
	s, _, said := newStubbed()
	s.gpus = func() (string, []control.GPU, error) { return "570.1", []control.GPU{{Name: "H200"}}, nil }
	if err := s.apply(&control.GPUs{Req: 1}, -1); err != nil {
		t.Fatal(err)
	}
	if list, ok := (*said)[0].(*control.GPUList); !ok || list.Req != 1 || list.Driver != "570.1" || len(list.GPUs) != 1 {
		t.Errorf("%#v", (*said)[0])
	}
	s.gpus = func() (string, []control.GPU, error) { return "", nil, errors.New("not built in") }
	if err := s.apply(&control.GPUs{Req: 2}, -1); err != nil {
		t.Fatal(err)
	}
	if no, ok := (*said)[1].(*control.Failed); !ok || no.Req != 2 || no.Text != "not built in" {
		t.Errorf("%#v", (*said)[1])
	}
	if err := s.apply(&control.Start{Req: 3, Agent: "a", Backend: "UCX"}, -1); err != nil {
		t.Fatal(err)
	}
	if err := s.apply(&control.GPUs{Req: 4}, -1); err == nil || len(*said) != 3 {
		t.Errorf("a helper that serves asked the driver: %v, %#v", err, *said)
	}
}

// After the last transfer it looks for the next request without sleeping, and then sleeps; after
// looks that found nothing it sleeps at once.
func TestTheLoopLooksForTheNextRequestAndThenSleeps(t *testing.T) {
	s, e, _ := newStubbed()
	s.engine = e
	s.windows[1] = &mapped{b: make([]byte, 4096), addr: 1 << 32, staging: true}
	e.windows = append(e.windows, capi.Span{Addr: 1 << 32, Len: 4096})
	ask := &control.Move{Window: 1, Peer: "a", Parts: []control.Part{{Addr: 1, Len: 1}}}
	rounds, looked, atOnce, looks := 0, 0, 0, 0
	moving := false
	err := s.loop(func(wait time.Duration) (control.Message, int, error) {
		switch {
		case wait == 0:
			looks++
			return nil, -1, nil
		case wait != notifEvery:
			t.Errorf("it waits for %v", wait)
		case moving: // it sleeps after a transfer
			rounds, moving = rounds+1, false
			if looks > 1 { // one there is always: the wait of a poll
				looked++
			} else {
				atOnce++
			}
			looks = 0
		}
		if rounds == 200 {
			return nil, -1, io.EOF
		}
		if looks == 0 {
			moving = true
			return ask, -1, nil
		}
		return nil, -1, nil
	})
	if err != io.EOF || looked < 3 || looked > 200/8 || looked+atOnce != 200 {
		t.Errorf("%v: %d looks, and slept at once %d times", err, looked, atOnce)
	}
}

// Where nothing has come for a time, notifications are looked for less often, and a sign of
// life changes nothing; what comes from a peer or the daemon does.
func TestAnIdleLoopSeldomWakes(t *testing.T) {
	s, e, _ := newStubbed()
	s.engine, s.busy = e, time.Time{}
	var waits []time.Duration
	err := s.loop(func(wait time.Duration) (control.Message, int, error) {
		waits = append(waits, wait)
		switch len(waits) {
		case 1:
			return &control.Ping{}, -1, nil
		case 2:
			e.notifs = []capi.Notif{{From: "a", Text: []byte("x")}}
			time.Sleep(idleEvery) // the next look is due
		case 4:
			s.busy = s.busy.Add(-2 * idleAfter)
		case 5:
			return &control.Move{Window: 9, Peer: "a", Parts: []control.Part{{Len: 1}}}, -1, nil
		case 6:
			return nil, -1, io.EOF
		}
		return nil, -1, nil
	})
	if want := []time.Duration{idleEvery, idleEvery, idleEvery, notifEvery, idleEvery, notifEvery}; err != io.EOF || !slices.Equal(waits, want) {
		t.Errorf("%v: it waits for %v, want %v", err, waits, want)
	}
}

// never is a transfer that does not end.
type never struct{ done }

func (never) Poll() (bool, error) { return false, nil }

// A read, and a write that should be short, is polled without a pause at first; a write that
// should not is polled with pauses from its begin.
func TestTheLoopPausesWhereATransferTakesItsTime(t *testing.T) {
	s, _, _ := newStubbed()
	read := &control.Move{Peer: "a", Parts: []control.Part{{Len: 1 << 20}}}
	write := *read
	write.Write = true
	now := time.Now()
	begin := func(m *control.Move, what string, want time.Time) move {
		t.Helper()
		now = now.Add(time.Second)
		one := s.under(m, never{}, now)
		if want.IsZero() {
			want = now.Add(spinTime)
		}
		if s.spins != want || one.bytes != 1<<20 || one.write != m.Write {
			t.Errorf("%s is polled without a pause for %v, want %v: %+v", what, s.spins.Sub(now), want.Sub(now), one)
		}
		return one
	}
	begin(&write, "a write of which nobody knows how long it takes", time.Time{})
	s.paces["a"][1].Took(1<<20, time.Second)
	begin(&write, "a write of a second", s.spins)
	s.paces["a"][0].Took(1<<20, time.Second)
	reading := begin(read, "a read of a second", time.Time{})
	if s.moves = []move{reading}; s.pause() != readPause {
		t.Errorf("reads have a pause of %v", s.pause())
	}
	for range 100 {
		s.paces["a"][1].Took(1<<20, spinTime)
	}
	if s.moves = append(s.moves, begin(&write, "a short write", time.Time{})); s.pause() != writePause {
		t.Errorf("writes have a pause of %v", s.pause())
	}
}
