package agent

import (
	"net"
	"strings"
	"testing"

	"meridian/agent/adminpb"
)

// A relay's target must be reached before the daemon is ready: its sources would find
// nothing behind it.
func TestADaemonIsNotReadyWhileItsRelayReachesNoTarget(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := l.Addr().String()
	_ = l.Close()
	n := startNode(t, shortDir(t), "one", "[fabric.between]\nkind = \"mooncake-relay\"\ntarget = \"far="+target+"\"\nlisten = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\n")
	said := func() string {
		for _, r := range n.unready() {
			if r.id == "selftest.between" {
				return r.text
			}
		}
		return ""
	}
	until(t, "the reason is that of the look at the target", func() bool { return strings.Contains(said(), "UNREACHABLE") })
	fabrics, err := n.adminClient(t).ListFabrics(t.Context(), &adminpb.ListFabricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fabrics.Fabrics {
		if f.Label == "between" && (!f.Enabled || !strings.Contains(f.Reason, "far") || !strings.Contains(f.Reason, "UNREACHABLE")) {
			t.Errorf("%v", f)
		}
		if f.Label != "between" && f.Reason != "" {
			t.Errorf("%v", f)
		}
	}
	startNode(t, shortDir(t), "two", "[fabric.target]\nkind = \"mooncake\"\nlisten = \""+target+"\"\ndata = \"127.0.0.1:0\"\n")
	n.ready(t)
}
