package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const usage = `usage: internal/ci/regressions.sh [-build] [-only ID,ID] [-v] COMMIT

Runs each test of internal/ci/regressions.txt on COMMIT, where the fault still
is, and on this tree; a fault that is listed as a change of this tree is made in
a copy of its file. Prints a table, and exits with 1 if a test passes where the
fault is or fails on this tree, or if an entry has no test.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("regressions", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { _, _ = io.WriteString(stderr, usage); flags.PrintDefaults() }
	only := flags.String("only", "", "the entries to run, by number and separated by commas; all without it")
	buildOnly := flags.Bool("build", false, "run nothing, only say which tests do not compile on COMMIT although they should")
	verbose := flags.Bool("v", false, "say how each test failed, and print the output of those whose result is not the wanted one")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return 2
	}
	what, good := compare, "every test fails where its fault is and passes on this tree"
	if *buildOnly {
		what, good = build, "every test compiles on the old commit, but those that are marked"
	}
	bad, err := what(ctx, flags.Arg(0), *only, *verbose, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "regressions:", err)
		return 2
	}
	if bad > 0 {
		fmt.Fprintf(stdout, "FAIL: %d results are not the wanted ones\n", bad)
		return 1
	}
	fmt.Fprintln(stdout, "PASS:", good)
	return 0
}

// compare runs the wanted entries on both trees and returns how many results
// begin reads the wanted entries and checks the old commit out, whose tree is the
// caller's to remove.
func begin(ctx context.Context, commit, only string) (top string, entries []entry, old *oldTree, err error) {
	if top, err = git(ctx, ".", "rev-parse", "--show-toplevel"); err != nil {
		return "", nil, nil, err
	}
	if entries, err = readList(top, only); err != nil {
		return "", nil, nil, err
	}
	old, err = checkOut(ctx, top, commit)
	return top, entries, old, err
}

// are not the wanted ones.
func compare(ctx context.Context, commit, only string, verbose bool, out io.Writer) (bad int, err error) {
	top, entries, old, err := begin(ctx, commit, only)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, old.remove()) }()
	for _, e := range entries {
		if len(e.lines) == 0 {
			bad++
			row(out, e.id, e.title, "-", "-", "no test is listed")
		}
		for _, l := range e.lines {
			dir, args, err := old.faulty(ctx, l)
			if ctx.Err() != nil {
				return bad, ctx.Err()
			}
			if err != nil {
				bad++
				row(out, e.id, e.title, "-", "-", fmt.Sprintf("line %d: %v", l.at, err))
				continue
			}
			before, saidBefore := goTest(ctx, dir, args, l)
			now, saidNow := goTest(ctx, top, nil, l)
			if ctx.Err() != nil {
				return bad, ctx.Err()
			}
			wrong := verdict(l, before, now)
			row(out, e.id, e.title, before.String(), now.String(), wrong)
			if why := firstFailure(saidBefore); verbose && before == failed && why != "" {
				fmt.Fprintf(out, "     line %d: %s\n", l.at, why)
			}
			if wrong == "" {
				continue
			}
			bad++
			fmt.Fprintf(out, "     line %d: go test -run '%s' ./%s\n", l.at, l.run, l.pkg)
			if verbose {
				fmt.Fprintf(out, "---- where the fault is\n%s\n---- on this tree\n%s\n", saidBefore, saidNow)
			}
		}
	}
	return bad, nil
}

func row(out io.Writer, id, title, before, now, wrong string) {
	text := fmt.Sprintf("%-3s %-76.76s %-14s %s", id, title, before, now)
	if wrong != "" {
		text += "  <- " + wrong
	}
	fmt.Fprintln(out, text)
}

func readList(top, only string) ([]entry, error) {
	f, err := os.Open(filepath.Join(top, "internal/ci/regressions.txt"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	entries, err := parseList(f)
	if err != nil || only == "" {
		return entries, err
	}
	wanted := strings.Split(only, ",")
	for _, id := range wanted {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.id == id }) {
			return nil, fmt.Errorf("there is no entry %q in internal/ci/regressions.txt", id)
		}
	}
	return slices.DeleteFunc(entries, func(e entry) bool { return !slices.Contains(wanted, e.id) }), nil
}

func goTest(ctx context.Context, dir string, args []string, l line) (outcome, string) {
	args = append([]string{"test", "-trimpath"}, args...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-v", "-count=1", "-timeout=5m", "-run", l.run, "./"+l.pkg)...)
	cmd.Dir = dir
	// go test ends its own test binary when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	output, err := cmd.CombinedOutput()
	return read(err == nil, string(output)), string(output)
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
