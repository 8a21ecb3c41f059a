// Command judge is a chaos.Ledger as a process of its own. Engines report to it
// as JSON lines, one event a line and one answer a line, on a Unix socket or on
// standard input and output. When it is told to stop, or its input ends, it
// writes the report (to standard output with -listen, else to standard error,
// since the answers are on the other), and exits with 0 when nothing was found, 2
// when it could not begin, and 5 when something was found or the report is
// incomplete.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"meridian/conformance/chaos"
)

// Exit codes, as mrdn has them.
const (
	exitClean     = 0
	exitUsage     = 2
	exitIntegrity = 5
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	flags := flag.NewFlagSet("judge", flag.ContinueOnError)
	flags.SetOutput(errs)
	listen := flags.String("listen", "", "path of a Unix socket; empty: standard input and output")
	blocks := flags.Int("blocks", chaos.DefaultBlocks, "blocks to remember")
	grace := flags.Duration("grace", chaos.DefaultGrace, "time beyond a transfer's deadline")
	if flags.Parse(args) != nil {
		return exitUsage
	}
	ledger := chaos.NewLedger(chaos.LedgerOptions{Blocks: *blocks, Grace: *grace})

	var ended error
	to := errs
	if *listen == "" {
		ended = chaos.Attend(in, out, ledger)
	} else {
		to = out
		l, err := net.Listen("unix", *listen)
		if err != nil {
			fmt.Fprintln(errs, "judge:", err)
			return exitUsage
		}
		ended = chaos.Serve(ctx, l, ledger)
	}
	report := ledger.Report()
	enc := json.NewEncoder(to)
	enc.SetIndent("", "  ")
	for _, err := range []error{ended, enc.Encode(report), report.Err()} {
		if err != nil {
			fmt.Fprintln(errs, "judge:", err)
			return exitIntegrity
		}
	}
	return exitClean
}
