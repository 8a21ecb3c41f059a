package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"meridian/bench/demo"
)

func main() {
	ctx, again, stop := signals()
	if len(os.Args) > 2 {
		switch role := os.Args[1]; role {
		case demoProcess:
			os.Exit(asProcess(demo.Play(ctx, os.Args[2], os.Args[3:], os.Stdin, os.Stdout)))
		case benchProcess:
			os.Exit(asProcess(playHolder(ctx, os.Args[2:], os.Stdin, os.Stdout)))
		case llamaProcess:
			os.Exit(asProcess(playLlamaNode(context.Background(), os.Args[2:])))
		}
	}
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		env:      os.Environ(),
		terminal: isTerminal(os.Stdout),
		again:    again,

		dialEngine: dialEngine,
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// signals are how every command is ended, until stop. The first SIGINT or SIGTERM ends ctx;
// the second closes again, and what the command has started is still ended and removed; the
// third ends the process at once.
func signals() (ctx context.Context, again <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	heard, second := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		<-heard
		cancel()
		<-heard
		signal.Stop(heard) // before anybody is told of a third
		close(second)
	}()
	return ctx, second, func() { signal.Stop(heard) }
}

// asProcess is the exit code of a process that this program started itself.
func asProcess(err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, strings.Join(os.Args[1:3], " ")+":", err)
	return exitFailed
}
