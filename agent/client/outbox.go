package client

import (
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/invariants"
	"meridian/internal/unixsend"
	"meridian/wire"
	"meridian/wire/link"
)

// Nobody waits for the socket with wmu: an engine's step must not be held up by a
// daemon that does not read. A frame's way:
//
//	1 it is appended to out, under wmu
//	2 flush offers all of out to the socket, without waiting    its sender
//	3 push sends the rest when there is room                     a goroutine, while there is a rest
//
// Frames keep their order, and one whose first byte is out is completed before
// another begins, whoever sends. What may wait in out is bounded: advice is dropped
// above maxAdvice, a request that nobody waits for is refused above maxQueue, and a
// sender that may wait waits, without wmu, until out is shorter.

const (
	maxAdvice = 256 << 10 // bytes in out above which TOKENS is dropped: some hundred steps
	maxQueue  = 4 << 20   // bytes in out above which no request is added
)

// pushPause is how long push waits for room before it looks whether a request has
// waited for too long.
const pushPause = 250 * time.Millisecond

// Dropped is how many calls of Tokens the daemon did not get: its socket took no
// more, as that of a daemon that is stopped. What the daemon knows of a request is
// then behind; it counts what comes.
func (e *Engine) Dropped() uint64 { return e.dropped.Load() }

// flush gives the socket what it takes of out, without waiting. wmu is held.
func (e *Engine) flush() {
	n, err := unixsend.Offer(e.sock.fd, e.out)
	if err != nil {
		// The reader knows better why: it has, or will get, the daemon's ERROR or
		// the end of the stream.
		e.sock.shutdown()
		n = len(e.out)
	}
	e.taken(n)
	if len(e.out) > 0 && !e.pushing {
		e.pushing = true
		e.pushers.Go(e.push)
	}
}

// taken takes the first n bytes out of out. wmu is held.
func (e *Engine) taken(n int) {
	left := copy(e.out, e.out[n:])
	invariants.Overwrite(e.out[left:])
	e.out = e.out[:left]
	e.due.take(n)
	if n > 0 && e.shorter != nil {
		close(e.shorter)
		e.shorter = nil
	}
}

// due is how long the daemon has left to take bytes that a caller waits for. Advice,
// and requests of async, have all the time there is.
type due struct {
	gone  uint64    // bytes of out that were taken, ever
	since time.Time // when the wait for upto began; zero: nobody waits
	upto  uint64
	last  uint64 // a later sender waits up to here
}

// wait notes that somebody waits for the last of n bytes in out.
func (d *due) wait(n int) {
	if n == 0 {
		return
	}
	d.last = d.gone + uint64(n)
	if d.since.IsZero() {
		d.since, d.upto = time.Now(), d.last
	}
}

func (d *due) take(n int) {
	if d.gone += uint64(n); d.since.IsZero() || d.gone < d.upto {
		return
	}
	d.since = time.Time{}
	if d.last > d.gone {
		d.since, d.upto = time.Now(), d.last
	}
}

func (d *due) late() bool { return !d.since.IsZero() && time.Since(d.since) > sendTimeout }

// push sends what is left in out. It ends with it.
func (e *Engine) push() {
	for {
		over := e.sock.writable(pushPause)
		e.wmu.Lock()
		e.flush()
		if e.due.late() {
			e.sock.shutdown()
			over = true
		}
		if over {
			e.taken(len(e.out))
		}
		if len(e.out) == 0 {
			e.pushing = false
			e.wmu.Unlock()
			return
		}
		e.wmu.Unlock()
	}
}

// hasRoom says whether a request may be added to out, and otherwise gives what is
// closed when that may have changed. wmu is held.
func (e *Engine) hasRoom() (ok bool, wake <-chan struct{}) {
	if len(e.out) <= maxQueue {
		return true, nil
	}
	if e.shorter == nil {
		e.shorter = make(chan struct{})
	}
	return false, e.shorter
}

// lockForRequest takes wmu for a sender that may wait until there is room in out. With
// an error it has not taken it: the connection is over.
func (e *Engine) lockForRequest() error {
	for {
		e.wmu.Lock()
		if e.err != nil {
			err := e.err
			e.wmu.Unlock()
			return err
		}
		ok, wake := e.hasRoom()
		if ok {
			return nil
		}
		e.due.wait(len(e.out))
		e.wmu.Unlock()
		select {
		case <-wake:
		case <-e.gone:
		}
	}
}

// async sends a request that nobody waits for, and does not wait itself: BUSY where
// all calls are taken, or more waits for the socket than may. The channel gets the
// error of its END, nil for OK, or that of the connection.
func async[M link.Message](e *Engine, op string, t link.Type, m M) (<-chan error, error) {
	var c *call
	select {
	case c = <-e.free:
	default:
		if err := e.Err(); err != nil {
			return nil, err
		}
		return nil, &RequestError{Op: op, Code: wire.CodeBusy, Text: "the daemon has not answered as many requests as it takes"}
	}
	c.begin(op)
	told := make(chan error, 1)
	e.wmu.Lock()
	defer e.wmu.Unlock()
	ok, _ := e.hasRoom()
	if e.err != nil || !ok {
		err := e.err
		if err == nil {
			err = &RequestError{Op: op, Code: wire.CodeBusy, Text: "the daemon does not read, and too much waits for it"}
		}
		e.putBack(c)
		return nil, err
	}
	c.told = told
	sendLocked(e, c, abandoned, t, m)
	return told, nil
}

// settled tells who looks at the channel of async how its request went.
func (c *call) settled(err error) {
	if c.told != nil {
		c.told <- err
		c.told = nil
	}
}

// drained waits until out is empty, or for d.
func (e *Engine) drained(d time.Duration) {
	late := time.NewTimer(d)
	defer late.Stop()
	for {
		e.wmu.Lock()
		if len(e.out) == 0 || e.err != nil {
			e.wmu.Unlock()
			return
		}
		if e.shorter == nil {
			e.shorter = make(chan struct{})
		}
		wake := e.shorter
		e.wmu.Unlock()
		select {
		case <-wake:
		case <-e.gone:
		case <-late.C:
			return
		}
	}
}

// writable waits until there is room in the socket, or for d. over says that both
// directions have ended.
func (s *socket) writable(d time.Duration) (over bool) {
	p := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	limit := unix.NsecToTimespec(int64(d))
	_, _ = unix.Ppoll(p, &limit, nil) // a signal is as good as room: the next send finds out
	return p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}
