package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopWait bounds how long a process may take to end before it is killed.
const stopWait = 10 * time.Second

// process is one of the demo's processes.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	log  string // its stderr
	done chan struct{}
	err  error
}

// spawn starts this program again in a role. Its stderr goes to a log in dir.
func (r *runner) spawn(name string, role string, args ...string) (*process, error) {
	argv := append(append([]string{}, r.opt.Self[1:]...), append([]string{role}, args...)...)
	p := &process{name: name, log: filepath.Join(r.dir, name+".log"), done: make(chan struct{})}
	p.cmd = exec.Command(r.opt.Self[0], argv...)
	// Should the demo die, so do its processes.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	f, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	p.cmd.Stderr = f
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	r.mu.Lock()
	r.procs = append(r.procs, p)
	r.mu.Unlock()
	return p, nil
}

// wait reaps the process; call it once, when its output has been read. readErr
// is what went wrong with that.
func (p *process) wait(readErr error) {
	p.err = errors.Join(p.cmd.Wait(), readErr)
	close(p.done)
}

// stop asks the process to end with SIGTERM, kills it when it does not, and
// says how it ended. Idempotent.
func (p *process) stop() error {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopWait):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %v and was killed%s", p.name, stopWait, p.tail())
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w%s", p.name, p.err, p.tail())
	}
	return nil
}

// tail is the end of the process's log, for errors.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil || len(b) == 0 {
		return ""
	}
	if len(b) > 2000 {
		b = b[len(b)-2000:]
	}
	return "\n  ... " + string(bytes.ReplaceAll(bytes.TrimSpace(b), []byte("\n"), []byte("\n  ... ")))
}

// daemons starts one process with a daemon for each configuration, and waits
// until all of them listen.
func (r *runner) daemons(ctx context.Context, name string, configs ...string) ([]map[string][]string, error) {
	args := []string{}
	ports := make([]string, len(configs))
	for i, c := range configs {
		ports[i] = c + ".ports"
		args = append(args, c, ports[i])
	}
	p, err := r.spawn(name, RoleDaemon, args...)
	if err != nil {
		return nil, err
	}
	r.world = p
	go p.wait(nil)
	out := make([]map[string][]string, len(configs))
	for i := range configs {
		if out[i], err = awaitPorts(ctx, p, ports[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func awaitPorts(ctx context.Context, p *process, path string) (map[string][]string, error) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		b, err := os.ReadFile(path)
		if err == nil {
			var ports map[string][]string
			return ports, json.Unmarshal(b, &ports)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("%s ended before it listened: %w%s", p.name, errors.Join(p.err), p.tail())
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not listen: %w%s", p.name, ctx.Err(), p.tail())
		case <-t.C:
		}
	}
}

// engineProc is an engine stand-in and its conversation.
type engineProc struct {
	*process
	to      *lines
	results chan result // closed at the end of its output
	summary chan summary

	once sync.Once
}

func (r *runner) startEngine(role string, s start) (*engineProc, error) {
	p, err := r.spawn(role, role)
	if err != nil {
		return nil, err
	}
	e := &engineProc{process: p, to: newLines(p.in), results: make(chan result, s.Requests+1), summary: make(chan summary, 1)}
	go func() {
		err := readLines(p.out, func(res result) error {
			if res.Summary != nil {
				e.summary <- *res.Summary
				return nil
			}
			e.results <- res
			return nil
		})
		p.wait(err)
		close(e.results)
	}()
	e.to.put(s)
	return e, nil
}

// finish closes the engine's orders and returns what it counted.
func (e *engineProc) finish(ctx context.Context) (summary, error) {
	e.once.Do(func() { _ = e.in.Close() })
	select {
	case s := <-e.summary:
		<-e.done // it has nothing left to do
		return s, nil
	case <-ctx.Done():
		return summary{}, fmt.Errorf("%s gives no summary: %w%s", e.name, ctx.Err(), e.tail())
	case <-e.done:
		select {
		case s := <-e.summary:
			return s, nil
		default:
			return summary{}, fmt.Errorf("%s ended without a summary: %w%s", e.name, errors.Join(e.err), e.tail())
		}
	}
}
