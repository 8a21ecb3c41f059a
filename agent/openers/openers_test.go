package openers

import (
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

var rewrite = flag.Bool("rewrite", false, "write docs/config.md anew")

// docs/config.md is made here, where the fabrics' tables are known.
func TestConfigDocumentIsMadeFromTheSchema(t *testing.T) {
	const path = "../../docs/config.md"
	got := config.Markdown(Kinds()...)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s differs (%v); run this test with -rewrite and look at the change", path, err)
	}
}

type none struct{}

func opener(kind string, f fabric.Fabric, err error) Opener {
	return New(config.NewFabricKind[none](kind, "", nil), func(context.Context, Site, *none) (fabric.Fabric, error) { return f, err })
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	broken := errors.New("no such disk")
	for name, c := range map[string]struct {
		kind   string
		as     any
		others []Opener
		want   string
	}{
		"nobody opens the kind":   {"tape", &none{}, nil, `fabric x: 0 openers of kind "tape", want 1`},
		"two open it":             {"tape", &none{}, []Opener{opener("tape", nil, nil), opener("tape", nil, nil)}, `2 openers of kind "tape"`},
		"one of ours is replaced": {synthetic.Label, &syntheticSettings{}, []Opener{opener(synthetic.Label, nil, nil)}, `2 openers of kind "nixl-synth"`},
		"it fails":                {"tape", &none{}, []Opener{opener("tape", nil, broken)}, "fabric x: no such disk"},
		"it returns nothing":      {"tape", &none{}, []Opener{opener("tape", nil, nil)}, "returned no fabric"},
		"settings of another":     {"tape", &syntheticSettings{}, []Opener{opener("tape", nil, nil)}, "the settings are a *openers.syntheticSettings"},
	} {
		f, err := Open(t.Context(), config.Fabric{Name: "x", Kind: c.kind, Settings: c.as}, Site{}, c.others...)
		if f != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, f, err, c.want)
		}
	}
}

func TestAnOpenerLearnsItsNameAndItsSettings(t *testing.T) {
	var site Site
	kind := config.NewFabricKind("tape", "", nil, config.Key("n", func(s *syntheticSettings) *uint64 { return &s.capacity }, config.Sizes, 7, config.Free[uint64](), ""))
	tape := New(kind, func(_ context.Context, s Site, own *syntheticSettings) (fabric.Fabric, error) {
		site = s
		return synthetic.New(synthetic.Options{Capacity: own.capacity}), nil
	})
	f, err := Open(t.Context(), config.Fabric{Name: "left", Kind: "tape", Settings: &syntheticSettings{1 << 20}}, Site{Agent: "a", Incarnation: 7}, tape)
	if err != nil || site.Name != "left" || site.Agent != "a" || site.Incarnation != 7 {
		t.Fatalf("%+v, %v", site, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if names := Kinds(tape); len(names) != len(Kinds())+1 || names[len(names)-1].Name != "tape" {
		t.Errorf("kinds %v", names)
	}
}

// What a synthetic store holds is what its table says.
func TestTheSyntheticStoreHoldsWhatItsTableSays(t *testing.T) {
	f, err := Open(t.Context(), config.Fabric{Name: "s", Kind: synthetic.Label, Settings: &syntheticSettings{1 << 20}}, Site{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	payload, err := wire.AppendPayload(nil, wire.ThinkActive, make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	it := []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payload}}}
	if f.Push(t.Context(), it); wire.CodeOf(it[0].Err) != wire.CodeFull {
		t.Errorf("push beyond the capacity: %v", it[0].Err)
	}
}
