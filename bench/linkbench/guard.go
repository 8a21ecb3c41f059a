package linkbench

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"meridian/agent/config"
	"meridian/internal/safefile"
)

// Ratios are a report's figures that another run, and another machine of the same
// kind, can be held against: each is ours against the bound or the bare operation
// of the same run, so that 1 cannot be beaten and more is better.
type Ratios map[string]float64

// Ratios of a report.
func (r Report) Ratios() Ratios {
	out := Ratios{}
	for _, p := range r.Pulls {
		out["pull "+config.FormatBytes(uint64(p.BlockBytes))] = p.Ratio
	}
	for _, m := range r.Mapped {
		if m.P50 > 0 {
			out["mapped read "+config.FormatBytes(uint64(m.BlockBytes))] = m.EchoP50 / m.P50
		}
	}
	if o := r.Overtaking; o.LoadedP50 > 0 {
		out["urgent pull under offload"] = o.IdleP50 / o.LoadedP50
	}
	return out
}

// noise is how far a ratio may fall before it is worth a look: medians of runs on
// the same idle machine of two shared processors were up to a tenth apart.
const noise = 0.15

// Compare has a line for each ratio of either run.
func (r Ratios) Compare(base Ratios) [][]string {
	names := slices.Sorted(maps.Keys(r))
	for name := range base {
		if _, ok := r[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	rows := make([][]string, 0, len(names))
	for _, name := range names {
		v, here := r[name]
		b, there := base[name]
		verdict := "as before"
		switch {
		case !here:
			verdict = "not measured"
		case !there:
			verdict = "new"
		case v < b*(1-noise):
			verdict = "FELL beyond noise"
		case v > b*(1+noise):
			verdict = "rose"
		}
		rows = append(rows, []string{name, ratio(v, here), ratio(b, there), verdict})
	}
	return rows
}

func ratio(v float64, ok bool) string {
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

// ReadRatios reads what Write wrote.
func ReadRatios(path string) (Ratios, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Ratios
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Write writes the ratios as JSON, with three digits: more is noise.
func (r Ratios) Write(path string) error {
	var b strings.Builder
	b.WriteString("{\n")
	for i, name := range slices.Sorted(maps.Keys(r)) {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "  %q: %.3f", name, r[name])
	}
	b.WriteString("\n}\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return safefile.Write(path, []byte(b.String()), 0o644)
}
