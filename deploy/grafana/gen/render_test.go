package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"meridian/deploy/grafana"
)

const committed = "../meridian.json"

// What is committed is what rows.go says.
func TestBoardIsUpToDate(t *testing.T) {
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	again, err := render()
	if err != nil || string(again) != string(want) {
		t.Fatalf("rendering twice gives two boards (%v)", err)
	}
	got, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("meridian.json is not what rows.go says: go generate ./deploy/grafana")
	}
}

// classic is the schema that every Grafana reads.
type classic = dashboard.Dashboard //nolint:staticcheck // its successor is for recent versions only

func board(t *testing.T) (classic, string) {
	t.Helper()
	raw, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	// Panels and queries that are not registered are not looked into.
	cog.NewRuntime().RegisterPanelcfgVariant(stat.VariantConfig())
	cog.NewRuntime().RegisterPanelcfgVariant(timeseries.VariantConfig())
	cog.NewRuntime().RegisterDataqueryVariant(prometheus.VariantConfig())
	if err := strict(raw); err != nil {
		t.Fatalf("strict: %v", err)
	}
	var d classic
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(); err != nil {
		t.Fatalf("validate: %v", err)
	}
	return d, string(raw)
}

// strict says what the SDK does not know in a board. Version 0.0.22 returns an
// error value for an empty list of errors too, and drops the panels it decoded
// because of it, so what it decodes is of no use.
func strict(raw []byte) error {
	var d classic
	err := d.UnmarshalJSONStrict(raw)
	if err != nil && err.Error() == "" {
		return nil
	}
	return err
}

// The check above is not blind: a field that Grafana does not know is found in
// the board, in a panel's options and in a query.
func TestStrictDecodingFindsUnknownFields(t *testing.T) {
	_, raw := board(t)
	for _, known := range []string{`"tags": `, `"graphMode": `, `"legendFormat": `, `"fillOpacity": `} {
		bad := strings.Replace(raw, known, `"nonsense": 1, `+known, 1)
		if bad == raw {
			t.Fatalf("no %s in the board", known)
		}
		if err := strict([]byte(bad)); err == nil || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("beside %s: %v", known, err)
		}
	}
}

// The board keeps what operators were promised: no fixed data source, a row in
// its place, panels that fill the grid and overlap nowhere, and in each one a
// description that names its series, and thresholds.
func TestBoardKeepsItsPromises(t *testing.T) {
	d, raw := board(t)
	for _, m := range regexp.MustCompile(`"uid": "([^"]*)"`).FindAllStringSubmatch(raw, -1) {
		if m[1] != "${datasource}" && m[1] != *d.Uid {
			t.Errorf("fixed uid %q", m[1])
		}
	}
	var rows []string
	ids := map[uint32]bool{}
	used := map[[2]uint32]string{}
	for _, x := range d.Panels {
		if x.RowPanel != nil {
			rows = append(rows, *x.RowPanel.Title)
			continue
		}
		p := x.Panel
		title := *p.Title
		if p.Id == nil || ids[*p.Id] {
			t.Errorf("%s: no id of its own", title)
		} else {
			ids[*p.Id] = true
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: ends at column %d", title, p.GridPos.X+p.GridPos.W)
		}
		for col := p.GridPos.X; col < p.GridPos.X+p.GridPos.W; col++ {
			for line := p.GridPos.Y; line < p.GridPos.Y+p.GridPos.H; line++ {
				if other := used[[2]uint32{col, line}]; other != "" {
					t.Fatalf("%s lies on %s", title, other)
				}
				used[[2]uint32{col, line}] = title
			}
		}
		checkPanel(t, title, p)
	}
	for _, r := range grafana.Rows() {
		width := uint32(0)
		for _, p := range r.Panels {
			width += p.Width
		}
		if width%24 != 0 {
			t.Errorf("row %q is %d columns wide", r.Title, width)
		}
	}
	want := []string{"Health and peers", "Transfers", "Refusals and failures", "Tiers", "Leases and reservations", "Scheduler by phase", "Queue of a llama.cpp node", "Fabric truth", "Budget forcing", "Process"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
}

func checkPanel(t *testing.T, title string, p *dashboard.Panel) {
	t.Helper()
	if p.FieldConfig.Defaults.Thresholds == nil || len(p.FieldConfig.Defaults.Thresholds.Steps) == 0 {
		t.Errorf("%s: no thresholds", title)
	}
	if len(p.Targets) == 0 {
		t.Errorf("%s: no query", title)
	}
	for _, q := range p.Targets {
		var target struct{ Expr, LegendFormat string }
		b, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &target); err != nil {
			t.Fatal(err)
		}
		series := (grafana.Panel{Queries: []grafana.Query{{Expr: target.Expr}}}).Series()
		if len(series) == 0 {
			t.Errorf("%s: %q reads no series", title, target.Expr)
		}
		for _, name := range series {
			if !strings.Contains(*p.Description, "`"+name+"`") {
				t.Errorf("%s: the description does not name %s", title, name)
			}
			// Every selector is limited to the chosen daemons.
			if n := strings.Count(target.Expr, name+`{instance=~"$instance"`); n != strings.Count(target.Expr, name) {
				t.Errorf("%s: %q reads %s of daemons that were not chosen", title, target.Expr, name)
			}
		}
		if strings.Contains(target.Expr, "{@") || strings.Count(target.Expr, "(") != strings.Count(target.Expr, ")") {
			t.Errorf("%s: %q is not PromQL", title, target.Expr)
		}
		for _, m := range regexp.MustCompile(`\[[^\]]*\]`).FindAllString(target.Expr, -1) {
			if m != "[$__rate_interval]" {
				t.Errorf("%s: range %s instead of $__rate_interval", title, m)
			}
		}
		for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
			if strings.Contains(target.Expr, " by (") && !regexp.MustCompile(`by \([^)]*\b`+m[1]+`\b`).MatchString(target.Expr) {
				t.Errorf("%s: the legend shows %s, which %q sums away", title, m[1], target.Expr)
			}
		}
	}
}

// A counter is read through rate or increase, a gauge is not.
func TestCountersAreRates(t *testing.T) {
	for _, r := range grafana.Rows() {
		for _, p := range r.Panels {
			for _, q := range p.Queries {
				for _, name := range (grafana.Panel{Queries: []grafana.Query{q}}).Series() {
					counter := strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_bucket")
					read := strings.Contains(q.Expr, "rate("+name) || strings.Contains(q.Expr, "increase("+name)
					if counter != read {
						t.Errorf("%s: %q reads %s (counter %v, rate %v)", p.Title, q.Expr, name, counter, read)
					}
				}
			}
		}
	}
}
