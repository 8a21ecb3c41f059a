package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// build compiles the tests of the wanted entries on the old commit, runs none,
// and returns how many compile there and should not, or the other way round.
func build(ctx context.Context, commit, only string, verbose bool, out io.Writer) (bad int, err error) {
	_, entries, old, err := begin(ctx, commit, only)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, old.remove()) }()
	known := map[string]string{} // lines that copy the same files into one package compile alike
	for _, e := range entries {
		for _, l := range e.lines {
			key := fmt.Sprint(l.pkg, l.copied, l.removed, l.change)
			said, ok := known[key]
			if !ok {
				dir, args, err := old.faulty(ctx, l)
				if err != nil {
					return bad, fmt.Errorf("entry %s, line %d: %w", e.id, l.at, err)
				}
				said = goVet(ctx, dir, args, l)
				if ctx.Err() != nil {
					return bad, ctx.Err()
				}
				known[key] = said
			}
			wrong := misbuilt(l, said == "")
			if wrong != "" {
				bad++
				fmt.Fprintf(out, "%-3s line %d: %s: %s\n", e.id, l.at, l.pkg, wrong)
			}
			if said != "" && (wrong != "" || verbose) {
				fmt.Fprintf(out, "---- line %d\n%s\n", l.at, said)
			}
		}
	}
	return bad, nil
}

// goVet compiles the line's package and its tests without linking them, and
// returns what the compiler said against them, or "".
func goVet(ctx context.Context, dir string, args []string, l line) string {
	args = append([]string{"vet", "-trimpath"}, args...)
	// The checks of go test itself: each of them makes it refuse to build too.
	args = append(args, "-atomic", "-bool", "-buildtags", "-directive", "-errorsas", "-ifaceassert", "-nilfunc",
		"-printf", "-stringintconv", "-tests", "./"+l.pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	output, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s\n%v", output, err))
}
