package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// test is one test of a package of the room.
type test struct {
	pkg     int
	name    string
	took    time.Duration
	reaches []int
}

// trial is a room whose sources are rewritten, with its test binaries.
type trial struct {
	settings
	tree, room, work string
	packages         []listed
	binaries         []string
	tests            []test
	by               map[int][]int // the tests that reach a change, the shortest first
}

func newTrial(ctx context.Context, s settings, tree, room, work string, packages []listed) (*trial, error) {
	t := &trial{settings: s, tree: tree, room: room, work: work, packages: packages, by: map[int][]int{}}
	for i, p := range packages {
		bin := filepath.Join(work, fmt.Sprintf("%d.test", i))
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "invariants", "-o", bin, p.ImportPath)
		cmd.Dir = tree
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("the rewritten sources do not compile: %w\n%s", err, out)
		}
		t.binaries = append(t.binaries, bin)
		names, err := t.list(ctx, i)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			t.tests = append(t.tests, test{pkg: i, name: name})
		}
	}
	return t, t.reach(ctx)
}

// list names the tests of a package.
func (t *trial) list(ctx context.Context, pkg int) (names []string, err error) {
	cmd := exec.CommandContext(ctx, t.binaries[pkg], "-test.list", "^(Test|Fuzz|Example)")
	cmd.Dir = t.packages[pkg].Dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.packages[pkg].ImportPath, err)
	}
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); name != "" && name != "TestMain" {
			names = append(names, name)
		}
	}
	return names, nil
}

// side runs f for 0 to n-1, as many at a time as there are workers.
func (t *trial) side(ctx context.Context, n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range t.workers {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
}

// reach runs each test alone and notes which changes it comes by.
func (t *trial) reach(ctx context.Context) error {
	out := make([]string, len(t.tests))
	t.side(ctx, len(t.tests), func(i int) { out[i] = t.alone(ctx, i) })
	kept := 0
	for i := range t.tests {
		x := &t.tests[i]
		if out[i] != "" {
			fmt.Printf("%s: %s is left out: %s\n", t.packages[x.pkg].ImportPath, x.name, out[i])
			continue
		}
		kept++
		for _, n := range x.reaches {
			t.by[n] = append(t.by[n], i)
		}
	}
	if kept == 0 && ctx.Err() == nil {
		return errors.New("no test passes without a change")
	}
	for _, tests := range t.by {
		slices.SortFunc(tests, func(a, b int) int { return int(t.tests[a].took - t.tests[b].took) })
	}
	return ctx.Err()
}

// alone runs a test without a change, and says why it cannot serve.
func (t *trial) alone(ctx context.Context, i int) string {
	x := &t.tests[i]
	file := filepath.Join(t.work, fmt.Sprintf("reached%d", i))
	began := time.Now()
	code, out := t.exec(ctx, x.pkg, []string{x.name}, t.longest, "MUTATION_REACHED="+file)
	x.took = time.Since(began)
	switch {
	case code == timedOut:
		return fmt.Sprintf("longer than %v", t.longest)
	case code != passed:
		return "it fails without a change: " + lastLine(out)
	}
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	for line := range strings.Lines(string(b)) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && !slices.Contains(x.reaches, n) {
			x.reaches = append(x.reaches, n)
		}
	}
	return ""
}

func lastLine(b []byte) string {
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// outcome of a run of tests.
type outcome int

const (
	passed outcome = iota
	failed
	timedOut
)

// exec runs tests of one package, with one environment variable more.
func (t *trial) exec(ctx context.Context, pkg int, names []string, limit time.Duration, env string) (outcome, []byte) {
	within, stop := context.WithTimeout(ctx, limit)
	defer stop()
	cmd := exec.CommandContext(within, t.binaries[pkg], "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir, cmd.Env = t.packages[pkg].Dir, append(os.Environ(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // and what it started
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case within.Err() != nil:
		return timedOut, out
	case err != nil:
		return failed, out
	}
	return passed, out
}

// all tries every change and writes down what became of it.
func (t *trial) all(ctx context.Context, changes []change) (lived int, err error) {
	name := filepath.Join(t.out, strings.ReplaceAll(t.room, "/", "-")+".txt")
	only := map[string]bool(nil)
	if t.again {
		if only, err = readLived(name); err != nil {
			return 0, err
		}
	}
	changes = slices.DeleteFunc(changes, func(c change) bool {
		asked := slices.ContainsFunc(strings.Split(t.part, ","), func(part string) bool { return strings.Contains(c.Where, part) })
		return !asked || only != nil && !only[c.Where+" "+c.What]
	})
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	count, mu, began := map[string]int{}, sync.Mutex{}, time.Now()
	t.side(ctx, len(changes), func(i int) {
		how := t.try(ctx, changes[i].N)
		if ctx.Err() != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		count[how]++
		line := fmt.Sprintf("%s %s %s\n", how, changes[i].Where, changes[i].What)
		if how == "LIVED" {
			fmt.Print(line)
		}
		if _, e := f.WriteString(line); err == nil {
			err = e
		}
	})
	fmt.Printf("%s: %d changes, %d killed, %d timed out, %d lived, %d not reached, in %v\n", t.room, len(changes),
		count["KILLED"], count["TIMED OUT"], count["LIVED"], count["NOT REACHED"], time.Since(began).Round(time.Second))
	return count["LIVED"], firstOf(firstOf(err, f.Close()), ctx.Err())
}

// quick is for how long tests of one package are run in one go.
const quick = time.Second

// try runs the tests that reach a change until one fails.
func (t *trial) try(ctx context.Context, n int) string {
	tests := t.by[n]
	if len(tests) == 0 {
		return "NOT REACHED"
	}
	for len(tests) > 0 {
		pkg, sum, k := t.tests[tests[0]].pkg, time.Duration(0), 0
		var names []string
		for k < len(tests) && t.tests[tests[k]].pkg == pkg && (k == 0 || sum+t.tests[tests[k]].took < quick) {
			sum += t.tests[tests[k]].took
			names = append(names, t.tests[tests[k]].name)
			k++
		}
		switch code, _ := t.exec(ctx, pkg, names, t.grace+3*sum, "MUTATION_ON="+strconv.Itoa(n)); code {
		case failed:
			return "KILLED"
		case timedOut:
			return "TIMED OUT"
		}
		tests = tests[k:]
	}
	return "LIVED"
}
