package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Times and bounds of one run.
const (
	stopTimeout  = 3 * time.Second // from SIGTERM to SIGKILL
	drainTimeout = time.Second     // for the rest of its log, once it has ended
	keptLogLines = 20              // of its last words
	maxLogLine   = 4 << 10
	// maxLines of a child are logged in each linesEvery; strangers may cause its lines. The
	// rest is counted.
	maxLines   = 200
	linesEvery = time.Minute
)

// Options say how a run is told.
type Options struct {
	Name  string // of the program, in errors and in the log
	Key   string // of the configuration, that names the program
	Built string // is in the line by which it says which instruction sets it was built for; "": it says none
	Log   *slog.Logger
}

// Process is one run of a program.
type Process struct {
	Options
	// Gone is closed when it has ended; Death is set then.
	Gone  chan struct{}
	Death *Death

	cmd   *exec.Cmd
	began time.Time

	lines struct { // that came since
		since time.Time
		n     int
	}

	mu    sync.Mutex
	tail  []string
	built string // what it said of the instruction sets that it was built for
}

// Attributes are those of a child: the kernel kills it when the thread ends that started
// it, and a signal for the terminal's processes is not for it.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// Start starts a program whose output is its log, and waits for nothing. An error that
// matches ErrFailed stays.
func Start(cmd *exec.Cmd, o Options) (*Process, error) {
	p := &Process{Options: o, Gone: make(chan struct{}), cmd: cmd, began: time.Now()}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread ends that started the child, so
		// that thread waits for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = w.Close()
		started <- err
		if err == nil {
			p.wait(r)
		}
	}()
	if err := <-started; err != nil {
		_ = r.Close()
		return nil, o.notStarted(cmd.Path, err)
	}
	return p, nil
}

// notStarted says why a program cannot be started. What the file is will not
// change by itself; a lack of memory or of processes may.
func (o *Options) notStarted(path string, err error) error {
	never := []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ENOEXEC, syscall.ENOTDIR, syscall.ELOOP}
	var why syscall.Errno
	if errors.As(err, &why) && slices.Contains(never, why) {
		advice := fmt.Sprintf("%s must be a program for %s/%s that this user may run", o.Key, runtime.GOOS, runtime.GOARCH)
		return Permanent(advice, fmt.Errorf("%s cannot be started: %w", path, why))
	}
	return fmt.Errorf("%s: %w", o.Name, err)
}

func (p *Process) wait(out io.ReadCloser) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer func() { _ = out.Close() }()
		p.follow(out)
	}()
	_ = p.cmd.Wait() // ProcessState says how it ended
	lived := time.Since(p.began)
	select {
	case <-read:
	case <-time.After(drainTimeout): // a process of its own still has the pipe
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Death = deathOf(p.Name, p.cmd, lived, p.tail, p.built)
	close(p.Gone)
}

// Pid is its number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Words are the last lines of its log.
func (p *Process) Words() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tail)
}

// follow hands the child's own log on, and keeps the end of it.
func (p *Process) follow(r io.Reader) {
	b := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, cut, err := b.ReadLine()
		if err != nil {
			return
		}
		for cut && err == nil { // the rest of a line that is too long is dropped
			_, cut, err = b.ReadLine()
		}
		text := strings.TrimSpace(string(line))
		if text == "" {
			continue
		}
		p.log(text)
		p.mu.Lock()
		if p.Built != "" && strings.Contains(text, p.Built) {
			p.built = text
		}
		if len(p.tail) == keptLogLines {
			p.tail = p.tail[1:]
		}
		p.tail = append(p.tail, text)
		p.mu.Unlock()
	}
}

// log hands a line on, unless too many came lately. One goroutine calls it.
func (p *Process) log(text string) {
	if now := time.Now(); now.Sub(p.lines.since) >= linesEvery {
		if left := p.lines.n - maxLines; left > 0 {
			p.Log.Debug(p.Name, "lines_left_out", left)
		}
		p.lines.since, p.lines.n = now, 0
	}
	if p.lines.n++; p.lines.n <= maxLines {
		p.Log.Debug(p.Name, "line", text)
	}
}

// Stop ends the process and waits until it has ended.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-p.Gone:
	case <-t.C:
		p.Kill()
	}
}

// Kill ends the process at once, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.Gone
}

// Alive says whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.Gone:
		return false
	default:
		return true
	}
}
