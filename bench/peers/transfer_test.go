package peers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/internal/realpart"
)

func transferOptions(t *testing.T, o Options) Options {
	t.Helper()
	o.Self = []string{"x"}
	o.Transfer()
	return filled(t, o)
}

func TestTheTransferRunHasEverySizeWithOneStreamAndFour(t *testing.T) {
	cells := matrix(transferOptions(t, Options{}))
	if len(cells) != 2*5*2 {
		t.Errorf("%d cells", len(cells))
	}
	for _, c := range cells {
		if c.Batch != 16 || c.Size < 16<<10 || c.Set < c.near() || c.Set%c.Size != 0 {
			t.Errorf("%v: set of %d bytes", c, c.Set)
		}
	}
	if got := matrix(transferOptions(t, Options{Sizes: []uint64{1 << 20}, Ops: []Op{Read}})); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// Systems of the transfer run are in no other, and have a name of their own in Only.
func TestWhatIsApartRunsOnlyByItsName(t *testing.T) {
	apart := []string{oursToTheirs, theirsToOurs, relayed, ours, windowCost, helperTCP, helperCMA, commitCost}
	for _, only := range [][]string{nil, {"mooncake", "memory"}, Names()} {
		for _, s := range (&run{opt: Options{Only: only}}).systems("") {
			if slices.Contains(apart, s.name) {
				t.Errorf("only %v: %s", only, s.name)
			}
		}
	}
	if got := (&run{opt: Options{Only: apart}}).systems(Read); len(got) != 7 { // a window is taken in after a write
		t.Errorf("%v", got)
	}
}

func TestGoalsAreToldAndFailNothing(t *testing.T) {
	cell := whole(Read, 64<<10, 4, hotSet)
	small := whole(Read, 16<<10, 1, hotSet)
	for _, c := range []struct {
		Cell
		Result
		want, missed string
	}{
		{cell, Result{System: ours, ToMooncake: 1.5, ToPlain: 0.8}, "0.85 × plain-tcp, 1.30 × mooncake", "0.80, not 0.85 × plain-tcp"},
		{cell, Result{System: ours, ToMooncake: 1.2, ToPlain: 0.9}, "0.85 × plain-tcp, 1.30 × mooncake", "1.20, not 1.30 × mooncake"},
		{cell, Result{System: ours, ToPlain: 0.9}, "0.85 × plain-tcp", ""}, // Mooncake is not here
		{small, Result{System: ours, ToMooncake: 0.5, ToPlain: 0.1}, "", ""},
		{small, Result{System: oursToTheirs, ToMooncake: 0.5}, "1.00 × mooncake", "0.50, not 1.00 × mooncake"},
		{small, Result{System: theirsToOurs, ToMooncake: 1.5}, "1.00 × mooncake", ""},
		{small, Result{System: theirs, ToMooncake: 1}, "", ""},
	} {
		if want, missed := goals(c.Cell, c.Result); want != c.want || missed != c.missed {
			t.Errorf("%v %+v: %q, %q", c.Cell, c.Result, want, missed)
		}
	}
	rep := NewTransferReport(Report{
		Cells: []CellReport{{Cell: cell, Results: []Result{
			{System: ours, Rate: 1, ToPlain: 0.5}, {System: theirs, Error: "it\nbroke"}, {System: windowCost, Rate: 2, CPU: 0.17, ToMooncake: 9},
		}}},
		Skipped: []Skipped{{theirsToOurs, "not installed\nsee there"}},
	})
	_, rows := rep.Rows()
	text := fmt.Sprint(rows, rep.Note())
	for _, want := range []string{"missed: 0.50, not 0.85 × plain-tcp", "mooncake failed: it broke", "mooncake-te skipped: not installed]", "of which 1 were missed", "0.17"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if len(rep.Missed) != 1 || strings.Contains(text, "9.00") {
		t.Errorf("%q, %s", rep.Missed, text)
	}
}

// Our transfer engine moves the right bytes with itself, in both directions and with
// both numbers of streams, also after its target's memory has grown.
func TestOurTransferEngineMovesTheRightBytes(t *testing.T) {
	r := startRun(t, ours, windowCost)
	everyWay(t, r)
}

func TestTransferEnginesOfBothKindsMoveTheRightBytes(t *testing.T) {
	realpart.Packages(t, "peers")
	r := startRun(t, theirs, oursToTheirs, theirsToOurs, relayed)
	everyWay(t, r)
}

func everyWay(t *testing.T, r *run) {
	t.Helper()
	for _, op := range []Op{Write, Read, Write} {
		for _, streams := range []int{1, 4} {
			c, _ := cell(op, 16<<10, 4, streams, true, hotSet)
			for _, s := range r.systems(op) {
				err := r.with(s, func(p *pair) error {
					if err := p.prepare(t.Context(), s, s.of(c)); err != nil {
						return err
					}
					got, err := p.measure(t.Context(), s, s.of(c), 5*time.Millisecond)
					if err == nil && (got.rate <= 0 || got.cpu <= 0) {
						err = fmt.Errorf("%+v", got)
					}
					return err
				})
				if err != nil {
					t.Errorf("%v: %s: %v", c, s.name, err)
				}
			}
		}
	}
}
