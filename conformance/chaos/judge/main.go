// Command judge is a chaos.Ledger as a process of its own. Engines report to it
// as JSON lines, one event a line and one answer a line, on a Unix socket or on
// standard input and output. When it is told to stop, or its input ends, it writes
// the report to standard error (with -listen: to standard output), and exits with
// 0 when nothing was found and 5 when something was.
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

const (
	exitClean     = 0
	exitUsage     = 2
	exitIntegrity = 5 // as mrdn has it
)

func main() { os.Exit(run()) }

func run() int {
	listen := flag.String("listen", "", "path of a Unix socket; empty: standard input and output")
	blocks := flag.Int("blocks", chaos.DefaultBlocks, "blocks to remember")
	grace := flag.Duration("grace", chaos.DefaultGrace, "time beyond a transfer's deadline")
	flag.Parse()
	ledger := chaos.NewLedger(chaos.LedgerOptions{Blocks: *blocks, Grace: *grace})

	out := io.Writer(os.Stderr)
	if *listen == "" {
		if err := chaos.Attend(os.Stdin, os.Stdout, ledger); err != nil {
			fmt.Fprintln(os.Stderr, "judge:", err)
		}
	} else {
		out = os.Stdout
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		l, err := net.Listen("unix", *listen)
		if err != nil {
			fmt.Fprintln(os.Stderr, "judge:", err)
			return exitUsage
		}
		if err := chaos.Serve(ctx, l, ledger); err != nil {
			fmt.Fprintln(os.Stderr, "judge:", err)
		}
	}
	report := ledger.Report()
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	_ = enc.Encode(report)
	if err := report.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		return exitIntegrity
	}
	return exitClean
}
