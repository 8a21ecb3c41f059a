package peers

import (
	"fmt"
	"slices"

	"meridian/agent/config"
	"meridian/bench/plot"
)

// Plots are the plots of the report, by file name: the rate of reads and of
// writes over the block size, and the processor time of both. Each is a whole
// SVG document, for light and dark backgrounds.
func (r Report) Plots() map[string]string {
	rate := func(res Result) float64 { return res.Rate }
	cpu := func(res Result) float64 { return res.CPU }
	out := map[string]string{}
	for name, p := range map[string]plot.Plot{
		"reads.svg":  {Title: "Reads: GB/s over the block size", Y: plot.Log10("GB/s"), Lines: r.lines(Read, rate)},
		"writes.svg": {Title: "Writes: GB/s over the block size", Y: plot.Log10("GB/s"), Lines: r.lines(Write, rate)},
		"cpu.svg":    {Title: "Reads: processor seconds a GB, both processes", Y: plot.Log10("s/GB"), Lines: r.lines(Read, cpu)},
	} {
		if len(p.Lines) > 0 {
			p.X = plot.Log2("", func(v float64) string { return config.FormatBytes(uint64(v)) })
			p.Note = fmt.Sprintf("batch of 16 or 16 MiB, one stream, cold set; %s, %d CPUs, %s", r.Machine, r.CPUs, r.Congestion)
			out[name] = p.SVG()
		}
	}
	return out
}

// lines are the systems' values in the cells that differ in size alone: one
// stream, cold, and of each size the batch next to 16. What moves nothing has
// no line.
func (r Report) lines(op Op, of func(Result) float64) []plot.Line {
	var out []plot.Line
	for i, s := range r.Systems {
		l := plot.Line{Name: s.Name, Color: i, Dashed: isBound(s.Name)}
		for _, c := range r.mainCells(op) {
			for _, res := range c.Results {
				if res.System == s.Name && res.Error == "" && of(res) > 0 {
					l.Points = append(l.Points, plot.Point{X: float64(c.Size), Y: of(res)})
				}
			}
		}
		if len(l.Points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

func (r Report) mainCells(op Op) []CellReport {
	best := map[uint64]CellReport{}
	for _, c := range r.Cells {
		if c.Op != op || c.Streams != 1 || c.Hot || c.Batch > 16 {
			continue
		}
		if b, ok := best[c.Size]; !ok || c.Batch > b.Batch {
			best[c.Size] = c
		}
	}
	out := []CellReport{}
	for _, c := range best {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b CellReport) int { return int(int64(a.Size) - int64(b.Size)) })
	return out
}

func isBound(name string) bool {
	return slices.ContainsFunc(systems, func(s system) bool {
		return s.name == name && (s.group == groupPlain || s.group == pairMemory)
	})
}
