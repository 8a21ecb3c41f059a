package evloop

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxEvents = 64
	tick      = 50 * time.Millisecond // how exactly deadlines are kept
)

// What epoll tells, of a connection that waits to read and one that waits to write.
const (
	over     = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	readable = unix.EPOLLIN | over
	writable = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
)

// loop is an epoll instance and the goroutine that waits for it.
type loop struct {
	ep, bell int // epoll, and an eventfd in it
	done     chan struct{}
	conns    atomic.Int64 // that were given to it

	mu     sync.Mutex
	in     []*Conn // that go on: new ones, and those that come back
	closed bool

	// Of the goroutine.
	served map[int32]*Conn
	again  []*Conn // that yielded without waiting
	timed  int     // that wait with a deadline
	looked time.Time
	ends   bool // it was closed
}

func newLoop() (*loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(ep)
		return nil, os.NewSyscallError("eventfd", err)
	}
	l := &loop{ep: ep, bell: bell, done: make(chan struct{}), served: map[int32]*Conn{}}
	if err := l.add(bell, unix.EPOLLIN); err != nil {
		_, _ = unix.Close(ep), unix.Close(bell)
		return nil, err
	}
	go l.run()
	return l, nil
}

func (l *loop) add(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// enter has a connection go on in the loop.
func (l *loop) enter(c *Conn) {
	l.mu.Lock()
	l.in = append(l.in, c)
	first := len(l.in) == 1
	l.mu.Unlock()
	if first {
		l.ring()
	}
}

func (l *loop) ring() {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	_, _ = unix.Write(l.bell, one) // it can only be full, and is heard then
}

func (l *loop) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.ring()
	<-l.done
	_, _ = unix.Close(l.ep), unix.Close(l.bell)
}

func (l *loop) run() {
	defer close(l.done)
	var events [maxEvents]unix.EpollEvent
	for {
		n, err := unix.EpollWait(l.ep, events[:], l.patience())
		if err != nil && err != unix.EINTR {
			panic(fmt.Sprintf("evloop: epoll_wait: %v", err)) // the loop's own descriptor is wrong
		}
		rung := false
		for _, e := range events[:max(n, 0)] {
			if int(e.Fd) == l.bell {
				rung = true
			} else if c := l.served[e.Fd]; c != nil {
				l.tell(c, e.Events)
			}
		}
		if rung {
			l.hear()
		}
		again := l.again
		l.again = nil
		for _, c := range again {
			l.resume(c)
		}
		l.expire()
		if l.ends && len(l.served) == 0 {
			return
		}
	}
}

// patience is for how long to wait, in milliseconds; −1: for as long as it takes.
func (l *loop) patience() int {
	switch {
	case len(l.again) > 0:
		return 0
	case l.timed > 0:
		return int(tick / time.Millisecond)
	}
	return -1
}

// tell takes note of what epoll says of a connection, once for each change, and has it go
// on if it waits for that.
func (l *loop) tell(c *Conn, events uint32) {
	if events&readable != 0 {
		c.drained = false
	}
	c.over = c.over || events&over != 0
	if c.waits&events != 0 {
		l.resume(c)
	}
}

// hear lets in who rang.
func (l *loop) hear() {
	var b [8]byte
	_, _ = unix.Read(l.bell, b[:])
	l.mu.Lock()
	in := l.in
	l.in, l.ends = nil, l.closed
	l.mu.Unlock()
	for _, c := range in {
		if !c.added {
			if err := l.add(c.fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET); err != nil {
				c.failed = err // each wait tells it
			}
			c.added, l.served[int32(c.fd)] = true, c
		}
		l.resume(c)
	}
}

// resume has a connection go on until it yields.
func (l *loop) resume(c *Conn) {
	if c.timed {
		c.timed = false
		l.timed--
	}
	c.waits, c.left = 0, turn
	w, ok := c.next()
	if !ok {
		delete(l.served, int32(c.fd)) // before the number is another one's
		c.end()
		return
	}
	switch w {
	case toRead:
		c.waits = readable
	case toWrite:
		c.waits = writable
	case toYield:
		l.again = append(l.again, c)
		return
	case toLeave:
		go c.outside()
		return
	}
	if !c.until.IsZero() {
		c.timed = true
		l.timed++
	}
}

// expire has those go on whose deadlines have passed.
func (l *loop) expire() {
	if l.timed == 0 {
		return
	}
	now := time.Now()
	if now.Sub(l.looked) < tick {
		return
	}
	l.looked = now
	for _, c := range l.served {
		if c.timed && !now.Before(c.until) {
			c.late = true
			l.resume(c)
		}
	}
}
