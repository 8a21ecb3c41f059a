package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// within says which lines do not fit a terminal.
func within(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > columns {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestTheTopologyFitsATerminalAndSaysWhy(t *testing.T) {
	s := newShell(t, newDaemon())
	got := s.run(t, "fabric", "topology")
	within(t, got.out)
	for _, want := range []string{
		"mlx5_0:1       infiniband  mlx5_core  active   400 Gb/s  1     no       10.0.0.1", "2.5 Gb/s", "2001:db8:1234:5678:9abc:def0:1234:5678",
		"GPU 0: NVIDIA H200 at 0000:91:00.0", "GPU driver: 570.1", "topology file: /etc/meridian/topology.toml overrides the choice",
		"note: the topology file overrides mlx5_0:1: NUMA node 1", "choice: mlx5_0:1, NUMA node 1, address for peers 10.0.0.1", "not chosen:", "  lo: loopback reaches this host only",
		`fabric nixl: devices = "auto" takes the choice`, `fabric other: devices = "lo" does not take the choice`,
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	if strings.Contains(got.out, "\x1b[2J") {
		t.Error("control characters reach the terminal")
	}
	var v topologyResult
	if err := json.Unmarshal([]byte(s.run(t, "fabric", "topology", "--json").out), &v); err != nil || len(v.Devices) != 3 || v.Choice.Rejected[1].Device != "lo" || !v.Choice.Overridden || v.Devices[2].NUMANode != -1 {
		t.Errorf("%+v, %v", v, err)
	}
}
