package llama

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"meridian/agent/llama/identity"
	"meridian/internal/child"
)

// ErrFailed is why a node will never serve: llama-server is not started again until
// the daemon is.
var ErrFailed = child.ErrFailed

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

// supervise keeps a llama-server running until Close, or until it is clear that
// none will run.
func (n *Node) supervise() {
	r := child.Restarts{Name: program, Advice: advice}
	for n.run.Err() == nil {
		began := time.Now()
		served, err := n.serveOnce()
		if n.run.Err() != nil {
			break
		}
		n.stats.restarts.Add(1)
		pause, failure := r.After(err, served, time.Since(began))
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
	defer proc.Stop()
	ctx, cancel := context.WithTimeout(n.run, loadTimeout)
	defer cancel()
	s, err := n.meet(ctx, proc, files)
	if err != nil {
		if !proc.Alive() {
			n.tellWords(proc)
			return false, proc.Death
		}
		return false, err
	}
	defer func() { _ = s.engine.Close() }()
	n.publish(s, nil)
	n.log.Info("llama-server serves", "slots", s.slots.size, "context", s.context, "namespace", s.manifest.Namespace().String())
	select {
	case <-proc.Gone:
		n.tellWords(proc)
		return true, proc.Death
	case <-s.engine.Gone():
		return true, &child.Ours{Err: fmt.Errorf("the daemon's engine socket: %w", s.engine.Err())}
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
	for _, line := range p.Words() {
		n.log.Warn("llama-server's last words", "line", line)
	}
}
