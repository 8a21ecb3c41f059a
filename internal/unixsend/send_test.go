package unixsend

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a kernel whose time passes only in wait.
type socket struct {
	clock time.Time
	room  int           // bytes that send takes
	reads int           // bytes that come free in each wait
	every time.Duration // how long a wait lasts at most; 0: to its end
	took  []byte
	oobs  int
	waits []time.Duration
}

func (s *socket) now() time.Time { return s.clock }

func (s *socket) send(_ int, b, oob []byte) (int, error) {
	if s.room == 0 {
		return 0, unix.EAGAIN
	}
	n := min(len(b), s.room)
	s.took, s.room = append(s.took, b[:n]...), s.room-n
	if len(oob) > 0 {
		s.oobs++
	}
	return n, nil
}

func (s *socket) wait(_ int, d time.Duration) error {
	s.waits = append(s.waits, d)
	if s.every > 0 {
		d = min(d, s.every)
	}
	s.clock, s.room = s.clock.Add(d), s.room+s.reads
	return unix.EINTR
}

// The limit counts from the first moment without room to the last byte: bytes that
// were taken, and signals, begin no new one.
func TestOneLimitIsForAllTheBytes(t *testing.T) {
	const limit = 5 * time.Second
	for _, c := range []struct {
		name string
		sock socket
	}{
		{"nothing is read", socket{room: 10}},
		{"signals interrupt", socket{room: 10, every: time.Second}},
		{"a byte is read each second", socket{room: 10, reads: 1, every: time.Second}},
		{"the socket is full from the start", socket{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.sock
			s.clock = time.Unix(100, 0)
			err := all(&s, 3, make([]byte, 1000), nil, limit)
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if d := s.clock.Sub(time.Unix(100, 0)); d != limit {
				t.Errorf("gave up after %v, the limit is %v (waits of %v)", d, limit, s.waits)
			}
		})
	}
}

func TestAllBytesArriveOnceAndInOrder(t *testing.T) {
	want := make([]byte, 1000)
	for i := range want {
		want[i] = byte(i * 7)
	}
	s := socket{room: 1, reads: 93, every: time.Millisecond, clock: time.Unix(100, 0)}
	if err := all(&s, 3, want, []int{1, 2}, time.Second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.took, want) {
		t.Error("the bytes are others")
	}
	if s.oobs != 1 {
		t.Errorf("descriptors travelled %d times", s.oobs)
	}
}

func TestASocketThatIsGoneIsAnError(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if err := Send(fds[0], []byte("abc"), []int{fds[0]}, time.Minute); err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[1])
	if err := Send(fds[0], []byte("abc"), nil, time.Minute); !errors.Is(err, unix.EPIPE) {
		t.Errorf("got %v", err)
	}
}

func TestSendAllocatesNothing(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	b, got := make([]byte, 100), make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		if err := Send(fds[0], b, nil, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Read(fds[1], got); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
