package peers

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"meridian/agent/config"
	"meridian/bench/measure"
)

// Report is what a run measured. Rates are in GB/s (10^9 bytes), times in
// seconds.
type Report struct {
	Machine    string            `json:"machine"`
	CPUs       int               `json:"cpus"`
	Kernel     string            `json:"kernel"`
	Go         string            `json:"go"`
	Congestion string            `json:"congestion"` // as a connection has it
	Namespace  bool              `json:"network_namespace"`
	Hash       string            `json:"hash"`             // the code path in use
	CacheBytes uint64            `json:"last_cache_bytes"` // 0: unknown
	SetBytes   uint64            `json:"cold_set_bytes"`
	Lanes      int               `json:"link_lanes"`
	Rounds     int               `json:"rounds"`
	RoundMS    int64             `json:"round_ms"`
	Seconds    float64           `json:"seconds"` // that the run took
	Versions   map[string]string `json:"versions"`
	Systems    []SystemInfo      `json:"systems"`
	Skipped    []Skipped         `json:"skipped,omitempty"`
	Cells      []CellReport      `json:"cells"`
}

// SystemInfo says what a system's name stands for.
type SystemInfo struct {
	Name   string `json:"name"`
	About  string `json:"about"`
	Read   string `json:"read,omitempty"`
	Write  string `json:"write,omitempty"`
	Verify string `json:"verification"`
	Bound  string `json:"bound,omitempty"` // the plain system under it
}

// Skipped is a system that could not be had.
type Skipped struct {
	System string `json:"system"`
	Reason string `json:"reason"`
}

// CellReport is one cell with the systems in their order.
type CellReport struct {
	Cell
	Results []Result `json:"results"`
}

// Result is one system in one cell: rate and processor time are medians of the
// rounds, quantiles those of all batches of all rounds.
type Result struct {
	System string  `json:"system"`
	Error  string  `json:"error,omitempty"` // the other fields are then zero
	Rate   float64 `json:"gbs"`             // 0 where nothing is moved
	Min    float64 `json:"gbs_min"`
	Max    float64 `json:"gbs_max"`
	P50    float64 `json:"p50_seconds"`
	P99    float64 `json:"p99_seconds"`
	P999   float64 `json:"p999_seconds"`
	CPU    float64 `json:"cpu_seconds_per_gb"`
	N      int     `json:"batches"`
	// ToLink is the rate over that of link-tcp, Bound what nobody who verifies can
	// exceed with the plain system under this one, ToBound the rate over it: each
	// the median of the rounds. 0 where one of them was not measured.
	ToLink  float64 `json:"to_link_tcp"`
	Bound   float64 `json:"bound_gbs,omitempty"`
	ToBound float64 `json:"to_bound,omitempty"`
	// The rate over that of Mooncake's engine with itself, and over the plain socket's.
	ToMooncake float64 `json:"to_mooncake,omitempty"`
	ToPlain    float64 `json:"to_plain_tcp,omitempty"`
	// The rate over that of the foreign system of the same transport, and the transport in
	// use, as UCX told it.
	ToBeside float64 `json:"to_beside,omitempty"`
	Via      string  `json:"via,omitempty"`
}

// summarize makes a cell's report of its samples, one a round and system.
func summarize(c Cell, all []system, samples map[string][]sample, failed map[string]error) CellReport {
	out := CellReport{Cell: c, Results: []Result{}}
	for _, s := range all {
		if err := failed[s.name]; err != nil {
			out.Results = append(out.Results, Result{System: s.name, Error: err.Error()})
			continue
		}
		mine := samples[s.name]
		if len(mine) == 0 {
			continue // skipped
		}
		res := Result{System: s.name}
		var rate, cpu []float64
		var took []time.Duration
		for _, m := range mine {
			rate, cpu, took = append(rate, m.rate), append(cpu, m.cpu), append(took, m.took...)
		}
		res.N, res.CPU = len(took), measure.Median(cpu)
		res.P50, res.P99, res.P999 = measure.Quantile(took, 0.5).Seconds(), measure.Quantile(took, 0.99).Seconds(), measure.Quantile(took, 0.999).Seconds()
		if !s.still {
			res.Rate = measure.Median(rate)
			res.Min, res.Max = measure.MinMax(rate)
			res.ToLink, res.ToMooncake, res.ToPlain = ratio(mine, samples[linkTCP]), ratio(mine, samples[theirs]), ratio(mine, samples[plainTCP])
			res.ToBeside = ratio(mine, samples[s.beside])
			res.Bound, res.ToBound = boundOf(mine, samples[s.bound], samples[hashOnly])
		} else {
			res.CPU = 0 // a second a GB of bytes that nobody moved
		}
		out.Results = append(out.Results, res)
	}
	return out
}

// ratio is the median of the rounds' ratios of rates.
func ratio(a, b []sample) float64 {
	var v []float64
	for i := range min(len(a), len(b)) {
		if b[i].rate > 0 {
			v = append(v, a[i].rate/b[i].rate)
		}
	}
	return measure.Median(v)
}

// boundOf is the median bound, and the median of what was reached of it.
func boundOf(mine, socket, hash []sample) (bound, reached float64) {
	var b, part []float64
	for i := range min(len(mine), len(socket), len(hash)) {
		x := measure.Bound(socket[i].rate, hash[i].rate, runtime.NumCPU())
		if x > 0 {
			b, part = append(b, x), append(part, mine[i].rate/x)
		}
	}
	return measure.Median(b), measure.Median(part)
}

// err is what failed, joined.
func (r Report) err() error {
	var errs []error
	for _, c := range r.Cells {
		for _, res := range c.Results {
			if res.Error != "" {
				errs = append(errs, fmt.Errorf("%s: %s", c.Cell, res.Error))
			}
		}
	}
	return errors.Join(errs...)
}

// Rows is the report for people: a line for each cell, and below it one for
// each system.
func (r Report) Rows() (head []string, rows [][]string) {
	head = []string{"system", "GB/s", "least-most", "p50", "p99", "p99.9", "CPU s/GB", "× " + linkTCP, "of the bound"}
	for _, c := range r.Cells {
		rows = append(rows, []string{c.String()})
		for _, res := range c.Results {
			if res.Error != "" {
				rows = append(rows, failedRow(res))
				continue
			}
			rows = append(rows, []string{
				"  " + res.System, number("%.2f", res.Rate), spread(res), measure.Latency(res.P50), measure.Latency(res.P99), measure.Latency(res.P999),
				number("%.2f", res.CPU), number("%.2f", res.ToLink), ofBound(res),
			})
		}
		rows = append(rows, r.skippedRows()...)
	}
	return head, rows
}

func failedRow(r Result) []string {
	return []string{"  " + r.System + " failed: " + strings.ReplaceAll(r.Error, "\n", " ")}
}

func (r Report) skippedRows() (rows [][]string) {
	for _, s := range r.Skipped {
		rows = append(rows, []string{"  " + s.System + " skipped: " + strings.SplitN(s.Reason, "\n", 2)[0]})
	}
	return rows
}

func number(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func spread(r Result) string {
	if r.Rate == 0 {
		return "nothing moves"
	}
	return fmt.Sprintf("%.2f-%.2f", r.Min, r.Max)
}

func ofBound(r Result) string {
	if r.Bound == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%% of %.2f", 100*r.ToBound, r.Bound)
}

// Note says on what it was measured, and what the names stand for.
func (r Report) Note() string {
	return r.where() + "The bound is 1/(1/S + 1/(cores × H)): S the plain sockets of the same transport, H the hash on one core, both of the same round."
}

// where is the machine, the versions and the systems, a line each.
func (r Report) where() string {
	var b strings.Builder
	where := "one network namespace of its own"
	if !r.Namespace {
		where = "the host's network namespace"
	}
	fmt.Fprintf(&b, "%s, %d CPUs, last cache %s, Linux %s, %s, BLAKE3 by %s\n", r.Machine, r.CPUs, config.FormatBytes(r.CacheBytes), r.Kernel, r.Go, r.Hash)
	fmt.Fprintf(&b, "%s, congestion control %s on every TCP connection; cold set %s; link with %d lanes; medians of %d rounds of %d ms, all systems in turn in each; took %.0f s\n",
		where, r.Congestion, config.FormatBytes(r.SetBytes), r.Lanes, r.Rounds, r.RoundMS, r.Seconds)
	for _, k := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "%s: %s\n", k, r.Versions[k])
	}
	for _, s := range r.Systems {
		fmt.Fprintf(&b, "%s: %s; read: %s; write: %s; verification: %s\n", s.Name, s.About, orNot(s.Read), orNot(s.Write), s.Verify)
	}
	return b.String()
}

func orNot(s string) string {
	if s == "" {
		return "not measured"
	}
	return s
}
