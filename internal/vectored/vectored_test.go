package vectored

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) [2]int {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	return fds
}

// More buffers than a call takes, and empty ones among them, go through in their order;
// then there is nothing, and then an end.
func TestBuffersGoThroughInTheirOrder(t *testing.T) {
	fds := pair(t)
	var in, out Calls
	var bufs [][]byte
	var want []byte
	for i := range 3 * Max {
		b := bytes.Repeat([]byte{byte(i)}, i%3)
		bufs, want = append(bufs, b), append(want, b...)
	}
	left := bufs
	for len(left) > 0 {
		n, err := out.Writev(fds[0], left)
		if err != nil {
			t.Fatal(err)
		}
		for n > 0 || len(left) > 0 && len(left[0]) == 0 {
			k := min(n, len(left[0]))
			if left[0], n = left[0][k:], n-k; len(left[0]) == 0 {
				left = left[1:]
			}
		}
	}
	got := make([]byte, len(want)+1)
	for n := 0; n < len(want); {
		m, err := in.Readv(fds[1], [][]byte{got[n : n+1], nil, got[n+1:]})
		if err != nil || m == 0 {
			t.Fatal(m, err)
		}
		n += m
	}
	if !bytes.Equal(got[:len(want)], want) {
		t.Errorf("% x", got)
	}
	if n, err := in.Readv(fds[1], [][]byte{got}); !errors.Is(err, unix.EAGAIN) || n != 0 {
		t.Errorf("%d, %v where nothing is", n, err)
	}
	if err := unix.Shutdown(fds[0], unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if n, err := in.Readv(fds[1], [][]byte{got}); err != nil || n != 0 {
		t.Errorf("%d, %v at the end", n, err)
	}
}

func TestAFailureIsTheSystems(t *testing.T) {
	var c Calls
	if _, err := c.Writev(-1, [][]byte{{1}}); !errors.Is(err, unix.EBADF) {
		t.Error(err)
	}
	if _, err := c.Readv(-1, [][]byte{{1}}); !errors.Is(err, unix.EBADF) {
		t.Error(err)
	}
}
