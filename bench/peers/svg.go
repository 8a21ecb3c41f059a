package peers

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"meridian/agent/config"
)

// Plots are the plots of the report, by file name: the rate of reads and of
// writes over the block size, and the processor time of both. Each is a whole
// SVG document, for light and dark backgrounds.
func (r Report) Plots() map[string]string {
	rate := func(res Result) float64 { return res.Rate }
	cpu := func(res Result) float64 { return res.CPU }
	out := map[string]string{}
	for name, p := range map[string]plot{
		"reads.svg":  {title: "Reads: GB/s over the block size", unit: "GB/s", lines: r.lines(Read, rate)},
		"writes.svg": {title: "Writes: GB/s over the block size", unit: "GB/s", lines: r.lines(Write, rate)},
		"cpu.svg":    {title: "Reads: processor seconds a GB, both processes", unit: "s/GB", lines: r.lines(Read, cpu)},
	} {
		if len(p.lines) > 0 {
			p.note = fmt.Sprintf("batch of 16 or 16 MiB, one stream, cold set; %s, %d CPUs, %s", r.Machine, r.CPUs, r.Congestion)
			out[name] = p.draw()
		}
	}
	return out
}

// lines are the systems' values in the cells that differ in size alone: one
// stream, cold, and of each size the batch next to 16. What moves nothing has
// no line.
func (r Report) lines(op Op, of func(Result) float64) []plotLine {
	var out []plotLine
	for i, s := range r.Systems {
		l := plotLine{name: s.Name, color: i}
		for _, c := range r.mainCells(op) {
			for _, res := range c.Results {
				if res.System == s.Name && res.Error == "" && of(res) > 0 {
					l.points = append(l.points, point{float64(c.Size), of(res)})
				}
			}
		}
		if len(l.points) > 0 {
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

type point struct{ x, y float64 }

type plotLine struct {
	name   string
	color  int
	points []point
}

// plot has two logarithmic axes: x by powers of two, y by powers of ten.
type plot struct {
	title, unit, note string
	lines             []plotLine
}

// Measures of a plot, in pixels.
const (
	plotWidth, plotHeight    = 860, 480
	plotLeft, plotTop        = 64, 44
	plotRight, plotBottom    = 170, 64 // the names stand right of the lines
	plotNameStep             = 14
	plotAcross               = plotWidth - plotLeft - plotRight
	plotDown                 = plotHeight - plotTop - plotBottom
	plotDash, plotThickness  = "6 4", 2
	plotMarker, plotFontSize = 3, 12
)

// plotColors are told apart on white and on near-black; a name beside each line
// says the same without them.
var plotColors = []string{
	"#d1495b", "#e07a2f", "#b08900", "#2e8b57", "#6b8e23", "#1b8a9e", "#4a7fd6", "#7a5cd0", "#c2549d", "#9c6b4e", "#7f8790", "#9aa3ad", "#6f7f8f", "#8a8f6a", "#a08c9a",
}

func (p plot) draw() string {
	x0, x1, y0, y1 := p.ranges()
	px := func(x float64) float64 {
		return plotLeft + plotAcross*(math.Log2(x)-x0)/(x1-x0)
	}
	py := func(y float64) float64 {
		return plotTop + plotDown*(y1-math.Log10(y))/(y1-y0)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="%d" role="img" aria-label="%s">`+"\n",
		plotWidth, plotHeight, plotFontSize, escape(p.title))
	b.WriteString("<style>text{fill:#767676}.grid{stroke:#888;stroke-opacity:.3}@media (prefers-color-scheme:light){text{fill:#333}}@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>\n")
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="15" font-weight="600">%s</text>`+"\n", plotLeft, escape(p.title))
	fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="11">%s</text>`+"\n", plotLeft, plotHeight-12, escape(p.note))
	p.axes(&b, px, py, x0, x1, y0, y1)
	for _, l := range p.lines {
		color, dash := plotColors[l.color%len(plotColors)], ""
		if isBound(l.name) {
			dash = fmt.Sprintf(` stroke-dasharray="%s"`, plotDash)
		}
		var path strings.Builder
		for i, q := range l.points {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: " L"}[i == 0], px(q.x), py(q.y))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="%d" fill="%s"/>`+"\n", px(q.x), py(q.y), plotMarker, color)
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="%d"%s/>`+"\n", path.String(), color, plotThickness, dash)
	}
	p.names(&b, py)
	b.WriteString("</svg>\n")
	return b.String()
}

// ranges are those of the axes, in powers; neither is empty.
func (p plot) ranges() (x0, x1, y0, y1 float64) {
	x0, x1, y0, y1 = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for _, q := range l.points {
			x0, x1 = min(x0, math.Log2(q.x)), max(x1, math.Log2(q.x))
			y0, y1 = min(y0, math.Log10(q.y)), max(y1, math.Log10(q.y))
		}
	}
	if x0 == x1 {
		x0, x1 = x0-2, x1+2
	}
	lo, hi := math.Floor(y0), math.Ceil(y1)
	for _, m := range ticks {
		if e := math.Floor(y0) + math.Log10(m); e <= y0 {
			lo = e
		}
		if e := math.Floor(y1) + math.Log10(m); e >= y1 {
			hi = min(hi, e)
		}
	}
	if hi-lo < 1 { // less than a power of ten would make noise look large
		hi = lo + 1
	}
	return x0, x1, lo, hi
}

// ticks of the y axis in every power of ten.
var ticks = []float64{1, 2, 5}

// axes draws the grid: a line at every fourth size, and at 1, 2 and 5 of every
// power of ten.
func (p plot) axes(b *strings.Builder, px, py func(float64) float64, x0, x1, y0, y1 float64) {
	for e := math.Ceil(x0); e <= x1; e += 2 {
		x := px(math.Exp2(e))
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", x, plotTop, x, plotTop+plotDown)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, plotTop+plotDown+18, escape(config.FormatBytes(uint64(math.Exp2(e)))))
	}
	for e := math.Floor(y0); e <= y1; e++ {
		for _, m := range ticks {
			v := m * math.Pow(10, e)
			if at := e + math.Log10(m); at < y0-1e-9 || at > y1+1e-9 {
				continue
			}
			fmt.Fprintf(b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`+"\n", plotLeft, py(v), plotLeft+plotAcross, py(v))
			fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%.3g</text>`+"\n", plotLeft-8, py(v)+4, v)
		}
	}
	fmt.Fprintf(b, `<text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">%s</text>`+"\n", plotTop+plotDown/2, plotTop+plotDown/2, escape(p.unit))
}

// names writes each line's name at its last point, moved apart where they would
// overlap.
func (p plot) names(b *strings.Builder, py func(float64) float64) {
	type label struct {
		y    float64
		line plotLine
	}
	var labels []label
	for _, l := range p.lines {
		labels = append(labels, label{py(l.points[len(l.points)-1].y), l})
	}
	slices.SortStableFunc(labels, func(a, b label) int { return int(math.Copysign(1, a.y-b.y)) })
	for i := 1; i < len(labels); i++ {
		labels[i].y = max(labels[i].y, labels[i-1].y+plotNameStep)
	}
	if n := len(labels); n > 0 { // back up from the lower edge
		limit := float64(plotTop + plotDown + plotNameStep)
		for i := n - 1; i >= 0 && labels[i].y > limit; i-- {
			labels[i].y = limit
			limit -= plotNameStep
		}
	}
	for _, l := range labels {
		fmt.Fprintf(b, `<text x="%d" y="%.1f" style="fill:%s">%s</text>`+"\n", plotLeft+plotAcross+12, l.y+4, plotColors[l.line.color%len(plotColors)], escape(l.line.name))
	}
}

func isBound(name string) bool {
	return slices.ContainsFunc(systems, func(s system) bool {
		return s.name == name && (s.group == groupPlain || s.group == pairMemory)
	})
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
