package linkbench

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestAFallBeyondNoiseIsSaid(t *testing.T) {
	base := Ratios{"pull 16 KiB": 0.80, "pull 1 MiB": 0.95, "mapped read 16 KiB": 0.50, "gone": 0.5}
	now := Ratios{"pull 16 KiB": 0.67, "pull 1 MiB": 0.90, "mapped read 16 KiB": 0.60, "added": 0.3}
	want := [][]string{
		{"added", "0.30", "-", "new"},
		{"gone", "-", "0.50", "not measured"},
		{"mapped read 16 KiB", "0.60", "0.50", "rose"},
		{"pull 1 MiB", "0.90", "0.95", "as before"},
		{"pull 16 KiB", "0.67", "0.80", "FELL beyond noise"},
	}
	if got := now.Compare(base); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRatiosAreReadAsTheyWereWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "ratios.json")
	want := Ratios{"pull 16 KiB": 0.789, "mapped read 64 MiB": 0.5}
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRatios(path)
	if err != nil || len(got) != len(want) || got["pull 16 KiB"] != 0.789 || got["mapped read 64 MiB"] != 0.5 {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestAReportsRatiosAreOursToTheBoundOfTheSameRun(t *testing.T) {
	r := Report{
		Pulls:      []Pull{{BlockBytes: 16 << 10, Ratio: 0.77}},
		Mapped:     []Mapped{{BlockBytes: 16 << 10, P50: 10e-6, EchoP50: 5e-6}},
		Overtaking: Overtaken{IdleP50: 1e-3, LoadedP50: 2e-3},
	}
	got := r.Ratios()
	if len(got) != 3 || got["pull 16 KiB"] != 0.77 || got["mapped read 16 KiB"] != 0.5 || got["urgent pull under offload"] != 0.5 {
		t.Errorf("%v", got)
	}
}
