package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// stuck are the arguments with which every command waits for something that
// never comes: standard input, a daemon, an engine, a web server, a process.
func stuck(path, url string) []string {
	switch path {
	case "mrdn demo":
		return []string{"--size", "small"}
	case "mrdn bench load":
		return []string{"--quick"}
	case "mrdn bench peers":
		return []string{"--only", "plain", "--quick"}
	case "mrdn chat":
		return []string{"--url", url, "hello"}
	case "mrdn llama run":
		return []string{"hello"}
	case "mrdn status":
		return []string{"--wait"}
	case "mrdn block get":
		return []string{goodKey}
	}
	return arguments[path]
}

func TestEveryCommandEndsOnAnInterruptAndAtItsTimeout(t *testing.T) {
	never := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-never:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	defer close(never)
	stdin, unwritten := io.Pipe()
	defer func() { _ = unwritten.Close() }()
	d := newDaemon()
	d.hang = true
	s := newShell(t, d)
	s.stdin, s.grace = stdin, 2*patience // a command ends by itself, not because it was left behind
	s.engine.hang = true
	each(tree(), func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Hidden || c.HasSubCommands() {
			return
		}
		args := append(strings.Fields(path)[1:], stuck(path, srv.URL)...)
		ends(t, path+" interrupted", func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			s.runIn(ctx, append(args, "--timeout", "1h")...)
		})
		if path == "mrdn status" {
			args = append(args, "--wait-duration", "50ms") // which is its bound
		}
		ends(t, path+" at its timeout", func(ctx context.Context) { s.runIn(ctx, append(args, "--timeout", "50ms")...) })
	})
}

func ends(t *testing.T, what string, run func(context.Context)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(t.Context())
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Errorf("%s: does not end", what)
	}
}

func TestWhatNeverEndedIsNamed(t *testing.T) {
	s := newShell(t, nil)
	stdin, unwritten := io.Pipe()
	defer func() { _ = unwritten.Close() }()
	s.stdin = stdin
	expect(t, s.run(t, "block", "put", "-", "--timeout", "20ms"), exitUnreachable, "", "standard input has not ended")
	if err := syscall.Mkfifo("fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	defer endFIFO(t, "fifo")
	// Nothing can end an open that waits for a writer: the command is left behind.
	s.grace = time.Millisecond
	expect(t, s.run(t, "config", "check", "fifo", "--timeout", "20ms"), exitUnreachable, "", "error: ")
}

// endFIFO ends all who wait in open for a writer of the FIFO, or are about to.
func endFIFO(t *testing.T, name string) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Error(err)
		return
	}
	if err := errors.Join(os.Remove(name), f.Close()); err != nil {
		t.Error(err)
	}
}
