package peers

import (
	"fmt"
	"strings"
	"testing"

	"meridian/internal/realpart"
)

// Our helper and a target that is NIXL's own move the right bytes, and the transport that
// is told is the one that the run is about.
func TestTheNIXLHelperMovesTheRightBytes(t *testing.T) {
	realpart.Packages(t, "peers")
	r := startRun(t, "nixl-tcp", helperTCP, helperCMA, commitCost)
	everyWay(t, r)
	for name, want := range map[string]string{helperTCP: "tcp", helperCMA: "cma", "nixl-tcp": ""} {
		if got := r.pairs[name].via; got != want {
			t.Errorf("%s went over %q, want %q", name, got, want)
		}
	}
	if r.pairs[helperTCP].helper == 0 {
		t.Error("the processor time of the helper is not counted")
	}
}

func TestTheNIXLRunComparesOneTransportWithItself(t *testing.T) {
	o := Options{Self: []string{"x"}}
	o.NIXL()
	cells := matrix(filled(t, o))
	if len(cells) != 2*4*2 {
		t.Errorf("%d cells", len(cells))
	}
	r := &run{opt: o}
	for _, op := range []Op{Read, Write} {
		if got := r.systems(op); len(got) != 5 {
			t.Errorf("%s: %v", op, got)
		}
	}
	for _, s := range r.systems(Read) {
		if (s.beside != "") != (s.name == helperTCP || s.name == helperCMA) {
			t.Errorf("%s is compared with %q", s.name, s.beside)
		}
	}
}

func TestGoalsOfNIXLAreToldAndFailNothing(t *testing.T) {
	large, small := whole(Read, 256<<10, 1, hotSet), whole(Read, 64<<10, 1, hotSet)
	rep := NewNIXLReport(Report{
		Cells: []CellReport{
			{Cell: large, Results: []Result{
				{System: "nixl-tcp", Rate: 2}, {System: helperTCP, Rate: 1, ToBeside: 0.5, Via: "tcp-emulated"}, {System: helperCMA, Rate: 1, ToBeside: 0.95}, {System: "nixl-cma", Error: "it\nbroke"},
			}},
			{Cell: small, Results: []Result{{System: helperTCP, Rate: 1, ToBeside: 0.1}, {System: commitCost, Rate: 3}}},
		},
		Skipped: []Skipped{{helperCMA, "not installed\nsee there"}},
	})
	_, rows := rep.Rows()
	text := fmt.Sprint(rows, rep.Note())
	for _, want := range []string{"tcp-emulated 0.50 missed: 0.50, not 0.90", "0.95 met: 0.90", "0.10 -]", "nixl-cma failed: it broke", "helper-cma skipped: not installed]", "which 1 rows missed", "row commit"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if len(rep.Missed) != 1 {
		t.Errorf("%q", rep.Missed)
	}
}
