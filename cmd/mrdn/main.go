// Command mrdn is the operator's command line of Meridian.
//
// Each group of commands is a file. A command makes a result, which is a value;
// output.go renders it as a table, JSON or YAML, and nothing else writes to
// standard output. A failure says in one line what went wrong, with a hint and
// an exit code (failure.go).
//
// It holds flags and wiring only: what a command does is in agent/client,
// agent/config and agent/finding. The reference docs/cli.md is made from the
// command tree by a test.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		env:      os.Environ(),
		terminal: term.IsTerminal(int(os.Stdout.Fd())),
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
