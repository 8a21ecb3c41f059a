package peers

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"meridian/bench/measure"
)

func someSystems(names ...string) []system {
	var out []system
	for _, n := range names {
		for _, s := range systems {
			if s.name == n {
				out = append(out, s)
			}
		}
	}
	return out
}

func rates(v ...float64) []sample {
	var out []sample
	for i, r := range v {
		out = append(out, sample{rate: r, cpu: 1 / r, took: []time.Duration{time.Duration(i+1) * time.Millisecond}})
	}
	return out
}

// Ratios are of one round each: a machine that becomes slower from round to
// round does not move them, where medians of rates would.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	all := someSystems("link-tcp", "mooncake", "plain-tcp", "hash", "engine-map")
	got := summarize(Cell{Op: Read, Size: 4096, Batch: 1, Streams: 1, Set: 1 << 20}, all, map[string][]sample{
		"link-tcp": rates(8, 4, 2), "mooncake": rates(4, 2, 1), "plain-tcp": rates(16, 8, 4), "hash": rates(8, 4, 2), "engine-map": rates(100, 100, 100),
	}, nil)
	by := map[string]Result{}
	for _, r := range got.Results {
		by[r.System] = r
	}
	link := by["link-tcp"]
	if link.Rate != 4 || link.Min != 2 || link.Max != 8 || link.ToLink != 1 || link.N != 3 || link.P50 != 0.002 || link.P99 != 0.003 || link.CPU != 0.25 {
		t.Errorf("link-tcp: %+v", link)
	}
	if r := by["mooncake"]; r.ToLink != 0.5 || r.Bound != 0 {
		t.Errorf("mooncake: %+v, want half of the link and no bound", r)
	}
	if want := measure.Bound(8, 4, runtime.NumCPU()); math.Abs(link.Bound-want) > 1e-9 || math.Abs(link.ToBound-4/want) > 1e-9 {
		t.Errorf("bound %v and %v of it, want %v and %v", link.Bound, link.ToBound, want, 4/want)
	}
	if r := by["engine-map"]; r.Rate != 0 || r.CPU != 0 || r.ToLink != 0 || r.P50 == 0 {
		t.Errorf("a map that nothing touches has a rate: %+v", r)
	}
}

// Without plain sockets or the hash in the run there is no bound, and no figure
// of another run takes its place.
func TestNoBoundWithoutItsParts(t *testing.T) {
	got := summarize(Cell{}, someSystems("link-tcp"), map[string][]sample{"link-tcp": rates(3)}, nil)
	if r := got.Results[0]; r.Bound != 0 || r.ToBound != 0 || r.ToLink != 1 {
		t.Errorf("%+v", r)
	}
}

func report() Report {
	r := Report{Machine: "a <machine> & more", CPUs: 2, Congestion: "cubic", Versions: map[string]string{"redis": "7"}, Skipped: []Skipped{{"nixl-tcp", "not installed\nmore"}}}
	for _, s := range someSystems("link-tcp", "mooncake", "plain-tcp") {
		r.Systems = append(r.Systems, SystemInfo{Name: s.name, About: s.about, Read: s.read, Verify: s.verify})
	}
	for i, size := range []uint64{4 << 10, 64 << 10, 1 << 20} {
		for _, batch := range []int{1, 16} {
			r.Cells = append(r.Cells, CellReport{Cell{Op: Read, Size: size, Batch: batch, Streams: 1, Set: 256 << 20}, []Result{
				{System: "link-tcp", Rate: float64(i+1) * float64(batch), CPU: 0.5, ToLink: 1, Bound: 40, ToBound: 0.5, N: 1},
				{System: "mooncake", Rate: 0.05 + float64(i), CPU: 2, N: 1},
				{System: "plain-tcp", Error: "it <broke>\nbadly"},
			}})
		}
	}
	return r
}

func TestTheTableNamesEverySystemFailedAndSkippedOnes(t *testing.T) {
	r := report()
	head, rows := r.Rows()
	var text strings.Builder
	for _, row := range rows {
		if len(row) != 1 && len(row) != len(head) {
			t.Errorf("row %q has %d cells, the head %d", row, len(row), len(head))
		}
		text.WriteString(strings.Join(row, " ") + "\n")
	}
	for _, want := range []string{"read 64 KiB × 16, 1 stream, cold (256 MiB)", "link-tcp 32.00", "50% of 40.00", "plain-tcp failed: it <broke> badly", "nixl-tcp skipped: not installed\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, text.String())
		}
	}
	if note := r.Note(); !strings.Contains(note, "cubic") || !strings.Contains(note, "the host's network namespace") || !strings.Contains(note, "always on") {
		t.Errorf("note %q", note)
	}
	if err := r.err(); err == nil || strings.Count(err.Error(), "badly") != len(r.Cells) {
		t.Errorf("failures %v", err)
	}
}

// The plots are well-formed XML, show each system that has a rate, and escape
// what comes from outside.
func TestPlotsAreWellFormed(t *testing.T) {
	plots := report().Plots()
	if len(plots) != 2 { // no writes were measured
		t.Fatalf("%d plots", len(plots))
	}
	for name, svg := range plots {
		d := xml.NewDecoder(strings.NewReader(svg))
		var texts strings.Builder
		count := map[string]int{}
		for {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch tok := tok.(type) {
			case xml.StartElement:
				count[tok.Name.Local]++
				for _, a := range tok.Attr {
					if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
						t.Errorf("%s: %s=%q", name, a.Name.Local, a.Value)
					}
				}
			case xml.CharData:
				texts.WriteString(string(tok) + "\n")
			}
		}
		if count["path"] != 2 || count["circle"] != 6 {
			t.Errorf("%s: %v, want two lines of three points", name, count)
		}
		for _, want := range []string{"link-tcp", "mooncake", "64 KiB", "a <machine> & more"} {
			if !strings.Contains(texts.String(), want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
	}
}
