package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/invariants/leak"
	"meridian/internal/testbed"
)

// asDaemon makes this test binary the daemon itself.
const asDaemon = "BE_THE_DAEMON"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		main()
		return
	}
	leak.Main(m)
}

// patience bounds every wait; no test passes by waiting.
const patience = time.Minute

// process is a daemon in a process of its own.
type process struct {
	cmd    *exec.Cmd
	dir    string
	ports  string
	logs   *os.File // the read end of its standard error
	exited chan error
}

func begin(t *testing.T, args ...string) *process {
	t.Helper()
	return beginWith(t, "", args...)
}

// beginWith is begin with more tables in the configuration.
func beginWith(t *testing.T, tables string, args ...string) *process {
	t.Helper()
	dir := testbed.ShortDir(t)
	p := &process{dir: dir, ports: filepath.Join(dir, "ports.json"), exited: make(chan error, 1)}
	file(t, filepath.Join(dir, "m.toml"), `[agent]
name = "one"
state_dir = "`+dir+`/state"
[kv_memory]
capacity_bytes = "16MiB"
[engine]
socket = "`+dir+`/engine.sock"
[admin]
socket = "`+dir+`/admin.sock"
http = "127.0.0.1:0"
`+tables)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if args == nil {
		args = []string{"--ports-file", p.ports}
	}
	p.cmd = exec.Command(self, append([]string{"--config", filepath.Join(dir, "m.toml")}, args...)...)
	p.cmd.Env = []string{asDaemon + "=1", "HOME=" + dir}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.logs, p.cmd.Stderr = read, write
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	go func() { p.exited <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.logs.Close()
	})
	return p
}

// get reads a page of the daemon, and fails the test if the daemon has ended.
func (p *process) get(t *testing.T, page string) string {
	t.Helper()
	var at map[string][]string
	p.until(t, "ports are written", func() bool {
		b, err := os.ReadFile(p.ports)
		return err == nil && json.Unmarshal(b, &at) == nil && len(at["http"]) == 1
	})
	res, err := http.Get(at["http"][0] + page)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (p *process) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-p.exited:
			t.Fatalf("%s: the daemon has ended: %v", what, err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s: never", what)
		}
	}
}

// speak makes the daemon write a log line.
func (p *process) speak(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

func (p *process) lost(t *testing.T) bool {
	for line := range strings.Lines(p.get(t, "/metrics")) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "meridian_log_lost_lines_total" {
			return value != "0"
		}
	}
	return false
}

func (p *process) stops(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.exited:
		if err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	case <-time.After(patience):
		t.Error("it did not stop")
	}
}

func TestAClosedLogPipeDoesNotEndTheDaemon(t *testing.T) {
	p := begin(t)
	if line, err := bufio.NewReader(p.logs).ReadString('\n'); err != nil || !strings.Contains(line, "started") {
		t.Fatalf("%q, %v", line, err)
	}
	if err := p.logs.Close(); err != nil {
		t.Fatal(err)
	}
	p.until(t, "lost lines are counted", func() bool { p.speak(t); return p.lost(t) })
	p.stops(t)
}

// A pipe that is full and not closed: a goroutine that logs must not wait for its reader.
func TestALogPipeThatNobodyReadsHoldsUpNothing(t *testing.T) {
	p := begin(t)
	if _, err := unix.FcntlInt(p.logs.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Skip("the pipe cannot be made small:", err)
	}
	p.get(t, "/healthz") // it handles SIGHUP from now on
	for range 200 {      // some 100 bytes each
		p.speak(t)
		if got := p.get(t, "/healthz"); got != "ok\n" {
			t.Fatal(got)
		}
	}
	p.stops(t)
}

func TestThePortsFileReplacesNoSpecialFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, "--ports-file", fifo)
	out := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(p.logs)
		out <- string(b)
	}()
	select {
	case err := <-p.exited:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("it ended with %v", err)
		}
		if text := <-out; !strings.Contains(text, "--ports-file: "+fifo+" is a pipe") || strings.Contains(text, "started") {
			t.Errorf("it said %q", text)
		}
	case <-time.After(patience):
		t.Error("it serves")
	}
	if info, err := os.Lstat(fifo); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe was replaced: %v, %v", info, err)
	}
}
