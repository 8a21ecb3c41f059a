package harness

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
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopWait bounds how long a process may take to end before it is killed.
	stopWait = 10 * time.Second
	// tailBytes of a process's log go into an error.
	tailBytes = 2000
	pollEvery = 5 * time.Millisecond
)

// Options of a process.
type Options struct {
	Log  string // the file for what it logs; "": where this process logs
	Talk bool   // its output is a conversation; else it goes to the log
	Term bool   // Stop sends SIGTERM besides, for one that the end of its input does not end
	CPUs []int  // the processors that it may run on; none: all

	// Line takes each line of a conversation as it comes, until it returns an
	// error. nil: Next and Ask take them.
	Line func([]byte) error
}

// Process is one that was started, and the conversation with it.
type Process struct {
	Name string

	opt     Options
	cmd     *exec.Cmd
	in      io.WriteCloser
	put     *Writer
	lines   chan []byte // closed at the end of its output
	done    chan struct{}
	err     error // how it ended, once done
	resting atomic.Bool
}

// errEnded is what a process ended with that closed its output in good order.
var errEnded = fmt.Errorf("its output ended: %w", io.ErrUnexpectedEOF)

// Start starts cmd. Should this process die, so does it.
func Start(name string, cmd *exec.Cmd, o Options) (*Process, error) {
	p := &Process{Name: name, opt: o, cmd: cmd, lines: make(chan []byte, 1), done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.Stderr = os.Stderr
	if o.Log != "" {
		f, err := os.Create(o.Log)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		cmd.Stderr = f
	}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.put = NewWriter(p.in)
	var out io.ReadCloser
	if !o.Talk {
		cmd.Stdout = cmd.Stderr
	} else if out, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := startOn(cmd, o.CPUs); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.reap(out)
	return p, nil
}

// startOn starts a process that may run on those processors only, from its first
// instruction on: a Go program counts them then.
func startOn(cmd *exec.Cmd, cpus []int) error {
	if len(cpus) == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for _, c := range cpus {
		want.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &want); err != nil {
		return fmt.Errorf("processors %v: %w", cpus, err)
	}
	err := cmd.Start()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

// reap reads what the process says until it has ended.
func (p *Process) reap(out io.Reader) {
	var read error
	if out != nil {
		take := p.opt.Line
		if take == nil {
			take = func(line []byte) error {
				p.lines <- bytes.Clone(line)
				return nil
			}
		}
		if read = rawLines(out, take); read != nil {
			_ = p.cmd.Process.Kill() // nobody reads what it says any more
		}
	}
	close(p.lines)
	p.err = errors.Join(p.cmd.Wait(), read)
	close(p.done)
}

// Put gives the process an order that Line gets the answer of, if there is one.
func (p *Process) Put(order any) error { return p.put.Put(order) }

// EndInput tells the process that no order follows.
func (p *Process) EndInput() { _ = p.in.Close() }

// Ask gives an order and waits for its answer.
func (p *Process) Ask(ctx context.Context, order, answer any) error {
	if err := p.put.Put(order); err != nil {
		return err
	}
	return p.Next(ctx, answer)
}

// Next waits for the next line. A process that says none in time, or none that can
// be understood, is killed: its next line would be taken for another answer.
func (p *Process) Next(ctx context.Context, answer any) error {
	select {
	case line, ok := <-p.lines:
		if !ok {
			return errEnded
		}
		if err := json.Unmarshal(line, answer); err != nil {
			p.Kill()
			return fmt.Errorf("%.80q is no answer: %w", line, err)
		}
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("no answer: %w", ctx.Err())
	}
}

// Ports waits until the process has written where it listens: a file with a JSON
// object from a kind to its addresses.
func (p *Process) Ports(ctx context.Context, path string) (ports map[string][]string, err error) {
	err = Poll(ctx, p, func() error {
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &ports)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s does not listen: %w%s", p.Name, err, p.Tail())
	}
	return ports, nil
}

// Poll calls f until it returns nil, the process has ended, or ctx ends.
func Poll(ctx context.Context, p *Process, f func() error) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.Join(errors.New("the process has ended"), p.err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-t.C:
		}
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ending is how the process ended, once Done is closed, and the end of its log.
func (p *Process) Ending() string {
	if p.err == nil {
		return "exit status 0" + p.Tail()
	}
	return p.err.Error() + p.Tail()
}

// Kill ends the process now; Done tells when it has ended.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// CPU is the processor time that the process and its threads have used.
func (p *Process) CPU() (time.Duration, error) {
	t, err := CPU(p.cmd.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", p.Name, err)
	}
	return t, nil
}

// CPU is the processor time of any process.
func CPU(pid int) (time.Duration, error) {
	// The clock of another process, by clock_getcpuclockid(3): its precision is
	// that of the scheduler, where /proc counts hundredths of a second.
	const schedClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

// Rest stops the process until Wake; both may be called again.
func (p *Process) Rest() error {
	if p.resting.Swap(true) {
		return nil
	}
	return p.cmd.Process.Signal(syscall.SIGSTOP)
}

// Wake lets it go on.
func (p *Process) Wake() error {
	if !p.resting.Swap(false) {
		return nil
	}
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// Stop ends the process: it ends its input and, with Options.Term, sends SIGTERM.
// One that does not end is killed, which is an error; how it ended is not looked at.
func (p *Process) Stop() error {
	_ = p.Wake()
	p.EndInput()
	if p.opt.Term {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	t := time.NewTimer(stopWait)
	defer t.Stop()
	lines := p.lines
	for {
		select {
		case _, ok := <-lines: // an answer that nobody waits for
			if !ok {
				lines = nil
			}
		case <-p.done:
			return nil
		case <-t.C:
			p.Kill()
			<-p.done
			return fmt.Errorf("%s did not end within %v and was killed%s", p.Name, stopWait, p.Tail())
		}
	}
}

// End is Stop for a process whose end must be a good one.
func (p *Process) End() error {
	if err := p.Stop(); err != nil {
		return err
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w%s", p.Name, p.err, p.Tail())
	}
	return nil
}

// Log is the end of what the process has logged.
func (p *Process) Log() string {
	if p.opt.Log == "" {
		return ""
	}
	b, err := os.ReadFile(p.opt.Log)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-tailBytes):]))
}

// Tail is Log for the end of an error's text.
func (p *Process) Tail() string {
	if log := p.Log(); log != "" {
		return "\n  its log ends: " + log
	}
	return ""
}

// Again is the command that runs this program again: self is its path and what
// comes before the arguments.
func Again(self []string, args ...string) *exec.Cmd {
	return exec.Command(self[0], append(append([]string{}, self[1:]...), args...)...)
}

// LogIn is the log of a process called name in a folder.
func LogIn(dir, name string) string { return filepath.Join(dir, name+".log") }
