package loadbench

import (
	"fmt"

	"meridian/agent/config"
	"meridian/bench/measure"
)

// Report is what a run measured. Rates are in GB/s (10^9 bytes), and medians of
// the rounds; so are the ratios, each of one round's two figures.
type Report struct {
	measure.Host
	Congestion string  `json:"congestion"`
	Streams    int     `json:"streams"`
	Bytes      uint64  `json:"bytes"`       // of a load
	AheadBytes uint64  `json:"ahead_bytes"` // that a daemon had ready before its first load
	Rounds     int     `json:"rounds"`
	Puts       []Put   `json:"puts"`
	Loads      []Load  `json:"loads"`
	Cores      []Cores `json:"cores"`
}

// Load is one prompt's blocks, from some holders that have all of them.
type Load struct {
	BlockBytes  uint32  `json:"block_bytes"`
	Holders     int     `json:"holders"`
	Plain       float64 `json:"plain_socket_gbs"` // S
	Hash        float64 `json:"hash_gbs"`         // H, one core
	Bound       float64 `json:"bound_gbs"`
	Cold        float64 `json:"cold_gbs"`
	Warm        float64 `json:"warm_gbs"`
	WarmToBound float64 `json:"warm_to_bound"`
	ColdToWarm  float64 `json:"cold_to_warm"`
}

// Put is as many blocks stored by an engine on its own node.
type Put struct {
	BlockBytes  uint32  `json:"block_bytes"`
	Copy        float64 `json:"copy_gbs"`     // one core
	CopySum     float64 `json:"copy_sum_gbs"` // likewise
	Bound       float64 `json:"bound_gbs"`
	Cold        float64 `json:"cold_gbs"`
	Warm        float64 `json:"warm_gbs"`
	WarmToBound float64 `json:"warm_to_bound"`
}

// Cores is a warm load by a daemon that may use one processor, or two. On a
// machine that has no more, holders and engine share them.
type Cores struct {
	BlockBytes uint32  `json:"block_bytes"`
	Holders    int     `json:"holders"`
	One        float64 `json:"one_gbs"`
	Two        float64 `json:"two_gbs"`
	Ratio      float64 `json:"two_to_one"`
	Most       float64 `json:"two_to_one_at_most"` // by the processor time of both ends
}

// Rows is the report for people.
func (r Report) Rows() (head []string, rows [][]string) {
	head = []string{"measurement", "block", "cold", "warm", "against"}
	for _, l := range r.Loads {
		rows = append(rows, []string{fmt.Sprintf("load, holders: %d", l.Holders), config.FormatBytes(uint64(l.BlockBytes)),
			fmt.Sprintf("%.2f GB/s, %.0f%% of warm", l.Cold, 100*l.ColdToWarm), fmt.Sprintf("%.2f GB/s", l.Warm),
			fmt.Sprintf("warm is %.0f%% of the bound %.2f (socket %.2f, hash %.2f a core)", 100*l.WarmToBound, l.Bound, l.Plain, l.Hash)})
	}
	for _, p := range r.Puts {
		rows = append(rows, []string{"PUT", config.FormatBytes(uint64(p.BlockBytes)),
			fmt.Sprintf("%.2f GB/s", p.Cold), fmt.Sprintf("%.2f GB/s", p.Warm),
			fmt.Sprintf("warm is %.0f%% of the bound %.2f (copy %.2f, copy and hash %.2f a core)", 100*p.WarmToBound, p.Bound, p.Copy, p.CopySum)})
	}
	for _, c := range r.Cores {
		rows = append(rows, []string{fmt.Sprintf("puller on 1 and 2 processors, holders: %d", c.Holders), config.FormatBytes(uint64(c.BlockBytes)),
			"", fmt.Sprintf("%.2f and %.2f GB/s", c.One, c.Two), fmt.Sprintf("%.2f times as fast on two; at most %.2f while the holders share them", c.Ratio, c.Most)})
	}
	return head, rows
}

// Note says on what it was measured.
func (r Report) Note() string {
	return fmt.Sprintf("%s; %s a load, %s of memory ready before the first; %d plain streams, %s; medians of %d rounds",
		r.Text(), config.FormatBytes(r.Bytes), config.FormatBytes(r.AheadBytes), r.Streams, measure.CongestionName(r.Congestion), r.Rounds)
}
