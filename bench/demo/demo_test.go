package demo

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"meridian/conformance/chaos"
	"meridian/internal/invariants/leak"
)

// roleArgument makes the test binary play one of the demo's processes.
const roleArgument = "demo-test-process"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == roleArgument {
		if err := Play(context.Background(), os.Args[2], os.Args[3:], os.Stdin, os.Stdout); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	sizes["tiny"] = size{requests: 60, blockBytes: 16 << 10, prefill: 24 << 20, decode: 16 << 20, window: 3, replay: time.Millisecond}
	leak.Main(m)
}

func TestTheDemoMovesBlocksAndIsCleanOverBothFabrics(t *testing.T) {
	for _, fabric := range Fabrics() {
		t.Run(fabric, func(t *testing.T) {
			var out bytes.Buffer
			rep, err := Run(t.Context(), Options{Size: "tiny", Seed: 7, Fabric: fabric,
				Self: []string{os.Args[0], roleArgument}, Progress: Progress{W: &out}})
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if err := rep.Err(); err != nil { // what failed is in the verdict
				t.Fatal(err)
			}
			if rep.Requests != 60 || rep.Pulls == 0 || rep.MappedReads == 0 || rep.HitRatio == 0 || rep.BytesRead <= rep.BytesStored/2 {
				t.Errorf("implausible: %+v", rep)
			}
			transport := map[string]string{"link": "tcp", "synthetic": "mem"}[fabric]
			for _, p := range rep.Paths {
				if p.Bytes == 0 || p.Transport != transport {
					t.Errorf("path %+v, want transport %s", p, transport)
				}
			}
			for _, want := range []string{"/metrics", "mrdn --admin", "replaying 60 requests"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the run does not say %q:\n%s", want, out.String())
				}
			}
			for line := range strings.Lines(out.String()) {
				if len(line) > Columns {
					t.Errorf("a line of progress is longer than %d columns: %q", Columns, line)
				}
			}
			fits(t, rep)
		})
	}
}

// A run that proves nothing, or that went wrong, must fail, whatever the rest
// looks like.
func TestAReportThatMustFailDoes(t *testing.T) {
	good := Report{Paths: []Path{{Bytes: 1}}, BitsFlipped: 1, ChecksumFailures: 1, OffloadedBytes: 1, Judge: chaos.Report{Served: 1, Bytes: 1, Acked: 1}}
	if g := good; true {
		g.judgeItself()
		if g.Err() != nil {
			t.Fatalf("a clean report fails: %v", g.Err())
		}
	}
	for name, spoil := range map[string]func(*Report){
		"nothing moved":       func(r *Report) { r.Paths = nil },
		"wrong bytes":         func(r *Report) { r.WrongBytes = 1 },
		"no bit flipped":      func(r *Report) { r.BitsFlipped, r.ChecksumFailures = 0, 0 },
		"a flip went through": func(r *Report) { r.ChecksumFailures = 0 },
		"a false alarm":       func(r *Report) { r.ChecksumFailures = 2 },
		"leaked lease":        func(r *Report) { r.LeakedLeases = 1 },
		"leaked slot":         func(r *Report) { r.LeakedSlots = 1 },
		"missed ExitThink":    func(r *Report) { r.Reasoning = 1 },
		"nothing offloaded":   func(r *Report) { r.OffloadedBytes = 0 },
		"the judge convicts":  func(r *Report) { r.Judge.Kinds = map[chaos.Kind]uint64{chaos.Lost: 1} },
		"the judge heard nil": func(r *Report) { r.Judge = chaos.Report{} },
	} {
		r := good
		spoil(&r)
		r.judgeItself()
		if r.Err() == nil {
			t.Errorf("%s: the report passes", name)
		}
	}
}

func TestJobsFollowFromTheSeedAlone(t *testing.T) {
	reqs, err := sizes["medium"].work()
	if err != nil {
		t.Fatal(err)
	}
	ns := manifest(64 << 10).Namespace()
	a, b, other := jobs(ns, 1, reqs), jobs(ns, 1, reqs), jobs(ns, 2, reqs)
	reason, differ, resume := 0, 0, 0
	for i := range a {
		if len(a[i].think) != len(b[i].think) || a[i].resumes != b[i].resumes {
			t.Fatalf("job %d differs between two runs of one seed", i)
		}
		if len(a[i].think) > 0 {
			reason++
			if n := len(a[i].think); n < minThink || n > maxThink {
				t.Errorf("job %d thinks %d blocks", i, n)
			}
		}
		if a[i].resumes {
			resume++
		}
		if len(a[i].think) != len(other[i].think) {
			differ++
		}
	}
	if share := float64(reason) / float64(len(a)); share < 0.35 || share > 0.45 {
		t.Errorf("%.2f of the requests reason, want about %.1f", share, reasonShare)
	}
	if differ < len(a)/4 || resume == 0 {
		t.Errorf("another seed changes %d of %d jobs; %d resume", differ, len(a), resume)
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	for _, c := range []struct {
		opt  Options
		want string
	}{
		{Options{Size: "huge", Fabric: "link", Self: []string{"x"}}, `size "huge"`},
		{Options{Size: "small", Fabric: "rdma", Self: []string{"x"}}, `fabric "rdma"`},
		{Options{Size: "small", Fabric: "link"}, "no program"},
	} {
		if err := c.opt.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v does not say %s", c.opt, err, c.want)
		}
	}
}

// An engine that dies in the middle ends the run with its name, and leaves no
// process behind.
func TestADyingProcessEndsTheRun(t *testing.T) {
	_, err := Run(t.Context(), Options{Size: "tiny", Seed: 1, Fabric: "link", Self: []string{"/bin/false"}})
	if err == nil {
		t.Fatal("a run whose processes all fail succeeds")
	}
}
