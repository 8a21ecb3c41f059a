package linkbench

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// echo is the bare socket round trip that the mapped read is compared with: a
// blocking Unix socket on both sides that sends as many bytes as an ACQUIRE of
// the same batch has, and gets as many as its answer has.
type echo struct{ fd int }

// The sizes of the messages of a batch of 16: ACQUIRE with a RELEASE in front,
// and ACQUIRED with END.
const (
	echoAsk    = 1024
	echoAnswer = 1536
)

func listenEcho(path string) (*echo, error) {
	_ = os.Remove(path)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, 4); err != nil {
		return nil, err
	}
	go func() {
		for {
			c, _, err := unix.Accept(fd)
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = unix.Close(c) }()
				in, out := make([]byte, echoAsk), make([]byte, echoAnswer)
				for readAll(c, in) == nil {
					if _, err := unix.Write(c, out); err != nil {
						return
					}
				}
			}()
		}
	}()
	return &echo{fd}, nil
}

func (e *echo) close() {
	_ = unix.Shutdown(e.fd, unix.SHUT_RDWR)
	_ = unix.Close(e.fd)
}

func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
		b = b[n:]
	}
	return nil
}

// roundTrips measures round trips for d.
func roundTrips(path string, d time.Duration) ([]time.Duration, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	ask, got := make([]byte, echoAsk), make([]byte, echoAnswer)
	var out []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end); {
		began := time.Now()
		if _, err := unix.Write(fd, ask); err != nil {
			return nil, err
		}
		if err := readAll(fd, got); err != nil {
			return nil, err
		}
		out = append(out, time.Since(began))
	}
	return out, nil
}
