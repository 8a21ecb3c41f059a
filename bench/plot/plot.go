package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Point is a measured value.
type Point struct{ X, Y float64 }

// Line is a named curve.
type Line struct {
	Name   string
	Color  int  // number of its colour, counted round
	Dashed bool // a bound, not a competitor
	Bare   bool // without a mark at each point
	Points []Point
}

// Plot is a picture of some curves. Values that a logarithmic axis cannot show, and ones
// that are no numbers, are left out.
type Plot struct {
	Title, Note string
	X, Y        Axis
	Lines       []Line
}

// Measures, in pixels.
const (
	width, height   = 860, 480
	left, top       = 64, 44
	right, bottom   = 170, 64 // the names stand right of the curves
	nameStep        = 14
	across          = width - left - right
	down            = height - top - bottom
	dash, thickness = "6 4", 2
	mark, fontSize  = 3, 12
)

// colors are told apart on white and on near-black; a name beside each curve says the
// same without them.
var colors = []string{
	"#d1495b", "#e07a2f", "#b08900", "#2e8b57", "#6b8e23", "#1b8a9e", "#4a7fd6", "#7a5cd0", "#c2549d", "#9c6b4e", "#7f8790", "#9aa3ad", "#6f7f8f", "#8a8f6a", "#a08c9a",
}

// SVG is the whole document. A plot without a point that can be shown is "".
func (p Plot) SVG() string {
	lines := p.shown()
	if len(lines) == 0 {
		return ""
	}
	x0, x1, y0, y1 := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, q := range l.Points {
			x0, x1 = min(x0, q.X), max(x1, q.X)
			y0, y1 = min(y0, q.Y), max(y1, q.Y)
		}
	}
	d := drawing{x: p.X.cover(x0, x1, true), y: p.Y.cover(y0, y1, false)}
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="%d" role="img" aria-label="%s">`,
		width, height, fontSize, escape(p.Title))
	d.printf("<style>text{fill:#767676}.grid{stroke:#888;stroke-opacity:.3}@media (prefers-color-scheme:light){text{fill:#333}}@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>")
	d.printf(`<text x="%d" y="24" font-size="15" font-weight="600">%s</text>`, left, escape(p.Title))
	d.printf(`<text x="%d" y="%d" font-size="11">%s</text>`, left, height-12, escape(p.Note))
	d.axes()
	for _, l := range lines {
		d.curve(l)
	}
	d.names(lines)
	d.printf("</svg>")
	return d.b.String()
}

// shown are the curves, without what cannot be drawn.
func (p Plot) shown() (lines []Line) {
	for _, l := range p.Lines {
		l.Points = slices.DeleteFunc(slices.Clone(l.Points), func(q Point) bool {
			return bad(q.X) || bad(q.Y) || p.X.Log && q.X <= 0 || p.Y.Log && q.Y <= 0
		})
		if len(l.Points) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

func bad(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

type drawing struct {
	b    strings.Builder
	x, y scale
}

func (d *drawing) printf(format string, args ...any) {
	fmt.Fprintf(&d.b, format+"\n", args...)
}

func (d *drawing) px(v float64) float64 { return left + across*d.x.at(v) }
func (d *drawing) py(v float64) float64 { return top + down*(1-d.y.at(v)) }

func (d *drawing) axes() {
	for _, v := range d.x.lines() {
		x := d.px(v)
		d.printf(`<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, x, top, x, top+down)
		d.printf(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x, top+down+18, escape(d.x.label(v)))
	}
	for _, v := range d.y.lines() {
		d.printf(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, d.py(v), left+across, d.py(v))
		d.printf(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`, left-8, d.py(v)+4, escape(d.y.label(v)))
	}
	if d.x.Unit != "" {
		d.printf(`<text x="%d" y="%d" text-anchor="middle">%s</text>`, left+across/2, top+down+34, escape(d.x.Unit))
	}
	d.printf(`<text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">%s</text>`, top+down/2, top+down/2, escape(d.y.Unit))
}

func (d *drawing) curve(l Line) {
	color, dashes := colors[l.Color%len(colors)], ""
	if l.Dashed {
		dashes = fmt.Sprintf(` stroke-dasharray="%s"`, dash)
	}
	var path strings.Builder
	for i, q := range l.Points {
		fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: " L"}[i == 0], d.px(q.X), d.py(q.Y))
		if !l.Bare {
			d.printf(`<circle cx="%.1f" cy="%.1f" r="%d" fill="%s"/>`, d.px(q.X), d.py(q.Y), mark, color)
		}
	}
	d.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="%d"%s/>`, path.String(), color, thickness, dashes)
}

// names writes each curve's name at its last point, moved apart where they would
// overlap.
func (d *drawing) names(lines []Line) {
	type label struct {
		y    float64
		line Line
	}
	var labels []label
	for _, l := range lines {
		labels = append(labels, label{d.py(l.Points[len(l.Points)-1].Y), l})
	}
	slices.SortStableFunc(labels, func(a, b label) int { return int(math.Copysign(1, a.y-b.y)) })
	for i := 1; i < len(labels); i++ {
		labels[i].y = max(labels[i].y, labels[i-1].y+nameStep)
	}
	limit := float64(top + down + nameStep)
	for i := len(labels) - 1; i >= 0 && labels[i].y > limit; i-- { // back up from the lower edge
		labels[i].y = limit
		limit -= nameStep
	}
	for _, l := range labels {
		d.printf(`<text x="%d" y="%.1f" style="fill:%s">%s</text>`, left+across+12, l.y+4, colors[l.line.Color%len(colors)], escape(l.line.Name))
	}
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
