package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// document reads a plot as XML: how often each element comes, its texts, and what is no
// number among its attributes.
func document(t *testing.T, svg string) (count map[string]int, texts []string) {
	t.Helper()
	count = map[string]int{}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			count[tok.Name.Local]++
			for _, a := range tok.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s=%q", a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			if s := strings.TrimSpace(string(tok)); s != "" {
				texts = append(texts, s)
			}
		}
	}
}

func TestAPlotOfOnePointHasAxes(t *testing.T) {
	for name, x := range map[string]Axis{"log": Log2("", func(v float64) string { return fmt.Sprint(v, " B") }), "linear": Linear("s")} {
		for _, y := range []Axis{Log10("GB/s"), Linear("GB/s")} {
			count, texts := document(t, Plot{Title: "t", X: x, Y: y, Lines: []Line{{Name: "one", Points: []Point{{4096, 1}}}}}.SVG())
			if count["circle"] != 1 || count["line"] < 4 || !slices.Contains(texts, "GB/s") || !slices.Contains(texts, "one") {
				t.Errorf("%s: %v %q", name, count, texts)
			}
		}
	}
}

func TestTextsFromOutsideAreEscaped(t *testing.T) {
	_, texts := document(t, Plot{Title: `a "title" <&>`, Note: "n & m", X: Linear("<x>"), Y: Linear("y&"), Lines: []Line{{Name: "<line>", Points: []Point{{1, 2}}}}}.SVG())
	for _, want := range []string{`a "title" <&>`, "n & m", "<x>", "y&", "<line>"} {
		if !slices.Contains(texts, want) {
			t.Errorf("no %q in %q", want, texts)
		}
	}
}

func TestWhatCannotBeDrawnIsLeftOut(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	p := Plot{X: Log2("", nil), Y: Log10(""), Lines: []Line{
		{Name: "some", Points: []Point{{1, 1}, {0, 1}, {2, -1}, {nan, 1}, {4, inf}, {8, 2}}},
		{Name: "none", Points: []Point{{-1, 1}}},
	}}
	count, texts := document(t, p.SVG())
	if count["circle"] != 2 || count["path"] != 1 || slices.Contains(texts, "none") {
		t.Errorf("%v %q", count, texts)
	}
	if svg := (Plot{Lines: []Line{{Points: []Point{{nan, nan}}}}}).SVG(); svg != "" {
		t.Error(svg)
	}
}

// Every value lies inside, and the grid covers the axis.
func TestScales(t *testing.T) {
	for _, c := range []struct {
		axis        Axis
		least, most float64
		want        []float64
	}{
		{Linear(""), 0, 1, []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}},
		{Linear(""), 3, 37, []float64{0, 5, 10, 15, 20, 25, 30, 35, 40}},
		{Linear(""), 0, 0, []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}},
		{Log10(""), 3, 4, []float64{2, 5, 10, 20}},
		{Log10(""), 0.15, 80, []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100}},
	} {
		s := c.axis.cover(c.least, c.most, false)
		got := s.lines()
		if len(got) != len(c.want) {
			t.Errorf("%v to %v: lines %v, want %v", c.least, c.most, got, c.want)
			continue
		}
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-9 {
				t.Errorf("%v to %v: lines %v, want %v", c.least, c.most, got, c.want)
				break
			}
		}
		if a, b := s.at(c.least), s.at(c.most); a < 0 || b > 1+1e-9 {
			t.Errorf("%v to %v lie at %v and %v", c.least, c.most, a, b)
		}
	}
}

func TestNamesDoNotOverlap(t *testing.T) {
	var p Plot
	for i := range 20 {
		p.Lines = append(p.Lines, Line{Name: fmt.Sprint("line ", i), Color: i, Points: []Point{{1, 1}, {2, 1}}})
	}
	last := -1.0
	for _, s := range strings.Split(p.SVG(), "\n") {
		if !strings.Contains(s, ">line ") {
			continue
		}
		var x int
		var y float64
		if _, err := fmt.Sscanf(s, `<text x="%d" y="%f"`, &x, &y); err != nil {
			t.Fatal(err)
		}
		if last >= 0 && y-last < nameStep-0.01 {
			t.Errorf("names at %v and %v", last, y)
		}
		last = y
	}
}
