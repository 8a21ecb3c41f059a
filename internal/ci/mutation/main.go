package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// rooms are those whose every change has to be noticed, or explained.
var rooms = []string{"wire", "blocks", "adapters/link", "agent/engine", "agent/client"}

// alsoTestedBy are packages outside of a room whose tests are of it too.
var alsoTestedBy = map[string][]string{
	"agent/client": {"agent/engine"}, // a client is tested with its server, in the server's package
}

// settings are what the command line says.
type settings struct {
	workers int
	longest time.Duration
	grace   time.Duration
	part    string
	again   bool
	out     string
}

func main() {
	var s settings
	flag.IntVar(&s.workers, "workers", runtime.NumCPU(), "changes that are tried side by side")
	flag.DurationVar(&s.longest, "longest", 15*time.Second, "a test that takes longer by itself is left out")
	flag.DurationVar(&s.grace, "grace", 10*time.Second, "what tests may take beyond three times what they took without a change")
	flag.StringVar(&s.part, "files", "", "only changes in files whose path has one of these in it, comma-separated")
	flag.BoolVar(&s.again, "again", false, "only changes that lived in the last run")
	flag.StringVar(&s.out, "out", ".run/mutation", "the folder of outcomes")
	flag.Parse()
	if flag.NArg() > 0 {
		rooms = flag.Args()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	lived, err := run(ctx, s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
	fmt.Printf("mutation: %d changes that no test noticed; all outcomes are in %s\n", lived, s.out)
}

func run(ctx context.Context, s settings) (lived int, err error) {
	top, err := filepath.Abs(".")
	if err != nil {
		return 0, err
	}
	if s.out, err = filepath.Abs(s.out); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return 0, err
	}
	for _, room := range rooms {
		room = strings.Trim(strings.TrimPrefix(room, "./"), "/")
		n, err := tryRoom(ctx, s, top, room)
		lived += n
		if err != nil {
			return lived, fmt.Errorf("%s: %w", room, err)
		}
	}
	return lived, nil
}
