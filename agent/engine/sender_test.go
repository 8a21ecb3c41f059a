package engine

import (
	"log/slog"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/wire"
	"meridian/wire/link"
)

// pair is a session and the other end of its socket, which takes little.
func pair(t *testing.T) (*session, int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[1]) })
	if err := unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil { // the least there is
		t.Fatal(err)
	}
	srv := &Server{log: slog.New(slog.DiscardHandler)}
	s := newSession(srv, &conn{fd: p[0], patience: DefaultSendTimeout}, 0, 0)
	s.advice.ready.Store(true)
	t.Cleanup(func() {
		s.wmu.Lock()
		s.dead = true
		s.wmu.Unlock()
		s.c.shutdown(unix.SHUT_RDWR)
		s.finisher.Wait()
		s.c.close()
	})
	return s, p[1]
}

// greeted is the splitter of one who has read HELLO.
func greeted(t *testing.T) *link.Splitter {
	t.Helper()
	split := new(link.Splitter)
	b := link.AppendMessage(nil, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical}, link.Hello{Min: 1, Max: 1})
	if n, ev, err := split.Next(b); err != nil || n != len(b) || ev.Kind != link.EventMessage {
		t.Fatalf("HELLO: %d of %d bytes, %v", n, len(b), err)
	}
	return split
}

// An advice of which the socket took a part is completed when the other side reads,
// before anything else, and by nobody who waits. What had not begun is dropped.
func TestAdviceThatHasBegunIsCompleted(t *testing.T) {
	s, fd := pair(t)
	long := link.Evicted{Items: make([]link.EvictedItem, 500)} // of which the socket takes a part
	sent := uint64(0)
	for s.srv.advice.evicted.Load() == 0 {
		advise(s, link.TypeEvicted, long)
		s.push()
		sent++
	}
	s.wmu.Lock()
	begun := len(s.out)
	s.wmu.Unlock()
	if begun == 0 {
		t.Fatal("no frame has begun")
	}
	s.answerEnd(1, link.End{Code: wire.CodeOK})
	done := make(chan struct{})
	go func() { defer close(done); s.flush() }() // waits, as answers do
	split := greeted(t)
	buf := make([]byte, 1000)
	for got := uint64(0); ; {
		n, err := unix.Read(fd, buf)
		if err != nil || n == 0 {
			t.Fatalf("read %d, %v", n, err)
		}
		for b := buf[:n]; len(b) > 0; {
			took, ev, err := split.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[took:]
			switch {
			case ev.Kind == link.EventNone:
			case ev.Frame.Type == link.TypeEvicted:
				got++
			case ev.Frame.Type == link.TypeEnd:
				<-done
				if dropped := s.srv.advice.evicted.Load(); got+dropped != sent || got == 0 {
					t.Errorf("%d came and %d were dropped, of %d", got, dropped, sent)
				}
				return
			}
		}
	}
}

// The same without an answer behind it: somebody sees to the rest.
func TestTheRestOfAdviceNeedsNoAnswer(t *testing.T) {
	s, fd := pair(t)
	advise(s, link.TypeEvicted, link.Evicted{Items: make([]link.EvictedItem, 1500)})
	s.push()
	split := greeted(t)
	buf := make([]byte, 1000)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil || n == 0 {
			t.Fatalf("read %d, %v", n, err)
		}
		for b := buf[:n]; len(b) > 0; {
			took, ev, err := split.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			if b = b[took:]; ev.Kind == link.EventMessage {
				return
			}
		}
	}
}

// A holder of the lock who waits for the socket keeps nobody waiting: advice that comes
// meanwhile is dropped at once.
func TestAdviceIsDroppedWhileAnAnswerWaits(t *testing.T) {
	s, fd := pair(t)
	for range 100 {
		s.answerEnd(1, link.End{Text: string(make([]byte, 200))})
	}
	done := make(chan struct{})
	go func() { defer close(done); s.flush() }()
	for !s.advice.full.Load() {
		runtime.Gosched()
	}
	for range 3 {
		advise(s, link.TypePhase, link.Phase{Req: 1})
		s.push()
	}
	if got := s.srv.advice.phase.Load(); got != 3 {
		t.Errorf("%d dropped, want 3", got)
	}
	go func() {
		buf := make([]byte, 64<<10)
		for n := 1; n > 0; {
			n, _ = unix.Read(fd, buf) // to the end, or what ends the test
		}
	}()
	<-done
}
