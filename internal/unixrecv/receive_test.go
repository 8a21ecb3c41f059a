package unixrecv

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(p[0]); _ = unix.Close(p[1]) })
	return p[0], p[1]
}

// Bytes come with their descriptors; those beyond the room are lost, and said to be.
func TestDescriptorsComeWithTheirBytes(t *testing.T) {
	from, to := pair(t)
	r := New(2)
	buf := make([]byte, 100)
	for sent := range 5 {
		if err := unix.Sendmsg(from, []byte("abc"), unix.UnixRights(slices.Repeat([]int{0}, sent)...), nil, 0); err != nil {
			t.Fatal(err)
		}
		n, fds, err := r.Receive(to, buf, nil, 0)
		if string(buf[:n]) != "abc" || len(fds) != min(sent, 2) || (err != nil) != (sent > 2) || sent > 2 && !errors.Is(err, ErrLost) {
			t.Errorf("%d sent: %q, %d came, %v", sent, buf[:n], len(fds), err)
		}
		for _, fd := range fds {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("flags %x, %v", flags, err)
			}
			_ = unix.Close(fd)
		}
	}
	if _, _, err := r.Receive(to, buf, nil, unix.MSG_DONTWAIT); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing there: %v", err)
	}
	_ = unix.Shutdown(from, unix.SHUT_WR)
	if n, _, err := r.Receive(to, buf, nil, 0); n != 0 || err != io.EOF {
		t.Errorf("the end: %d, %v", n, err)
	}
	if _, _, err := r.Receive(-1, buf, nil, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("no descriptor: %v", err)
	}
}

func TestAControlMessageThatMakesNoSense(t *testing.T) {
	for _, size := range []uint64{0, unix.SizeofCmsghdr - 1, 25} {
		oob := make([]byte, 24)
		binary.NativeEndian.PutUint64(oob, size)
		if _, err := appendRights(nil, oob); !errors.Is(err, ErrControl) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	oob := unix.UnixRights(5, 6)
	binary.NativeEndian.PutUint32(oob[12:], unix.SCM_CREDENTIALS)
	if fds, err := appendRights(nil, append(oob, unix.UnixRights(7)...)); err != nil || !slices.Equal(fds, []int{7}) {
		t.Errorf("%v, %v", fds, err)
	}
}
