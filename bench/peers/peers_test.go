package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/internal/invariants/leak"
	"meridian/internal/realpart"
)

const (
	// ownArgument makes the test binary a process of a pair, and faultArgument one
	// that does what its next argument says instead.
	ownArgument   = "peers-test-process"
	faultArgument = "peers-test-fault"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == ownArgument:
		if err := Play(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) > 2 && os.Args[1] == faultArgument:
		misbehave(os.Args[2])
		os.Exit(0)
	}
	leak.Main(m)
}

// misbehave answers every order wrongly in one way.
func misbehave(how string) {
	_, _ = os.Stderr.WriteString("about to " + how + "\n")
	fmt.Println(`{"version":"1"}`)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch how {
		case "talk":
			fmt.Println("hello, I am a library")
		case "die":
			return
		case "refuse":
			fmt.Println(`{"error":"no"}`)
		case "idle":
			fmt.Println(`{"bytes":0,"seconds":1}`)
		case "boast":
			fmt.Println(`{"bytes":4096,"seconds":1,"took":[5,5]}`)
		case "skip":
			fmt.Println(`{"bytes":100}`)
		}
	}
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func faulty(t *testing.T, how string) *pair {
	t.Helper()
	p := &pair{peer: "anything"}
	for _, q := range []**process{&p.target, &p.initiator} {
		var err error
		if *q, err = start(t.TempDir(), how, exec.Command(self(t), faultArgument, how), true); err != nil {
			t.Fatal(err)
		}
		if a, err := (*q).answer(t.Context(), "start", answerWait); err != nil || a.Version != "1" {
			t.Fatal(a, err)
		}
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

var small = Cell{Op: Read, Size: 4096, Batch: 1, Streams: 1, Set: hotSet}

// A driver that moves nothing, or tells more than it can have moved, is a
// failure and no figure; what a process says and how it ends is told.
func TestADriverThatMisbehavesIsAFailure(t *testing.T) {
	for how, want := range map[string]string{
		"talk":   "is no answer",
		"die":    "unexpected EOF",
		"refuse": "it says: no",
		"idle":   "moved 0 bytes",
		"boast":  "moved 4096 bytes in 2 batches",
	} {
		p := faulty(t, how)
		_, err := p.measure(t.Context(), system{name: "x"}, small, time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", how, err, want)
		}
		var gone *ProcessError
		if errors.As(err, &gone) && (gone.Do != doRun || !strings.Contains(gone.Log, "about to "+how)) {
			t.Errorf("%s: %+v", how, gone)
		}
	}
}

// A pair that ends is a failure of this and every later cell, never a row that
// is silently not there.
func TestAPairThatEndsFailsInEveryLaterCell(t *testing.T) {
	s := system{name: "x", pair: "x", read: "x"}
	r := &run{pairs: map[string]*pair{"x": faulty(t, "die")}, dead: map[string]error{}}
	for cell := range 2 {
		err := r.with(s, func(p *pair) error { return p.prepare(t.Context(), s, small) })
		var gone *ProcessError
		if !errors.As(err, &gone) || (cell > 0) != strings.Contains(err.Error(), "ended before") {
			t.Errorf("cell %d: %v", cell, err)
		}
	}
}

func TestACheckThatComparesTooLittleIsAFailure(t *testing.T) {
	err := faulty(t, "skip").prepare(t.Context(), system{name: "x"}, small)
	if err == nil || !strings.Contains(err.Error(), "compared 100 bytes, want the 4096") {
		t.Error(err)
	}
}

func TestAProcessThatDoesNotAnswerIsGivenUp(t *testing.T) {
	p := faulty(t, "ignore")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.initiator.ask(ctx, command{Do: doRun}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-p.initiator.Done()
}

func TestAProcessAtRestAnswersAgain(t *testing.T) {
	p := faulty(t, "idle")
	if err := errors.Join(p.initiator.Rest(), p.initiator.Rest(), p.initiator.Wake(), p.initiator.Wake()); err != nil {
		t.Fatal(err)
	}
	before, err := p.cpu()
	if err != nil || before <= 0 {
		t.Fatalf("%v, %v", before, err)
	}
	if a, err := p.initiator.ask(t.Context(), command{Do: doRun}); err != nil || a.Seconds != 1 {
		t.Error(a, err)
	}
	if after, err := p.cpu(); err != nil || after <= before {
		t.Errorf("%v after %v, %v: no time for an answer", after, before, err)
	}
}

// A short run of our own systems moves bytes in every cell and both directions,
// with a bound under every verified row. How fast is not asked here.
func TestAQuickRunOfOurOwnSystems(t *testing.T) {
	rep, err := Run(t.Context(), Options{
		Quick: true, Only: []string{"link", "engine", "plain", "memory"}, Round: 3 * time.Millisecond, Self: []string{self(t), ownArgument},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Cells) != 4 || rep.Congestion == "" || rep.Machine == "" {
		t.Fatalf("%+v", rep)
	}
	for _, c := range rep.Cells {
		for _, s := range (&run{opt: Options{Only: []string{"link", "engine", "plain", "memory"}}}).systems(c.Op) {
			i := slices.IndexFunc(c.Results, func(r Result) bool { return r.System == s.name })
			if i < 0 {
				t.Errorf("%v: no %s", c.Cell, s.name)
				continue
			}
			r := c.Results[i]
			if r.N == 0 || r.P50 <= 0 || r.P99 < r.P50 || r.P999 < r.P99 || !s.still && (r.Rate <= 0 || r.CPU <= 0 || r.ToLink <= 0) {
				t.Errorf("%v: %+v", c.Cell, r)
			}
			if (s.bound != "") != (r.Bound > 0) {
				t.Errorf("%v: %s has bound %v", c.Cell, s.name, r.Bound)
			}
		}
	}
	if plots := rep.Plots(); len(plots) != 3 {
		t.Errorf("%d plots", len(plots))
	}
	if _, err := json.Marshal(rep); err != nil {
		t.Error(err)
	}
}

// Four streams, a batch and a hot set, without running the whole matrix.
func TestStreamsAndRewritesAreChecked(t *testing.T) {
	r := startRun(t, "link", "engine", "plain", "memcpy")
	for _, op := range []Op{Write, Read, Write} { // a read after a write finds its content again
		for _, streams := range []int{4, 1} {
			c, _ := cell(op, 16<<10, 8, streams, true, hotSet)
			for _, s := range r.systems(op) {
				if err := r.with(s, func(p *pair) error { return p.prepare(t.Context(), s, c) }); err != nil {
					t.Errorf("%v: %s: %v", c, s.name, err)
				}
			}
		}
	}
}

// startRun is a run whose pairs are started and whose cells the test chooses.
func startRun(t *testing.T, only ...string) *run {
	t.Helper()
	dir, err := os.MkdirTemp("", "peers-") // a Unix socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	opt := filled(t, Options{Quick: true, Only: only, Python: filepath.Join(realpart.Root(t), ".tools", "py", "peers"), Require: true})
	opt.Self = []string{self(t), ownArgument}
	if slices.ContainsFunc(only, func(name string) bool { return nixlTransports[name] != "" }) {
		opt.Helper = filepath.Join(dir, "built")
		if out, err := exec.Command("go", "build", "-o", opt.Helper, "meridian/cmd/meridian-ffi").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	r := &run{opt: opt, cells: matrix(opt), dir: dir, pairs: map[string]*pair{}, lost: map[string]error{}, dead: map[string]error{}}
	t.Cleanup(func() {
		for _, p := range r.pairs {
			if err := p.stop(); err != nil {
				t.Error(err)
			}
		}
		_ = os.RemoveAll(dir)
	})
	if err := r.unpack(); err != nil {
		t.Fatal(err)
	}
	rep, err := r.describe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.startAll(t.Context(), &rep); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMissingPeersAreSkippedOrRequired(t *testing.T) {
	realpart.Python(t)
	opt := Options{Quick: true, Only: []string{"memcpy", "mooncake", "nixl-cma"}, Ops: []Op{Read}, Round: time.Millisecond, Python: t.TempDir(), Self: []string{self(t), ownArgument}}
	rep, err := Run(t.Context(), opt)
	if err != nil || len(rep.Skipped) != 2 || rep.Skipped[0].System != "mooncake" || !strings.Contains(rep.Skipped[0].Reason, "internal/ci/python.sh peers") {
		t.Errorf("%+v, %v", rep.Skipped, err)
	}
	for _, c := range rep.Cells {
		if len(c.Results) != 1 || c.Results[0].System != "memcpy" {
			t.Errorf("%v: %+v", c.Cell, c.Results)
		}
	}
	opt.Require = true
	var missing *MissingError
	if _, err := Run(t.Context(), opt); !errors.As(err, &missing) || missing.System != "mooncake" && missing.System != "nixl-cma" {
		t.Errorf("required: %v", err)
	}
}

func TestRealMooncakeAndNIXLMoveTheRightBytes(t *testing.T) {
	realpart.Packages(t, "peers")
	r := startRun(t, "mooncake", "nixl")
	everyWay(t, r)
}

// The drivers' common part, with the smallest system there can be: both
// directions pass their checks, and a system that puts every byte a word too far
// passes none.
func TestTheDriversCheckWhatTheyMove(t *testing.T) {
	python := realpart.Python(t)
	tiny, err := filepath.Abs("testdata/tiny.py")
	if err != nil {
		t.Fatal(err)
	}
	r := startRun(t, "hash")
	for _, how := range []string{"right", "wrong"} {
		p, err := r.startDrivers(t.Context(), how, []string{python, tiny}, []string{"PYTHONPATH=" + r.dir, "TINY=" + how})
		r.pairs[how] = p
		if err != nil || p.version != "tiny 1" {
			t.Fatalf("%+v, %v", p, err)
		}
		for _, op := range []Op{Read, Write, Read} {
			c, _ := cell(op, 4<<10, 3, 1, true, hotSet)
			err := p.prepare(t.Context(), system{name: "tiny"}, c)
			if how == "wrong" {
				if err == nil || !strings.Contains(err.Error(), "wrong content") {
					t.Errorf("%v, a word too far: %v", c, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%v: %v", c, err)
			}
			if got, err := p.measure(t.Context(), system{name: "tiny"}, c, 2*time.Millisecond); err != nil || got.rate <= 0 {
				t.Errorf("%v: %+v, %v", c, got, err)
			}
		}
	}
}
