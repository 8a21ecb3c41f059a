package grafana

import (
	"slices"
	"strings"
	"testing"
)

// Series names samples, each once, in order, and finds those of ours and of the
// process alike.
func TestSeriesAreSampleNames(t *testing.T) {
	names := Series()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("not sorted or not unique: %v", names)
	}
	for _, want := range []string{
		"meridian_ready", "meridian_leaked", "meridian_transfer_duration_seconds_bucket",
		"meridian_budget_force_reason_total", "process_cpu_seconds_total", "go_goroutines",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
	p := Panel{Queries: []Query{
		{Expr: `sum by (go_x) (rate(meridian_b_total{@}[5m])) / meridian_a{@,d="process_e"}`},
		{Expr: `meridian_a{@}`},
	}}
	if got := p.Series(); !slices.Equal(got, []string{"meridian_a", "meridian_b_total"}) {
		t.Errorf("series: %v", got)
	}
}

func TestPromQLLimitsToTheChosenDaemons(t *testing.T) {
	for expr, want := range map[string]string{
		`a{@}`:         `a{instance=~"$instance"}`,
		`a{@,b="c"}/a`: `a{instance=~"$instance",b="c"}/a`,
		`a{b="@"}`:     `a{b="@"}`,
	} {
		if got := (Query{Expr: expr}).PromQL(); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
	}
	q := quantiles("meridian_x_seconds", "fabric")
	if want := `histogram_quantile(0.99, sum by (le, fabric) (rate(meridian_x_seconds_bucket{@}[$__rate_interval])))`; q[1].Expr != want || q[1].Legend != "p99 {{fabric}}" {
		t.Errorf("%+v", q[1])
	}
}

// A reader sees one panel alone, without its neighbours.
func TestEveryPanelSaysWhatItShows(t *testing.T) {
	seen := map[string]string{}
	for _, r := range Rows() {
		for _, p := range r.Panels {
			lower := strings.ToLower(p.About)
			for _, word := range []string{"the same in", "the same by", "as above", " beside ", "somebody"} {
				if strings.Contains(lower, word) {
					t.Errorf("%s: %q refers to another text, or has a word that readers stumble over: %q", p.Title, p.About, word)
				}
			}
			if !strings.HasSuffix(p.About, ".") || len(strings.Fields(p.About)) < 4 || lower[0] == p.About[0] && p.About[0] != '1' {
				t.Errorf("%s: %q is no sentence that says what is shown", p.Title, p.About)
			}
			if other, twice := seen[p.Title]; twice {
				t.Errorf("%s is the title of two panels: %q and %q", p.Title, other, p.About)
			}
			seen[p.Title] = p.About
		}
	}
}
