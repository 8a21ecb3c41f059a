package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"meridian/agent/adminpb"
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

func TestMetadataSayWhoPutThem(t *testing.T) {
	s := newShell(t, newDaemon())
	got := s.run(t, "fabric", "metadata")
	within(t, got.out)
	for _, want := range []string{"decode-0  metadata  hub     10.0.0.1:40312  4242  1m1s", "alive", "decode-1", "gone", "2 of 3 are shown"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	var v metadataResult
	if err := json.Unmarshal([]byte(s.run(t, "fabric", "metadata", "hub", "--json").out), &v); err != nil || len(v.Entries) != 2 || v.Count != 3 || v.Entries[0].PID != 4242 || v.Entries[1].Alive {
		t.Errorf("%+v, %v", v, err)
	}
}

// A reason that is long, and many peers, leave the table as wide as a terminal; the reason
// is there whole.
func TestLongReasonsAreFolded(t *testing.T) {
	long := "libnixl_capi.so was not found: the dynamic linker does not find it, and no NIXL wheel is in /usr/local/lib/python3.11/dist-packages, /usr/lib/python3/dist-packages"
	d := newDaemon()
	d.fabrics = []*adminpb.Fabric{
		{Label: "nixl", Reason: long, Verified: true, Peers: []string{"decode-1", "decode-2", "decode-3", "decode-4", "decode-5", "decode-6"}},
		{Label: "link", Enabled: true, Verified: true, Reason: "short"},
	}
	d.peers = []*adminpb.Peer{{Name: "prefill-1", Fabric: "mooncake", Address: "tcp://[2001:db8::1234:5678]:7401", ReasonCode: 207, Reason: long, State: adminpb.PeerState_PEER_STATE_CONNECTING}}
	s := newShell(t, d)
	for _, args := range [][]string{{"fabric", "list"}, {"peer", "list"}} {
		got := s.run(t, args...).out
		within(t, got)
		if text := strings.Join(strings.Fields(got), " "); !strings.Contains(text, long) {
			t.Errorf("%v: the reason is not whole:\n%s", args, got)
		}
		if wide := s.run(t, append(args, "-o", "wide")...).out; !strings.Contains(wide, long) {
			t.Errorf("%v -o wide: %s", args, wide)
		}
	}
	if got := s.run(t, "peer", "list").out; !strings.Contains(got, "    ADDRESS: tcp://[2001:db8::1234:5678]:7401\n    REASON: UNREACHABLE: "+long[:20]) {
		t.Errorf("an address that does not fit:\n%s", got)
	}
	out := s.run(t, "fabric", "list").out
	if !regexp.MustCompile(`(?m)^nixl +no +- +decode-1,decode-2 \+4 +- +below$`).MatchString(out) || !regexp.MustCompile(`(?m)^link +yes .* yes +short$`).MatchString(out) {
		t.Errorf("a fabric that is absent has verified nothing:\n%s", out)
	}
}
