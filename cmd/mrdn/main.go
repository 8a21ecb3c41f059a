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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
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

		dialEngine: dialEngine,
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// asProcess is the exit code of a process that this program started itself.
func asProcess(err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, strings.Join(os.Args[1:3], " ")+":", err)
	return exitFailed
}
