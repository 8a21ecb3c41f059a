package peers

import (
	"fmt"

	"meridian/bench/measure"
)

// NIXL makes the run the comparison with NIXL: two of its processes at their best, and
// our helper with a target of its own, over the same transports of UCX.
func (o *Options) NIXL() {
	o.Only = []string{"nixl-tcp", helperTCP, "nixl-cma", helperCMA, commitCost}
	o.Streams = []int{1, 4}
	if len(o.Sizes) == 0 && !o.Quick {
		o.Sizes = []uint64{64 << 10, 256 << 10, 1 << 20, 4 << 20}
	}
}

// The goal of that run. It is told, and fails nothing.
const (
	goalNIXL     = 0.9 // of NIXL over the same transport, from goalNIXLSize on
	goalNIXLSize = 256 << 10
)

// NIXLReport is such a run.
type NIXLReport struct {
	Report
	Missed []string `json:"missed_goals"`
}

// NewNIXLReport says of a run which goals it missed.
func NewNIXLReport(rep Report) NIXLReport {
	out := NIXLReport{Report: rep, Missed: []string{}}
	for _, c := range rep.Cells {
		for _, r := range c.Results {
			if goal, met := nixlGoal(c.Cell, r); goal != "" && !met {
				out.Missed = append(out.Missed, c.String()+": "+r.System+": "+goal)
			}
		}
	}
	return out
}

// nixlGoal says what a row was to reach, and whether it did; "": there is no goal.
func nixlGoal(c Cell, r Result) (goal string, met bool) {
	if r.ToBeside == 0 || c.Size < goalNIXLSize { // not ours, or NIXL was not measured
		return "", true
	}
	if r.ToBeside < goalNIXL {
		return fmt.Sprintf("missed: %.2f, not %.2f", r.ToBeside, goalNIXL), false
	}
	return fmt.Sprintf("met: %.2f", goalNIXL), true
}

// Rows is the report for people: a line for each cell, and below it one for each system.
func (r NIXLReport) Rows() (head []string, rows [][]string) {
	head = []string{"system", "GB/s", "least-most", "p50", "p99", "CPU s/GB", "transport", "× nixl", "goal"}
	for _, c := range r.Cells {
		rows = append(rows, []string{c.String()})
		for _, res := range c.Results {
			if res.Error != "" {
				rows = append(rows, failedRow(res))
				continue
			}
			goal, _ := nixlGoal(c.Cell, res)
			rows = append(rows, []string{
				"  " + res.System, number("%.2f", res.Rate), spread(res), measure.Latency(res.P50), measure.Latency(res.P99),
				number("%.2f", res.CPU), orDash(res.Via), number("%.2f", res.ToBeside), orDash(goal),
			})
		}
		rows = append(rows, r.skippedRows()...)
	}
	return head, rows
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Note says on what it was measured, and what the names stand for.
func (r NIXLReport) Note() string {
	return r.where() + fmt.Sprintf("Goal, which %d rows missed: %.2f × NIXL over the same transport from 256 KiB on. The helper's rate is before a block is made of what was moved: that takes a copy and a hash, whose rate on one core is the row %s.",
		len(r.Missed), goalNIXL, commitCost)
}
