package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/internal/invariants/leak"
)

// asCommand makes this test binary mrdn itself.
const asCommand = "BE_THE_COMMAND"

// TestMain makes this test binary mrdn, or a process that mrdn starts.
func TestMain(m *testing.M) {
	roles := []string{demoProcess, benchProcess, llamaProcess}
	if os.Getenv(asCommand) != "" || len(os.Args) > 2 && slices.Contains(roles, os.Args[1]) {
		main()
		return
	}
	leak.Main(m)
}

// patience bounds a command's end; a command that passes by it does not end.
const patience = time.Minute

func TestPutEndsWhileItReadsStandardInput(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		timeout string
		signal  os.Signal
		exit    int
	}{
		"timeout": {"100ms", nil, exitUnreachable},
		"SIGINT":  {"1h", os.Interrupt, exitFailed},
		"SIGTERM": {"1h", syscall.SIGTERM, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = read.Close(), write.Close() }()
			cmd := exec.Command(self, "block", "put", "-", "--engine", "/nonexistent", "--timeout", c.timeout)
			cmd.Env, cmd.Stdin = append(os.Environ(), asCommand+"=1"), read
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			exited := make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			if c.signal != nil {
				// Until it ends: the first may come before anything listens to it,
				// and then kills, as it does any other program.
				tick := time.NewTicker(300 * time.Millisecond)
				defer tick.Stop()
				ended := make(chan struct{})
				defer close(ended)
				go func() {
					for {
						select {
						case <-ended:
							return
						case <-tick.C:
							_ = cmd.Process.Signal(c.signal) // it may have ended
						}
					}
				}()
			}
			select {
			case err := <-exited:
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Exited() && exit.ExitCode() != c.exit {
					t.Errorf("it ended with %v, want %d", err, c.exit)
				}
			case <-time.After(patience):
				_ = cmd.Process.Kill()
				t.Error("it does not end")
			}
		})
	}
}

// A signal that comes while what a command has started is being ended changes nothing of
// that; one more ends the command at once, and says so before.
func TestTheSecondSignalSkipsNoCleanUp(t *testing.T) {
	for name, third := range map[string]bool{"two": false, "three": true} {
		t.Run(name, func(t *testing.T) {
			p := startThink(t)
			p.signal(t)
			await(t, "a llama-server that is told to end", func() bool { _, err := os.Stat(p.told); return err == nil })
			p.signal(t)
			p.says(t, "one more signal ends this at once")
			if third {
				p.signal(t)
			}
			for p.lines.Scan() { // to its end
			}
			err := p.cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Exited() == third || !third && exit.ExitCode() != exitFailed {
				t.Errorf("it ended with %v", err)
			}
			if _, err := os.Stat(p.dir); errors.Is(err, fs.ErrNotExist) == third {
				t.Errorf("its folder %s: %v", p.dir, err)
			}
			await(t, "the end of its llama-server", func() bool { return errors.Is(syscall.Kill(p.server, 0), syscall.ESRCH) })
		})
	}
}

// thinkProcess is a `mrdn bench think` that waits for a llama-server, which does not end
// by SIGTERM.
type thinkProcess struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner // of its standard error
	dir    string         // its folder
	told   string         // a file that is there once its llama-server is told to end
	server int            // the process of its llama-server
}

func startThink(t *testing.T) *thinkProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	at := func(name string) string { return filepath.Join(tmp, name) }
	// What it says of itself is there whole or not at all.
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in --version) exit 1;; esac\ntrap '> %[1]s/told' TERM\necho $$ $* > %[1]s/part\nmv %[1]s/part %[1]s/started\nwhile :; do sleep 0.1; done\n", tmp)
	if err := errors.Join(os.WriteFile(at("server"), []byte(script), 0o700), os.WriteFile(at("m.gguf"), []byte("no model"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p := &thinkProcess{told: at("told"), cmd: exec.Command(self, "bench", "think", "--mode", "real-llamacpp", "--policies", "fcfs", "--server", at("server"), "--model", at("m.gguf"))}
	p.cmd.Env = append(os.Environ(), asCommand+"=1")
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(errs)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, but for a test that failed
		if p.dir != "" {
			_ = os.RemoveAll(p.dir)
		}
	})
	p.says(t, "starting fcfs")
	var said []byte
	await(t, "a llama-server", func() bool { said, err = os.ReadFile(at("started")); return err == nil })
	_, rest, _ := strings.Cut(string(said), " --host ")
	p.dir, _, _ = strings.Cut(rest, "/0/llama/")
	if _, err := fmt.Sscan(string(said), &p.server); err != nil || !strings.Contains(p.dir, "/mrdn-think-") {
		t.Fatalf("%q: %v", said, err)
	}
	return p
}

// await waits for what another process does.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is waited for " + what)
		}
	}
}

func (p *thinkProcess) signal(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// says reads what the process says until a line has text in it.
func (p *thinkProcess) says(t *testing.T, text string) {
	t.Helper()
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("it never says %q", text)
}
