package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
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
