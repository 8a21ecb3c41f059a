package loadbench

import (
	"context"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processArgument makes the test binary a process of a run.
const processArgument = "loadbench-test-process"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == processArgument {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := Play(ctx, os.Args[2:], os.Stdin)
		stop()
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestASecondProcessorGivesAPullerWhatItsHoldersLeave(t *testing.T) {
	for _, c := range []struct {
		puller, holders time.Duration
		processors      int
		want            float64
	}{
		{10, 0, 2, 2},    // nothing else runs
		{60, 40, 2, 1.2}, // 60 on its own against 50 on each
		{60, 40, 32, 2},  // holders have others
		{40, 60, 2, 1},   // holders take more than the puller leaves
	} {
		if got := mostRatio(c.puller, c.holders, c.processors); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// How fast is not asked here.
func TestAQuickRunMeasuresEverything(t *testing.T) {
	opt := Options{Sizes: []uint32{64 << 10, 100_000}, Self: []string{os.Args[0], processArgument}, Dir: t.TempDir()}
	opt.Quick()
	rep, err := Run(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Loads) != 4 || len(rep.Puts) != 2 || rep.Machine == "" || rep.Hash == "" {
		t.Fatalf("%+v", rep)
	}
	positive := func(what string, size uint32, figures map[string]float64) {
		for name, v := range figures {
			if v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s of %d bytes: %s is %v", what, size, name, v)
			}
		}
	}
	for i, l := range rep.Loads {
		if l.Holders != i%2+1 {
			t.Errorf("load %d is from %d holders", i, l.Holders)
		}
		positive("load", l.BlockBytes, map[string]float64{"plain": l.Plain, "hash": l.Hash, "bound": l.Bound, "cold": l.Cold, "warm": l.Warm,
			"warm to bound": l.WarmToBound, "cold to warm": l.ColdToWarm})
		if l.Bound > l.Plain {
			t.Errorf("contradiction: %+v", l)
		}
	}
	for _, p := range rep.Puts {
		positive("put", p.BlockBytes, map[string]float64{"copy": p.Copy, "copy and hash": p.CopySum, "bound": p.Bound, "cold": p.Cold, "warm": p.Warm})
	}
	for _, c := range rep.Cores {
		positive("cores", c.BlockBytes, map[string]float64{"one": c.One, "two": c.Two, "ratio": c.Ratio, "at most": c.Most})
	}
	head, rows := rep.Rows()
	if len(rows) != len(rep.Loads)+len(rep.Puts)+len(rep.Cores) || len(rows[0]) != len(head) || !strings.Contains(rep.Note(), rep.Hash) {
		t.Errorf("table %v %v %q", head, rows, rep.Note())
	}
}

func TestADaemonThatCannotStartIsNamedWithItsReason(t *testing.T) {
	opt := Options{Sizes: []uint32{64 << 10}, Self: []string{os.Args[0], processArgument, "no-such-role"}, Dir: t.TempDir()}
	opt.Quick()
	if _, err := Run(t.Context(), opt); err == nil || !strings.Contains(err.Error(), "no-such-role") {
		t.Errorf("%v does not give the process's own words", err)
	}
}

func TestOptionsThatCannotBeAreNamed(t *testing.T) {
	for want, o := range map[string]Options{
		"no program":   {},
		"block size 0": {Self: []string{"x"}, Sizes: []uint32{0}},
		"block size 9": {Self: []string{"x"}, Sizes: []uint32{9}, Bytes: 8},
		"9 holders":    {Self: []string{"x"}, Holders: []int{9}},
		"-1 rounds":    {Self: []string{"x"}, Rounds: -1},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v does not say %q", o, err, want)
		}
	}
}
