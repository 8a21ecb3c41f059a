package helper

import (
	"bytes"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLine bounds a line of the library's output, in bytes; the rest of it is dropped.
const maxLine = 4 << 10

// output is the standard output of this process, where UCX has its log. It is read here:
// the tables of UCX_PROTO_INFO are used, everything else goes to rest.
type output struct {
	pipe int
	rest io.Writer

	mu   sync.Mutex
	ways *transports
	line []byte
	buf  []byte
}

// captureOutput puts a pipe in the place of the standard output. It comes before the
// library, which keeps what it finds there.
func captureOutput(rest io.Writer) (*output, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	err := unix.SetNonblock(p[0], true)
	if err == nil {
		err = unix.Dup3(p[1], unix.Stdout, 0)
	}
	_ = unix.Close(p[1])
	if err != nil {
		_ = unix.Close(p[0])
		return nil, err
	}
	o := newOutput(p[0], rest)
	go o.follow()
	return o, nil
}

func newOutput(pipe int, rest io.Writer) *output {
	return &output{pipe: pipe, rest: rest, ways: newTransports(), buf: make([]byte, 16<<10)}
}

// follow reads whatever comes, so that a full pipe never holds up the library.
func (o *output) follow() {
	for {
		fds := []unix.PollFd{{Fd: int32(o.pipe), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		if fds[0].Revents&(unix.POLLIN) == 0 && fds[0].Revents != 0 {
			return // the other end is closed
		}
		o.mu.Lock()
		o.read()
		o.mu.Unlock()
	}
}

// read takes what is there. Under mu.
func (o *output) read() {
	for {
		n, err := unix.Read(o.pipe, o.buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return
		}
		o.take(o.buf[:n])
	}
}

func (o *output) take(b []byte) {
	for len(b) > 0 {
		at := bytes.IndexByte(b, '\n')
		part := b
		if at >= 0 {
			part = b[:at]
		}
		o.line = append(o.line, part[:min(len(part), maxLine-len(o.line))]...)
		if at < 0 {
			return
		}
		if b = b[at+1:]; !o.ways.line(string(o.line)) && len(o.line) > 0 {
			_, _ = o.rest.Write(append(o.line, '\n')) // nobody reads it: the daemon is gone
		}
		o.line = o.line[:0]
	}
}

// during calls the library for a peer, and hears what UCX says of the way to it.
func (o *output) during(peer string, f func()) {
	o.mu.Lock()
	o.read()
	o.ways.begin()
	o.mu.Unlock()
	f()
	o.mu.Lock()
	o.read()
	o.ways.end(peer)
	o.mu.Unlock()
}

// of is what is known of the transports of a peer.
func (o *output) of(peer string) uses {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read()
	return o.ways.of(peer)
}

func (o *output) forget(peer string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ways.forget(peer)
}

// words is the last error that UCX told, once.
func (o *output) words() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read()
	said := o.ways.said
	o.ways.said = ""
	return said
}
