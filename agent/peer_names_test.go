package agent

import (
	"strings"
	"testing"

	"meridian/agent/adminpb"
	"meridian/fabric"
	"meridian/wire"
)

// Two fabrics may have peers of one name: each row names its fabric, and a fabric of
// peers is probed by its peers only.
func TestAPeersRowNamesItsFabricAndOnlyPeersAreProbed(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "[fabric.far]\nkind = \"mooncake\"\npeers = [\"p=127.0.0.1:1\"]\n"+
		"[fabric.memory]\nkind = \"mooncake\"\nlisten = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\n")
	c := n.adminClient(t)
	peers, err := c.ListPeers(t.Context(), &adminpb.ListPeersRequest{})
	if err != nil || len(peers.Peers) != 1 {
		t.Fatalf("%v, %v", peers, err)
	}
	if p := peers.Peers[0]; p.Name != "p" || p.Fabric != "far" || p.State != adminpb.PeerState_PEER_STATE_IDLE {
		t.Errorf("%+v; want p of far, idle", p)
	}
	rows, err := c.ProbeFabric(t.Context(), &adminpb.ProbeFabricRequest{})
	if err != nil || len(rows.Probes) != 1 || rows.Probes[0].Fabric != "far" || rows.Probes[0].Peer != "p" {
		t.Errorf("%v, %v; want one row, of far's peer p", rows, err)
	}
	_, err = c.ProbeFabric(t.Context(), &adminpb.ProbeFabricRequest{Fabric: "memory"})
	if d := adminpb.Detail(err); d == nil || d.Code != uint32(wire.CodeAbsent) {
		t.Errorf("a fabric without peers: %v, detail %+v", err, d)
	}
}

func TestWhyAPeerIsNotReadyHasItsCodeOnceAndSaysWhatToDo(t *testing.T) {
	for want, p := range map[string]fabric.Peer{
		"UNREACHABLE: no route":    {Code: wire.CodeUnreachable, Text: "UNREACHABLE: no route"},
		"AUTH: no proof":           {Code: wire.CodeAuth, Text: "no proof"},
		"it has not connected yet": {},
	} {
		reason, fix := peerReason(&p)
		if reason != want || fix == "" || strings.Contains(fix, "OK") {
			t.Errorf("%q, fix %q; want %q", reason, fix, want)
		}
	}
	p := fabric.Peer{Name: "p", Fabric: "far", State: fabric.PeerRefused}
	if got := peerSubject(&p); got != "peer p of far: refused" {
		t.Errorf("%q", got)
	}
}
