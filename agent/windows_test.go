package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/blocks"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// A fabric that asks for it gets the daemon's one table of windows: bounded by the
// configuration and stepped by the daemon.
func TestAFabricOpensWindowsInTheDaemonsTable(t *testing.T) {
	type none struct{}
	var site openers.Site
	tape := openers.New(config.NewFabricKind[none]("tape", "", nil), func(_ context.Context, s openers.Site, _ *none) (fabric.Fabric, error) {
		site = s
		return synthetic.New(synthetic.Options{}), nil
	})
	cfg := loadConfig(t, shortDir(t), "one", "[arena]\nwindow_bytes = \"1MiB\"\n")
	cfg.Fabrics = append(cfg.Fabrics, config.Fabric{Name: "tape", Kind: "tape", Settings: &none{}})
	a, err := Start(t.Context(), cfg, Options{Openers: []openers.Opener{tape}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	o := site.Store.NewOwner(0)
	defer func() { site.Store.Drop(o); site.Windows.Drop(o) }()
	if _, err := site.Windows.Open(o, window.Spec{Bytes: 1<<20 + 1, TTL: window.Forever, Write: true}); !errors.Is(err, wire.CodeFull) || !strings.Contains(err.Error(), "arena.window_bytes") {
		t.Errorf("beyond the limit: %v", err)
	}
	// On a busy machine a short time can be over before the memory is made.
	err = wire.CodeDeadline
	for ttl := 50 * time.Millisecond; errors.Is(err, wire.CodeDeadline); ttl *= 2 {
		_, err = site.Windows.Open(o, window.Spec{Bytes: 1 << 20, TTL: ttl, Write: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the daemon ends the window", func() bool { return site.Windows.Stats().Windows == 0 })
}

// driveWindows opens a window, has it written, and publishes what came.
func driveWindows(t *testing.T, n *testNode, e *testEngine, moved movedSeries) {
	t.Helper()
	o := n.store.NewOwner(0)
	defer n.store.Drop(o)
	w, err := n.windows.Open(o, window.Spec{NS: e.ns, Lens: []uint32{64}, TTL: time.Hour, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	moved.scrape(t, n)
	_, leave, err := n.windows.Enter("somebody", w.Addr, w.Len, true)
	if err != nil {
		t.Fatal(err)
	}
	leave(w.Len)
	c := []blocks.Commit{{Key: e.keys("from a window", 1)[0]}}
	if err := n.windows.Commit(o, w.Addr, c); err != nil || c[0].Err != nil {
		t.Fatal(err, c[0].Err)
	}
	if _, _, err := n.windows.Enter("somebody", w.Addr, w.Len, true); !errors.Is(err, wire.CodeStale) {
		t.Errorf("a late access: %v", err)
	}
}
