package helper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"meridian/adapters/nixl/capi"
	"meridian/adapters/nixl/control"
	"meridian/adapters/nixl/gpus"
)

const (
	// spinTime is how long transfers are polled without a pause after a read has begun or
	// ended, or a write has begun that should not take much longer, and the pauses are the
	// time between two looks else: a poll without end takes a core from the peer. It sends
	// what is read by itself; what is written has to be put into the socket here, before
	// that is empty.
	spinTime   = 200 * time.Microsecond
	readPause  = 70 * time.Microsecond
	writePause = 20 * time.Microsecond
	// timerSlack is how late the kernel may end a pause, in nanoseconds; by default 50 µs.
	timerSlack = 1
	// notifEvery is how often notifications are looked for; the look takes the lock that
	// transfers share.
	notifEvery = time.Millisecond
	// idleAfter is how long nothing has come, from the daemon or a peer, until notifications
	// are looked for every idleEvery only: a thousand wake-ups a second cost some percent of
	// a processor, for nothing.
	idleAfter = 2 * time.Second
	idleEvery = 20 * time.Millisecond
	// yieldEvery is how often the loop lets Go's scheduler in. From a goroutine that it has
	// not seen for 10 ms its monitor takes the processor in the next call, and then looks
	// every 20 µs for a while: twice the context switches, and a tenth of the processor time.
	yieldEvery = 5 * time.Millisecond
)

// server is the state of the loop.
type server struct {
	send    func(control.Message) error
	open    func(*control.Start) (engine, *control.Started, bool, error)
	gpus    func() (driver string, list []control.GPU, err error)
	engine  engine
	windows map[uint32]*mapped
	moves   []move
	out     *output
	told    map[string]uses             // of each peer
	paces   map[string]*[2]control.Pace // of reads and writes with each peer
	busy    time.Time                   // when something came last, but for signs of life
	spins   time.Time                   // transfers are polled without a pause until then
	looks   control.Looks               // for the next request, after the last transfer's end
}

func newServer(send func(control.Message) error, out *output) *server {
	return &server{send: send, open: open, gpus: gpus.List, windows: map[uint32]*mapped{}, out: out, told: map[string]uses{}, paces: map[string]*[2]control.Pace{}, busy: time.Now()}
}

// Run serves the daemon at the other end of a socket, until it closes that.
func Run(socket *os.File) error {
	conn, err := control.NewConn(socket)
	if err != nil {
		return err
	}
	out, err := captureOutput(os.Stderr)
	if err != nil {
		return err
	}
	s := newServer(func(m control.Message) error { return conn.Send(m, -1) }, out)
	runtime.LockOSThread() // UCX's log has the number of the thread, and the slack is the thread's
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	err = s.loop(conn.ReceiveWithin)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// loop does what the daemon asks, and polls. receive waits for a message for so long.
func (s *server) loop(receive func(wait time.Duration) (control.Message, int, error)) error {
	var looked, yielded, until time.Time // until: it looks for a request, and does not sleep
	for {
		every := s.every()
		wait := every
		if now := time.Now(); len(s.moves) > 0 {
			did, err := s.poll()
			if err != nil {
				return err
			}
			switch {
			case did && len(s.moves) == 0 && s.looks.May():
				until = now.Add(control.LookTime)
			case did && !s.writes():
				s.spins = now.Add(spinTime)
			}
			if wait = 0; len(s.moves) > 0 && now.After(s.spins) {
				wait = s.pause()
			}
		} else if !until.IsZero() {
			if wait = 0; now.After(until) {
				s.looks.Miss()
				until, wait = time.Time{}, every
			}
		}
		if now := time.Now(); s.engine != nil && now.Sub(looked) >= every {
			looked = now
			if err := s.takeNotifs(); err != nil {
				return err
			}
		}
		if now := time.Now(); now.Sub(yielded) >= yieldEvery {
			yielded = now
			runtime.Gosched()
		}
		m, fd, err := receive(wait)
		if err != nil {
			return err
		}
		if m != nil {
			if _, life := m.(*control.Ping); !life {
				s.busy = time.Now()
			}
			if !until.IsZero() {
				s.looks.Hit()
				until = time.Time{}
			}
			if err := s.apply(m, fd); err != nil {
				return err
			}
		}
	}
}

// every is how often notifications are looked for now.
func (s *server) every() time.Duration {
	if len(s.moves) == 0 && time.Since(s.busy) > idleAfter {
		return idleEvery
	}
	return notifEvery
}

// pause is the time between two looks at the transfers under way.
func (s *server) pause() time.Duration {
	if s.writes() {
		return writePause
	}
	return readPause
}

func (s *server) writes() bool {
	return slices.ContainsFunc(s.moves, func(m move) bool { return m.write })
}

// poll looks at each transfer, and answers those that have ended.
func (s *server) poll() (did bool, err error) {
	s.moves = slices.DeleteFunc(s.moves, func(m move) bool {
		done, failed := m.t.Poll()
		if err != nil || !done && failed == nil {
			return false
		}
		did = true
		if failed == nil {
			m.pace.Took(m.bytes, time.Since(m.began))
		}
		if e := m.t.Release(); failed == nil {
			failed = e
		}
		if err = s.tell(m.peer); err != nil {
			return true
		}
		if failed != nil {
			err = s.send(&control.Failed{Req: m.req, Text: s.why(failed)})
		} else {
			err = s.send(&control.Done{Req: m.req})
		}
		return true
	})
	return did, err
}

// takeNotifs hands on what has come. What is too long, and what has no name, is not
// handed on: no peer of ours sends it.
func (s *server) takeNotifs() error {
	var failed error
	err := s.engine.Take(func(n capi.Notif) {
		s.busy = time.Now()
		if failed != nil || len(n.Text) > control.MaxNotif || n.From == "" || len(n.From) > control.MaxName {
			return
		}
		failed = s.send(&control.Notified{Peer: n.From, Text: n.Text})
	})
	if err != nil {
		return fmt.Errorf("notifications: %w", err)
	}
	return failed
}
