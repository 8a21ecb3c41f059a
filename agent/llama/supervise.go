package llama

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"meridian/agent/llama/identity"
)

// Restarts of a llama-server that ended: the first at once, later ones after a
// pause that doubles up to maxPause. One that served for settled starts anew.
const (
	firstPause = 250 * time.Millisecond
	maxPause   = 15 * time.Second
	settled    = time.Minute

	// A server that ends within quickDeath of its start without having served, for
	// mostDeaths times in a row, is not started again.
	quickDeath = 30 * time.Second
	mostDeaths = 3
)

// ErrFailed is why a node will never serve: llama-server is not started again until
// the daemon is.
var ErrFailed = errors.New("llama-server cannot be run")

// Failure says why, and what to do.
type Failure struct {
	Err    error
	Advice string
}

func (f *Failure) Error() string {
	if f.Advice == "" {
		return f.Err.Error()
	}
	return f.Err.Error() + ". What to do: " + f.Advice
}

// Unwrap returns the cause and ErrFailed.
func (f *Failure) Unwrap() []error { return []error{f.Err, ErrFailed} }

// permanent is an error that another attempt would meet again.
func permanent(advice string, err error) error { return &Failure{Err: err, Advice: advice} }

// waiting says what a node waits for, and for how long it has.
type waiting struct {
	what  string
	since time.Time
}

func (w *waiting) Error() string {
	if d := time.Since(w.since).Truncate(time.Second); d > 0 {
		return fmt.Sprintf("%s (for %v)", w.what, d)
	}
	return w.what
}

// wait says what the node waits for now.
func (n *Node) wait(format string, args ...any) {
	n.publish(nil, &waiting{fmt.Sprintf(format, args...), time.Now()})
}

// daemonError is a fault of the daemon and not of llama-server.
type daemonError struct{ err error }

func (e *daemonError) Error() string { return e.err.Error() }
func (e *daemonError) Unwrap() error { return e.err }

// supervise keeps a llama-server running until Close, or until it is clear that
// none will run.
func (n *Node) supervise() {
	var r restarts
	for n.run.Err() == nil {
		began := time.Now()
		served, err := n.serveOnce()
		if n.run.Err() != nil {
			break
		}
		n.stats.restarts.Add(1)
		pause, failure := r.after(err, served, time.Since(began))
		if failure != nil {
			n.log.Error("llama-server cannot be run, and is not started again until the daemon is", "err", failure.Err, "what_to_do", failure.Advice)
			n.publish(nil, failure)
			return
		}
		n.log.Error("llama-server is down", "err", err, "next_try_in", pause)
		n.wait("llama-server is started again in %v: %v", pause, err)
		sleep(n.run, pause, nil)
	}
	n.publish(nil, errors.New("the node is closed"))
}

// restarts decides whether and when a llama-server that ended is started again.
type restarts struct {
	pause time.Duration
	quick int // deaths in a row without having served
}

// after a run that ended with err, having served or not, and took so long.
func (r *restarts) after(err error, served bool, took time.Duration) (time.Duration, *Failure) {
	var failure *Failure
	var daemon *daemonError
	var death *Death
	switch {
	case errors.As(err, &failure):
		return 0, failure
	case served:
		r.quick = 0
		if took > settled {
			r.pause = 0
		}
	case took < quickDeath && !errors.As(err, &daemon):
		if r.quick++; r.quick == mostDeaths {
			failure = &Failure{Err: fmt.Errorf("llama-server failed %d times in a row before it served: %w", r.quick, err)}
			if errors.As(err, &death) {
				failure.Advice = death.advice()
			}
			return 0, failure
		}
	}
	pause := r.pause
	r.pause = min(max(2*r.pause, firstPause), maxPause)
	return pause, nil
}

// serveOnce runs one llama-server from its start to its end, or to the end of
// the session with the daemon: a new one then starts with empty slots.
func (n *Node) serveOnce() (served bool, err error) {
	n.wait("llama-server is being started")
	files, err := identity.Open(identity.Source{Server: n.cfg.Server, Model: n.cfg.Model, Args: n.cfg.Args, Env: n.cfg.env()})
	if err != nil {
		return false, err
	}
	defer func() { _ = files.Close() }()
	proc, err := startProcess(&n.cfg, filepath.Join(n.sockets, "llama.sock"), n.files, n.log)
	if err != nil {
		return false, err
	}
	defer proc.stop()
	ctx, cancel := context.WithTimeout(n.run, loadTimeout)
	defer cancel()
	s, err := n.meet(ctx, proc, files)
	if err != nil {
		if !proc.alive() {
			n.tellWords(proc)
			return false, proc.death
		}
		return false, err
	}
	defer func() { _ = s.engine.Close() }()
	n.publish(s, nil)
	n.log.Info("llama-server serves", "slots", s.slots.size, "context", s.context, "namespace", s.manifest.Namespace().String())
	select {
	case <-proc.gone:
		n.tellWords(proc)
		return true, proc.death
	case <-s.engine.Gone():
		return true, &daemonError{fmt.Errorf("the daemon's engine socket: %w", s.engine.Err())}
	case err := <-s.changed:
		return true, err
	case <-n.run.Done():
		n.publish(nil, errors.New("the node is closing"))
		return true, nil
	}
}

// tellWords logs the last lines of a llama-server that ended by itself. The error
// has only the one that names the cause.
func (n *Node) tellWords(p *process) {
	for _, line := range p.words() {
		n.log.Warn("llama-server's last words", "line", line)
	}
}
