package linkbench

import (
	"fmt"

	"meridian/agent/config"
	"meridian/bench/measure"
)

// Report is what a run measured.
type Report struct {
	measure.Host
	Congestion string    `json:"congestion"`
	Batch      int       `json:"batch"`
	Streams    int       `json:"streams"`
	SetBytes   uint64    `json:"set_bytes"`
	RoundMS    int64     `json:"round_ms"`
	Rounds     int       `json:"rounds"`
	Pulls      []Pull    `json:"pulls"`
	Mapped     []Mapped  `json:"mapped_reads"`
	Overtaking Overtaken `json:"urgent_pull_under_offload"`
}

// Pull is a line of the main table. Rates are in GB/s (10^9 bytes).
type Pull struct {
	BlockBytes uint32  `json:"block_bytes"`
	Batch      int     `json:"batch"`
	Plain      float64 `json:"plain_socket_gbs"` // S
	Hash       float64 `json:"hash_gbs"`         // H, one core
	Bound      float64 `json:"bound_gbs"`
	Rate       float64 `json:"pull_gbs"`
	RateMin    float64 `json:"pull_min_gbs"`
	RateMax    float64 `json:"pull_max_gbs"`
	Ratio      float64 `json:"pull_to_bound"` // median of the rounds' ratios
	P50        float64 `json:"pull_p50_seconds"`
	P99        float64 `json:"pull_p99_seconds"`
}

// Mapped is an engine's ACQUIRE of a batch and its release; the bytes are then
// mapped, and none is copied.
type Mapped struct {
	BlockBytes uint32  `json:"block_bytes"`
	Batch      int     `json:"batch"`
	P50        float64 `json:"p50_seconds"`
	P99        float64 `json:"p99_seconds"`
	EchoP50    float64 `json:"socket_round_trip_p50_seconds"`
	EchoP99    float64 `json:"socket_round_trip_p99_seconds"`
}

// Overtaken is one urgent pull after the other of a small batch, alone and while the
// same peer sends offloads as fast as it can.
type Overtaken struct {
	BlockBytes   uint32  `json:"block_bytes"`
	Batch        int     `json:"batch"`
	IdleP50      float64 `json:"idle_p50_seconds"`
	IdleP99      float64 `json:"idle_p99_seconds"`
	LoadedP50    float64 `json:"loaded_p50_seconds"`
	LoadedP99    float64 `json:"loaded_p99_seconds"`
	OffloadGBs   float64 `json:"offload_gbs"`
	UnorderedP99 float64 `json:"loaded_p99_in_class_bulk_seconds"` // the same pulls without urgency
}

// Rows is the report for people.
func (r Report) Rows() (head []string, rows [][]string) {
	head = []string{"measurement", "block", "batch", "result", "against"}
	for _, p := range r.Pulls {
		rows = append(rows, []string{"verified pull, TCP", config.FormatBytes(uint64(p.BlockBytes)), fmt.Sprint(p.Batch),
			fmt.Sprintf("%.2f GB/s (%.2f-%.2f), p50 %s, p99 %s", p.Rate, p.RateMin, p.RateMax, measure.Latency(p.P50), measure.Latency(p.P99)),
			fmt.Sprintf("%.0f%% of the bound %.2f (socket %.2f, hash %.2f a core)", 100*p.Ratio, p.Bound, p.Plain, p.Hash)})
	}
	for _, m := range r.Mapped {
		rows = append(rows, []string{"mapped read", config.FormatBytes(uint64(m.BlockBytes)), fmt.Sprint(m.Batch),
			fmt.Sprintf("p50 %s, p99 %s", measure.Latency(m.P50), measure.Latency(m.P99)),
			fmt.Sprintf("bare socket round trip p50 %s, p99 %s", measure.Latency(m.EchoP50), measure.Latency(m.EchoP99))})
	}
	if o := r.Overtaking; o.Batch > 0 {
		rows = append(rows, []string{"urgent pull, idle", config.FormatBytes(uint64(o.BlockBytes)), fmt.Sprint(o.Batch),
			fmt.Sprintf("p50 %s, p99 %s", measure.Latency(o.IdleP50), measure.Latency(o.IdleP99)), ""},
			[]string{"urgent pull under offload", config.FormatBytes(uint64(o.BlockBytes)), fmt.Sprint(o.Batch),
				fmt.Sprintf("p50 %s, p99 %s", measure.Latency(o.LoadedP50), measure.Latency(o.LoadedP99)),
				fmt.Sprintf("offloads at %.2f GB/s; p99 %s without urgency", o.OffloadGBs, measure.Latency(o.UnorderedP99))})
	}
	return head, rows
}

// Note says on what it was measured.
func (r Report) Note() string {
	return fmt.Sprintf("%s; %d streams, %s, set %d MiB; medians of %d rounds of %d ms",
		r.Text(), r.Streams, measure.CongestionName(r.Congestion), r.SetBytes>>20, r.Rounds, r.RoundMS)
}
