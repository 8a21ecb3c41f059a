package llama

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"meridian/agent/llama/identity"
)

// Times and bounds of one run of llama-server.
const (
	stopTimeout  = 3 * time.Second // from SIGTERM to SIGKILL
	drainTimeout = time.Second     // for the rest of its log, once it has ended
	keptLogLines = 20              // of its last words
	maxLogLine   = 4 << 10
)

// ErrDown is why a request fails that finds no llama-server running.
var ErrDown = errors.New("llama-server is not running")

// process is one run of llama-server.
type process struct {
	cmd    *exec.Cmd
	socket string
	log    *slog.Logger

	began time.Time
	gone  chan struct{} // closed when it has ended; death is set then
	death *Death

	mu    sync.Mutex
	tail  []string
	built string // what it said of the instruction sets that it was built for
}

// Command is llama-server as a node runs it, for a benchmark that compares one without a
// node. The server listens on a Unix socket in a folder that only this user may
// enter, and keeps no prompt cache of its own beside the slots: blocks are the
// cache. It ends with the thread that starts it.
func (c *Config) Command(socket, slots string) *exec.Cmd {
	args := []string{
		"--model", c.Model, "--host", socket, "--no-webui",
		"--ctx-size", strconv.Itoa(c.Context * c.Slots), "--parallel", strconv.Itoa(c.Slots), "--no-kv-unified",
		"--slot-save-path", slots + string(filepath.Separator), "--cache-ram", "0", "--no-context-shift",
	}
	if c.Threads > 0 {
		args = append(args, "--threads", strconv.Itoa(c.Threads))
	}
	cmd := exec.Command(c.Server, append(args, c.Args...)...)
	cmd.Env = c.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd
}

// env is the environment of llama-server, and of nothing else: no setting reaches
// it that way unseen.
func (c *Config) env() []string {
	return withLibraries(identity.Env(os.Environ()), filepath.Dir(c.Server))
}

// startProcess starts llama-server and does not wait for its model.
func startProcess(c *Config, socket, slots string, log *slog.Logger) (*process, error) {
	_ = os.Remove(socket) // of a run that was killed
	p := &process{cmd: c.Command(socket, slots), socket: socket, log: log, gone: make(chan struct{}), began: time.Now()}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread ends that started the child, so
		// that thread waits for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		_ = w.Close()
		started <- err
		if err == nil {
			p.wait(r)
		}
	}()
	if err := <-started; err != nil {
		_ = r.Close()
		return nil, notStarted(c.Server, err)
	}
	return p, nil
}

// notStarted says why a program cannot be started. What the file is will not
// change by itself; a lack of memory or of processes may.
func notStarted(path string, err error) error {
	never := []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ENOEXEC, syscall.ENOTDIR, syscall.ELOOP}
	var why syscall.Errno
	if errors.As(err, &why) && slices.Contains(never, why) {
		advice := fmt.Sprintf("llama.server must be a program for %s/%s that this user may run", runtime.GOOS, runtime.GOARCH)
		return permanent(advice, fmt.Errorf("%s cannot be started: %w", path, why))
	}
	return fmt.Errorf("llama-server: %w", err)
}

// withLibraries puts the folder of the binary in front of LD_LIBRARY_PATH: the
// prebuilt packages keep their libraries there.
func withLibraries(env []string, dir string) []string {
	const name = "LD_LIBRARY_PATH="
	env = slices.Clone(env)
	for i, v := range env {
		if old, ok := strings.CutPrefix(v, name); ok {
			env[i] = name + dir
			if old != "" {
				env[i] += ":" + old
			}
			return env
		}
	}
	return append(env, name+dir)
}

func (p *process) wait(out io.ReadCloser) {
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
	p.death = deathOf(p.cmd, lived, p.tail, p.built)
	close(p.gone)
}

// words are the last lines of its log.
func (p *process) words() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tail)
}

// follow hands llama-server's own log on, and keeps the end of it.
func (p *process) follow(r io.Reader) {
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
		p.log.Debug("llama-server", "line", text)
		p.mu.Lock()
		if strings.Contains(text, "system_info") {
			p.built = text
		}
		if len(p.tail) == keptLogLines {
			p.tail = p.tail[1:]
		}
		p.tail = append(p.tail, text)
		p.mu.Unlock()
	}
}

// stop ends the process and waits until it has ended.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-p.gone:
	case <-t.C:
		_ = p.cmd.Process.Kill()
		<-p.gone
	}
}

// alive says whether the process has not ended.
func (p *process) alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// sleep waits for d, ctx's end or a process's end, whichever is first.
func sleep(ctx context.Context, d time.Duration, gone <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-gone:
	}
}
