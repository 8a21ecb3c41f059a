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
	if len(os.Args) > 1 && os.Args[1] == demoProcess {
		os.Exit(playDemo(ctx, os.Args[2:]))
	}
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		env:      os.Environ(),
		terminal: term.IsTerminal(int(os.Stdout.Fd())),

		dialEngine: dialEngine,
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
