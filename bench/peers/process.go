package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopWait bounds how long a process may take to end before it is killed.
	stopWait = 5 * time.Second
	// answerWait bounds how long a process may take for an order, over the time
	// that the order asks for: a prepare fills up to a GiB.
	answerWait = 90 * time.Second
	// tailBytes of a process's log go into an error.
	tailBytes = 1500
)

// process is one process of a pair, and its conversation.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string // its stderr
	in   io.WriteCloser
	out  chan line
	done chan struct{} // closed when it has ended
	err  error         // how, once done
	idle bool          // stopped by SIGSTOP
}

type line struct {
	text []byte
	err  error
}

// ProcessError is what went wrong with a process of a pair: Err is its own
// answer, or what its conversation ended with; Log the end of its stderr.
type ProcessError struct {
	Process, Do string
	Err         error
	Log         string
}

// Error names process and order.
func (e *ProcessError) Error() string {
	s := e.Process + ", " + e.Do + ": " + e.Err.Error()
	if e.Log != "" {
		s += "\n  its log ends: " + e.Log
	}
	return s
}

// Unwrap returns Err.
func (e *ProcessError) Unwrap() error { return e.Err }

// errAnswer is matched by failures that a process itself told; it goes on
// answering after one.
var errAnswer = errors.New("it says")

// start runs cmd. With talk it is one that answers orders.
func start(dir, name string, cmd *exec.Cmd, talk bool) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	// Should the harness die, so do its processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	f, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	cmd.Stderr, cmd.Dir = f, dir
	var out io.ReadCloser
	if talk {
		if p.in, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
		if out, err = cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	} else {
		cmd.Stdout = f
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.out = make(chan line, 1)
	go func() {
		if talk {
			p.read(out)
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// read hands over lines until the process closes its output.
func (p *process) read(out io.Reader) {
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := r.ReadBytes('\n')
		if err != nil {
			p.out <- line{err: io.ErrUnexpectedEOF}
			return
		}
		p.out <- line{text: text}
	}
}

// ask gives an order and returns its answer.
func (p *process) ask(ctx context.Context, c command) (answer, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return answer{}, err
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return answer{}, p.failed(c.Do, err)
	}
	return p.answer(ctx, c.Do, answerWait+time.Duration(c.MS)*time.Millisecond)
}

// answer waits for the next line. A process that does not answer in time is
// killed: its next answer would be taken for that of another order.
func (p *process) answer(ctx context.Context, do string, wait time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var a answer
	select {
	case l := <-p.out:
		if l.err != nil {
			return a, p.failed(do, l.err)
		}
		if err := json.Unmarshal(l.text, &a); err != nil {
			_ = p.cmd.Process.Kill()
			return a, p.failed(do, fmt.Errorf("%.80q is no answer: %w", l.text, err))
		}
		if a.Error != "" {
			return a, p.failed(do, fmt.Errorf("%w: %s", errAnswer, a.Error))
		}
		return a, nil
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		return a, p.failed(do, fmt.Errorf("no answer: %w", ctx.Err()))
	}
}

func (p *process) failed(do string, err error) error {
	return &ProcessError{Process: p.name, Do: do, Err: err, Log: p.tail()}
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-tailBytes):]))
}

// cpu is the processor time that the process and its threads have used.
func (p *process) cpu() (time.Duration, error) {
	// The clock of another process, by clock_getcpuclockid(3): its precision is
	// that of the scheduler, where /proc counts hundredths of a second.
	const schedClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", p.name, err)
	}
	return time.Duration(t.Nano()), nil
}

// rest stops the process until wake; both may be called again.
func (p *process) rest() error {
	if p.idle {
		return nil
	}
	p.idle = true
	return p.cmd.Process.Signal(syscall.SIGSTOP)
}

func (p *process) wake() error {
	if !p.idle {
		return nil
	}
	p.idle = false
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// stop ends the process: by the end of its input, then SIGTERM where it has
// none, then by force, which is an error.
func (p *process) stop() error {
	_ = p.wake()
	if p.in != nil {
		_ = p.in.Close()
	} else {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	t := time.NewTimer(stopWait)
	defer t.Stop()
	for {
		select {
		case <-p.out: // an answer that nobody waits for
		case <-p.done:
			return nil
		case <-t.C:
			_ = p.cmd.Process.Kill()
			<-p.done
			return fmt.Errorf("%s did not end within %v and was killed", p.name, stopWait)
		}
	}
}
