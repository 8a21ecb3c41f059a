package nixl_test

import (
	"os"
	"path/filepath"
	"testing"

	"meridian/adapters/nixl/internal/wheel"
	"meridian/agent/adminpb"
)

// A table that leaves the devices to the daemon shares blocks over the one that is chosen,
// here by a topology file, since the application is on loopback.
func TestADaemonSharesBlocksOverTheDeviceThatIsChosen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "topology.toml")
	if err := os.WriteFile(file, []byte("[choice]\ndevices = \"lo\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(topologyFile, file)
	a := &app{Agent: wheel.Listen(t, "app", 8<<20), t: t}
	h := newHouse(t, nixlTable(t, "app="+a.Listen, `devices = "auto"`, "insecure = true"))
	sharesBlocks(t, a, h, func(string) {})
	r, err := h.admin.Topology(t.Context(), &adminpb.TopologyRequest{})
	if err != nil || r.Choice.Devices != "lo" || !r.Choice.Overridden || len(r.Uses) != 1 || !r.Uses[0].TakesChoice {
		t.Errorf("%v, %v", r, err)
	}
}
