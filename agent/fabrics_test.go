package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"meridian/agent/adminpb"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/fabric"
)

// Two tables of one kind are two fabrics: each has its routes, its blocks and its
// counts under its own name.
func TestTwoFabricsOfOneKindAreToldApart(t *testing.T) {
	n := startNode(t, shortDir(t), "one", offloads+`fabric = "far"
[fabric.near]
kind = "nixl-synth"
[fabric.far]
kind = "nixl-synth"
[[route]]
max_bytes = "16KiB"
fabric = "near"
[[route]]
fabric = "far"
`)
	n.ready(t)
	e := n.engine(t)
	small, large := e.keys("small", 4), e.keys("large", 8)
	thinkOf(t, e, small, 8<<10)
	thinkOf(t, e, large, 32<<10)
	until(t, "all think blocks are offloaded", func() bool { return n.mover.OffloadStats().Blocks == 12 })
	for name, keys := range map[string]int{"near": len(small), "far": len(large)} {
		until(t, name+" has counted its blocks", func() bool {
			v, _ := n.series(t, fmt.Sprintf("meridian_disagg_blocks_offloaded_total{fabric=%q}", name))
			return v == fmt.Sprint(keys)
		})
	}
	for _, k := range small {
		if v, _ := n.store.Stat(k); v.Where.Fabric != "near" { // it is not in the arena any more
			t.Errorf("a small block is at %q", v.Where.Fabric)
		}
	}
	e.mustFetch(t, small)
	e.mustFetch(t, large)
	r, err := (&adminServer{a: n.Agent}).ListFabrics(t.Context(), &adminpb.ListFabricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range r.Fabrics {
		names = append(names, fmt.Sprint(f.Label, f.Via))
	}
	if got := fmt.Sprint(names); got != "[far[mem] link[] near[mem]]" {
		t.Errorf("listed %s", got)
	}
}

// A fabric that cannot be opened ends the start, and what was opened is closed.
func TestAFabricThatDoesNotOpenEndsTheStart(t *testing.T) {
	type none struct{}
	closed := 0
	kind := func(name string) config.FabricKind { return config.NewFabricKind[none](name, "", nil) }
	own := []openers.Opener{
		openers.New(kind("good"), func(context.Context, openers.Site, *none) (fabric.Fabric, error) { return &closes{n: &closed}, nil }),
		openers.New(kind("spoilt"), func(context.Context, openers.Site, *none) (fabric.Fabric, error) {
			return nil, errors.New("no such disk")
		}),
	}
	dir := shortDir(t)
	cfg := loadConfig(t, dir, "one", "")
	for _, name := range []string{"good", "spoilt"} {
		cfg.Fabrics = append(cfg.Fabrics, config.Fabric{Name: name, Kind: name, Settings: &none{}})
	}
	a, err := Start(t.Context(), cfg, Options{Openers: own})
	if a != nil || err == nil || !strings.Contains(err.Error(), "fabric spoilt: no such disk") {
		t.Fatalf("%v, %v", a, err)
	}
	if closed != 1 {
		t.Errorf("the fabric that was opened was closed %d times", closed)
	}
}

type closes struct {
	fabric.Fabric
	n *int
}

func (c *closes) Close() error { *c.n++; return nil }

// Tables of fabrics are told as such by a reload, which takes none of them over; what
// can change is taken over beside them.
func TestAReloadTellsWhichFabricsNeedARestart(t *testing.T) {
	text := func(near, far string) string {
		return "[fabric.near]\nkind = \"nixl-synth\"\ncapacity_bytes = \"" + near + "\"\n" + far + "[[route]]\nfabric = \"near\"\n"
	}
	n := startReloadable(t, shortDir(t), "one", text("2MiB", ""))
	got := n.to(text("3MiB", "[fabric.far]\nkind = \"nixl-synth\"\n"))
	var lines []string
	for _, c := range got.restart {
		lines = append(lines, c.String())
	}
	if want := `[fabric.near.capacity_bytes = "3MiB", was "2MiB" fabric.far added]`; len(got.applied) != 0 || !sameWords(fmt.Sprint(lines), want) {
		t.Errorf("applied %v, needs a restart %s, want %s", got.applied, lines, want)
	}
	if _, ok := n.fabrics.Get("far"); ok {
		t.Error("a fabric was opened by a reload")
	}
}

// sameWords compares two lists whatever their order.
func sameWords(a, b string) bool {
	x, y := strings.Fields(strings.Trim(a, "[]")), strings.Fields(strings.Trim(b, "[]"))
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
