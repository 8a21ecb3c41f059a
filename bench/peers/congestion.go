package peers

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"
)

// CongestionInUse asks the two ends of a new loopback connection which
// congestion control they have: what a sysctl says need not hold, since a route
// can name another one.
func CongestionInUse() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	s, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	near, err := congestionOf(c)
	if err != nil {
		return "", err
	}
	far, err := congestionOf(s)
	if err != nil || near == far {
		return near, err
	}
	return "", fmt.Errorf("a connection's ends have two congestion controls, %s and %s", near, far)
}

func congestionOf(c net.Conn) (string, error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var name string
	var inner error
	err = raw.Control(func(fd uintptr) {
		name, inner = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	name, _, _ = strings.Cut(name, "\x00")
	return name, errors.Join(err, inner)
}
