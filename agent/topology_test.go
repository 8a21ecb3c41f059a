package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/agent/adminpb"
	"meridian/wire"
)

func TestTheAdminAPIListsTheDevicesOfTheHost(t *testing.T) {
	dir := shortDir(t)
	file := filepath.Join(dir, "topology.toml")
	if err := os.WriteFile(file, []byte("[choice]\ndevices = \"lo\"\nadvertise = \"10.0.0.5\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := loadConfig(t, dir, "one", "")
	cfg.Agent.TopologyFile = file
	n := startConfig(t, cfg)
	r, err := n.adminClient(t).Topology(t.Context(), &adminpb.TopologyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(r.Devices, func(d *adminpb.Device) bool {
		return d.Name == "lo" && d.Kind == "loopback" && d.Virtual && d.NumaNode == -1
	}) {
		t.Errorf("%v", r.Devices)
	}
	if c := r.Choice; r.File != file || c.Devices != "lo" || c.Advertise != "10.0.0.5" || !c.Overridden || !strings.Contains(strings.Join(c.Reasons, "\n"), "overrides the choice") {
		t.Errorf("%v", r)
	}
	// A file that is spoilt while the daemon runs is told, and nothing is chosen by it.
	if err := os.WriteFile(file, []byte("[choice]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.adminClient(t).Topology(t.Context(), &adminpb.TopologyRequest{}); adminpb.Detail(err).GetName() != wire.CodeConfig.String() || !strings.Contains(err.Error(), "devices is missing") {
		t.Error(err)
	}
}

// One look at a time: each may start a process, and the driver may hang.
func TestALookAtTheDevicesWaitsForAnother(t *testing.T) {
	s := &adminServer{looking: make(chan struct{}, 1)}
	s.looking <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Topology(ctx, &adminpb.TopologyRequest{}); adminpb.Detail(err).GetName() != wire.CodeBusy.String() {
		t.Error(err)
	}
}
