package client

import (
	"errors"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/invariants"
)

// The holder of the token reads the socket and handles what comes, for whichever call
// it is:
//
//   - a caller whose call is on its way, if the token is free (lead): the answer
//     then comes to the goroutine that waits for it. Handing it over from another
//     one costs more than all the rest of a 16-block ACQUIRE;
//   - callers that find the token taken wait for their answer or for the token;
//   - the background reader (read) has what comes while nobody calls. It waits in
//     poll(2) without the token, so that a caller may take it at any time, and
//     keeps away (rest) while calls follow one another: else each answer would
//     wake it as well.
//
// A call leads once at most. One that gets nothing for leadTime is slow anyway: it
// leaves the socket to the others, and waits for its answer or its context.

// leadTime is how long a caller reads without getting anything. A context that
// ends meanwhile is noticed that much later.
const leadTime = 5 * time.Millisecond

// restTime is how long the background reader keeps away after it has seen callers
// read. What comes while nobody reads is found at most twice that later.
const restTime = 400 * time.Microsecond

// lead reads until c is done, as the holder of the token. It returns early when
// stop is closed, when nothing comes, and when the connection is over.
func (e *Engine) lead(stop <-chan struct{}, c *call) (done bool) {
	e.readers.Add(1)
	for {
		select {
		case <-c.done:
			return true
		case <-stop:
			return false
		default:
		}
		woke, err := e.receive(0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if err != nil {
			e.fail(err)
			return false
		}
		if woke && c.state.Load() == waiting {
			runtime.Gosched() // see read
		}
	}
}

// read is the background reader. It outlives all others, and cleans up.
func (e *Engine) read() {
	var err error
	for err == nil {
		begun := e.readers.Load()
		over, broken := e.sock.poll(unix.POLLIN, -1)
		if broken != nil {
			e.fail(broken)
		}
		if over || broken != nil {
			break
		}
		select {
		case <-e.token:
		default:
			e.rest()
			continue
		}
		var woke bool
		woke, err = e.drain()
		e.token <- struct{}{}
		if woke {
			// Otherwise the woken caller sits in this processor's queue until the
			// runtime notices that we are blocked in a system call: 20 us and more.
			runtime.Gosched()
		}
		if begun != e.readers.Load() {
			e.rest()
		}
	}
	<-e.token // for good: its holder finds the stream's end as well
	for err == nil {
		_, err = e.drain() // the daemon's last words
	}
	e.end()
}

// rest returns when no caller has begun to read for restTime.
func (e *Engine) rest() {
	for {
		begun := e.readers.Load()
		if over, err := e.sock.poll(0, restTime); over || err != nil || begun == e.readers.Load() {
			return
		}
	}
}

// drain handles what is there, as the holder of the token. An error is the
// connection's end, and no news to it.
func (e *Engine) drain() (woke bool, err error) {
	for {
		w, err := e.receive(unix.MSG_DONTWAIT)
		woke = woke || w
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return woke, nil
		}
		if err != nil {
			e.fail(err)
			return woke, err
		}
	}
}

// end cleans up when the connection is over.
func (e *Engine) end() {
	closeAll(e.fds)
	e.wmu.Lock()   // nobody writes after this: send looks at err first
	e.wmu.Unlock() //nolint:staticcheck // the section is empty on purpose: it waits for a send under way
	for _, c := range e.calls {
		e.lost(c)
	}
	e.loseLoads()
	e.renewer.stop()
	e.pushers.Wait() // nothing is added to out any more, and the socket takes nothing
	e.discard()
	e.sock.close()
	e.maps.put()
	close(e.readerEnd)
}

// discard reads until the daemon has closed its side too, or shutdown was called.
func (e *Engine) discard() {
	for {
		_, fds, err := e.sock.receive(e.buf, nil, 0)
		closeAll(fds)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// receive reads once and handles the frames that are complete, as the holder of
// the token. woke says that another goroutine was woken. os.ErrDeadlineExceeded:
// nothing came, within leadTime or with MSG_DONTWAIT now.
func (e *Engine) receive(flags int) (woke bool, err error) {
	select {
	case <-e.gone: // what is left of the stream means nothing any more
		return false, e.Err()
	default:
	}
	n, fds, err := e.sock.receive(e.buf, e.fds, flags)
	e.fds = fds
	for b := e.buf[:n]; err == nil && len(b) > 0; {
		took, ev, broken := e.split.Next(b)
		if broken != nil {
			return woke, broken
		}
		b = b[took:]
		var did bool
		did, e.fds, err = e.event(ev, e.fds)
		woke = woke || did
	}
	invariants.Overwrite(e.buf[:n])
	return woke, err
}
