package cachebench

import (
	"fmt"
	"strconv"

	"meridian/bench/plot"
)

// Report is what a run found. A ratio is hits by block references, the partial last block
// of a prompt included; a block is a hit only while all before it are.
type Report struct {
	BlockTokens int           `json:"block_tokens"`
	Thinking    *Thinking     `json:"thinking,omitempty"` // nil: tiers were not studied
	Traces      []TraceReport `json:"traces"`
}

// TraceReport is of one trace.
type TraceReport struct {
	Name     string  `json:"name"`
	Requests int     `json:"requests"`
	Lookups  int     `json:"block_references"`
	Distinct int     `json:"distinct_blocks"`
	Ideal    float64 `json:"ideal_hit_ratio"` // of a cache without bound
	Rows     []Row   `json:"sizes"`
}

// Row is of one size of the cache.
type Row struct {
	Blocks   int     `json:"blocks"`
	LRU      float64 `json:"lru,omitempty"`
	S3FIFO   float64 `json:"s3_fifo,omitempty"`
	Meridian float64 `json:"meridian,omitempty"`
	Belady   float64 `json:"belady,omitempty"`
	Tiers    []Kept  `json:"tiers,omitempty"`
}

// Rows is the report for people: of the policies, or of the tiers.
func (r Report) Rows(tiers bool) (head []string, rows [][]string) {
	head = []string{"trace", "blocks", "LRU", "S3-FIFO", "Meridian", "Belady"}
	if tiers {
		head = []string{"trace", "blocks", "kept", "hits", "live evictions"}
	}
	for _, t := range r.Traces {
		for _, x := range t.Rows {
			if !tiers {
				rows = append(rows, []string{t.Name, strconv.Itoa(x.Blocks), share(x.LRU), share(x.S3FIFO), share(x.Meridian), share(x.Belady)})
			}
			for _, k := range x.Tiers {
				rows = append(rows, []string{t.Name, strconv.Itoa(x.Blocks), string(k.Arm), share(k.HitRatio), strconv.Itoa(k.LiveEvictions)})
			}
		}
	}
	return head, rows
}

func share(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }

// Note says what the figures are.
func (r Report) Note(tiers bool) string {
	note := fmt.Sprintf("Share of block references that hit, of %d tokens each; a prompt's partial last block counts.", r.BlockTokens)
	if th := r.Thinking; tiers {
		note += fmt.Sprintf(" %.0f %% of the requests think for %d to %d tokens, of %v each, seed %d. Live evictions are of prompt and output blocks of requests that ran.",
			100*th.Ratio, th.Least, th.Most, th.PerToken, th.Seed)
	}
	return note
}

// Plots are the report's pictures by file name.
func (r Report) Plots() map[string]string {
	out := map[string]string{}
	for _, t := range r.Traces {
		name, title, lines := "cache-"+t.Name+".svg", "Prefix hits: "+t.Name+" trace", t.policies()
		if r.Thinking != nil {
			name, lines = "cache-tiers-"+t.Name+".svg", t.arms()
			title = fmt.Sprintf("Prefix hits where %.0f %% of the requests think: %s trace", 100*r.Thinking.Ratio, t.Name)
		}
		out[name] = plot.Plot{
			Title: title, Note: fmt.Sprintf("%d requests, %d block references of %d tokens, ideal %.4f", t.Requests, t.Lookups, r.BlockTokens, t.Ideal),
			X: plot.Log10("blocks of the cache"), Y: plot.Linear("share of references that hit"), Lines: lines,
		}.SVG()
	}
	return out
}

func (t TraceReport) policies() []plot.Line {
	lines := []plot.Line{{Name: "Belady", Dashed: true, Color: 10}, {Name: "Meridian"}, {Name: "S3-FIFO", Color: 3}, {Name: "LRU", Color: 6}}
	for _, row := range t.Rows {
		for i, v := range []float64{row.Belady, row.Meridian, row.S3FIFO, row.LRU} {
			lines[i].Points = append(lines[i].Points, plot.Point{X: float64(row.Blocks), Y: v})
		}
	}
	return lines
}

func (t TraceReport) arms() []plot.Line {
	var lines []plot.Line
	for i, a := range Arms() {
		lines = append(lines, plot.Line{Name: string(a), Color: i * 3, Dashed: a == NoThink})
		for _, row := range t.Rows {
			lines[i].Points = append(lines[i].Points, plot.Point{X: float64(row.Blocks), Y: row.Tiers[i].HitRatio})
		}
	}
	return lines
}
