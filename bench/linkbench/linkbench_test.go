package linkbench

import (
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"meridian/internal/invariants/leak"
	"meridian/wire"
)

// holderArgument makes the test binary the holder of a run.
const holderArgument = "linkbench-test-holder"

func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == holderArgument {
		capacity, err := strconv.ParseUint(os.Args[2], 10, 64)
		if err == nil {
			var lanes int
			if lanes, err = strconv.Atoi(os.Args[3]); err == nil {
				err = Hold(context.Background(), capacity, lanes, os.Args[4], os.Args[5], os.Stdin, os.Stdout)
			}
		}
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

// A short run measures everything that the report shows. How fast is not
// asked here.
func TestARunMeasuresEverything(t *testing.T) {
	rep, err := Run(t.Context(), Options{
		Sizes: []uint32{4 << 10, 100_000}, Mapped: []uint32{4 << 10}, Urgent: 16 << 10, Batch: 8, Streams: 2,
		Round: 30 * time.Millisecond, Rounds: 2, Set: 4 << 20, Self: []string{os.Args[0], holderArgument},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Pulls) != 2 || len(rep.Mapped) != 1 || rep.Machine == "" || rep.Hash == "" {
		t.Fatalf("%+v", rep)
	}
	for _, p := range rep.Pulls {
		for name, v := range map[string]float64{"plain": p.Plain, "hash": p.Hash, "bound": p.Bound, "rate": p.Rate, "ratio": p.Ratio, "p50": p.P50, "p99": p.P99} {
			if v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%d bytes: %s is %v", p.BlockBytes, name, v)
			}
		}
		if p.Bound > p.Plain || p.P99 < p.P50 || p.RateMin > p.RateMax {
			t.Errorf("contradiction: %+v", p)
		}
	}
	if m := rep.Mapped[0]; m.P50 <= 0 || m.EchoP50 <= 0 {
		t.Errorf("mapped read %+v", m)
	}
	if o := rep.Overtaking; o.IdleP99 <= 0 || o.LoadedP99 <= 0 || o.UnorderedP99 <= 0 || o.OffloadGBs <= 0 {
		t.Errorf("urgent pull %+v", o)
	}
	head, rows := rep.Rows()
	if len(rows) != 5 || len(rows[0]) != len(head) || !strings.Contains(rep.Note(), rep.Hash) {
		t.Errorf("table %v %v %q", head, rows, rep.Note())
	}
}

func TestOptionsThatCannotBeAreNamed(t *testing.T) {
	for want, o := range map[string]Options{
		"no program":    {},
		"block size 0":  {Self: []string{"x"}, Sizes: []uint32{0}},
		"streams 99":    {Self: []string{"x"}, Streams: 99},
		"batch 100000,": {Self: []string{"x"}, Batch: 100000},
	} {
		if err := o.fill(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v does not say %q", o, err, want)
		}
	}
}

func TestKeysFillTheSet(t *testing.T) {
	if n := len(keys(1<<20, 4<<20)); n != 4 {
		t.Errorf("%d keys, want 4", n)
	}
	seen := map[wire.Key]bool{}
	for _, k := range keys(64<<10, 4<<20) {
		seen[k] = true
	}
	if len(seen) != 64 {
		t.Errorf("%d distinct keys, want 64", len(seen))
	}
}
