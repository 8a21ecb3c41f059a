package door

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A peer that takes nothing has little of this host's memory, and none once its
// connection has ended.
func TestWhatAPeerDoesNotTakeIsBoundedAndDropped(t *testing.T) {
	held, dropped := make(chan int, 2), make(chan struct{})
	d := New(Config{
		Refused: func(_ string, err error) { t.Error(err) },
		Admit:   func(netip.Addr) (string, error) { return "", nil },
		Serve: func(c *Conn) {
			if _, err := c.Read(make([]byte, 1)); err != nil { // the peer is there
				t.Error(err)
			}
			control(c.Conn, func(fd int) {
				limit, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
				for b := make([]byte, 64<<10); err == nil; { // the socket does not wait
					_, err = unix.Write(fd, b)
				}
				if !errors.Is(err, unix.EAGAIN) {
					t.Error(err)
				}
				n, _ := unix.IoctlGetInt(fd, unix.SIOCOUTQNSD)
				held <- limit
				held <- n
			})
			c.DropUnsent()
			close(dropped)
		},
	})
	defer d.Close()
	at, err := d.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}}
	c, err := dialer.DialContext(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte{7}); err != nil {
		t.Fatal(err)
	}
	if limit, n := <-held, <-held; limit != MaxUnsent || n == 0 || n > 2*MaxUnsent {
		t.Errorf("%d bytes are unsent, limit %d", n, limit)
	}
	<-dropped
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection's end: %v", err)
	}
}
