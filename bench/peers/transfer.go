package peers

import (
	"fmt"

	"meridian/bench/measure"
)

// Transfer makes the run the comparison of transfer engines: each initiator with each
// target, Mooncake's and ours, Mooncake's with itself through a relay, and the plain
// socket under them.
func (o *Options) Transfer() {
	o.Only = []string{theirs, oursToTheirs, theirsToOurs, relayed, ours, plainTCP, windowCost}
	o.Streams = []int{1, 4}
	if len(o.Sizes) == 0 && !o.Quick {
		o.Sizes = []uint64{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
	}
}

// Goals of the comparison. They are told, and fail nothing.
const (
	goalMixed     = 1.0  // × Mooncake with itself, of either side beside the other's
	goalStreams   = 1.3  // × Mooncake with itself, of ours with four streams
	goalPlain     = 0.85 // of the plain socket, of ours, from goalPlainSize on
	goalPlainSize = 64 << 10
)

// TransferReport is such a run.
type TransferReport struct {
	Report
	Missed []string `json:"missed_goals"`
}

// NewTransferReport says of a run which goals it missed.
func NewTransferReport(rep Report) TransferReport {
	out := TransferReport{Report: rep, Missed: []string{}}
	for _, c := range rep.Cells {
		for _, r := range c.Results {
			if _, missed := goals(c.Cell, r); missed != "" {
				out.Missed = append(out.Missed, c.String()+": "+r.System+": "+missed)
			}
		}
	}
	return out
}

// goals says what a row was to reach, and what of it it did not.
func goals(c Cell, r Result) (want, missed string) {
	check := func(have, goal float64, over string) {
		if have == 0 { // one of both was not measured
			return
		}
		want = list(want, fmt.Sprintf("%.2f × %s", goal, over))
		if have < goal {
			missed = list(missed, fmt.Sprintf("%.2f, not %.2f × %s", have, goal, over))
		}
	}
	switch r.System {
	case oursToTheirs, theirsToOurs:
		check(r.ToMooncake, goalMixed, theirs)
	case ours:
		if c.Size >= goalPlainSize {
			check(r.ToPlain, goalPlain, plainTCP)
		}
		if c.Streams == 4 {
			check(r.ToMooncake, goalStreams, theirs)
		}
	}
	return want, missed
}

func list(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

// Rows is the report for people: a line for each cell, and below it one for each pair.
func (r TransferReport) Rows() (head []string, rows [][]string) {
	head = []string{"initiator-target", "GB/s", "least-most", "p50", "p99", "CPU s/GB", "× " + theirs, "× " + plainTCP, "goal"}
	for _, c := range r.Cells {
		rows = append(rows, []string{c.String()})
		for _, res := range c.Results {
			if res.Error != "" {
				rows = append(rows, failedRow(res))
				continue
			}
			want, missed := goals(c.Cell, res)
			goal := "-"
			switch {
			case missed != "":
				goal = "missed: " + missed
			case want != "":
				goal = "met: " + want
			}
			if res.System == windowCost { // other work, and one core
				res.ToMooncake, res.ToPlain = 0, 0
			}
			rows = append(rows, []string{
				"  " + res.System, number("%.2f", res.Rate), spread(res), measure.Latency(res.P50), measure.Latency(res.P99),
				number("%.2f", res.CPU), number("%.2f", res.ToMooncake), number("%.2f", res.ToPlain), goal,
			})
		}
		rows = append(rows, r.skippedRows()...)
	}
	return head, rows
}

// Note says on what it was measured, and what the names stand for.
func (r TransferReport) Note() string {
	return r.where() + fmt.Sprintf("Goals, of which %d were missed: each side of ours with the other's at least %.1f × %s; ours with ours %.2f × %s from 64 KiB on, and %.1f × %s with four streams.",
		len(r.Missed), goalMixed, theirs, goalPlain, plainTCP, goalStreams, theirs)
}
