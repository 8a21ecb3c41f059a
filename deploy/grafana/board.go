package grafana

import (
	"regexp"
	"slices"
	"strings"
)

// Row is a titled line of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Kind is how a panel draws.
type Kind uint8

// The kinds of Panel.
const (
	Lines Kind = iota // time series
	Stack             // time series, stacked: shares of a whole
	Tile              // the last value as a number
	Names             // the last value's labels as text
)

// Panel is one plot.
type Panel struct {
	Title   string
	About   string // what a reader learns from it; the series are named by the renderer
	Kind    Kind
	Unit    string // Grafana's unit id
	Width   uint32 // of 24 columns
	Queries []Query
	Steps   []Step // thresholds above the base, ascending
	Base    Color  // below the first step; empty: Good
	Max     float64
}

// Query is one PromQL expression. {@} and {@, stand for the matchers of the
// board's instance variable.
type Query struct {
	Expr   string
	Legend string // {{label}} is the label's value
}

// Step is a threshold.
type Step struct {
	From  float64
	Color Color
}

// Color is one of Grafana's palette.
type Color string

// The colours, by what they say.
const (
	Good Color = "green"
	Warn Color = "orange"
	Bad  Color = "red"
)

// instances is what {@} becomes.
const instances = `instance=~"$instance"`

// PromQL is the expression as Grafana stores it.
func (q Query) PromQL() string {
	return strings.ReplaceAll(q.Expr, "{@", "{"+instances)
}

// selector finds the names of samples in an expression: what has matchers.
var selector = regexp.MustCompile(`\b([a-z][a-z0-9_]*)\{`)

// Series are the sample names that the panel reads, in order of name.
func (p Panel) Series() []string {
	var names []string
	for _, q := range p.Queries {
		for _, m := range selector.FindAllStringSubmatch(q.Expr, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Series are the sample names that the boards read, in order of name: what a
// daemon's /metrics must have once everything has happened. Of a histogram it is
// the sample (name_bucket), not the family.
func Series() []string {
	var names []string
	for _, r := range Rows() {
		for _, p := range r.Panels {
			names = append(names, p.Series()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// quantiles are p50 and p99 of a histogram over the rate interval, by labels.
func quantiles(name string, by ...string) []Query {
	legend := ""
	for _, l := range by {
		legend += " {{" + l + "}}"
	}
	sum := "sum by (" + strings.Join(append([]string{"le"}, by...), ", ") + ") (rate(" + name + "_bucket{@}[$__rate_interval]))"
	return []Query{
		{"histogram_quantile(0.5, " + sum + ")", "p50" + legend},
		{"histogram_quantile(0.99, " + sum + ")", "p99" + legend},
	}
}

// rate is a counter's increase a second, summed by labels.
func rate(name string, by ...string) string {
	return "sum by (" + strings.Join(by, ", ") + ") (rate(" + name + "{@}[$__rate_interval]))"
}
