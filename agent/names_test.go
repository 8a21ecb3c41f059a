package agent

import (
	"strings"
	"testing"

	"meridian/agent/adminpb"
	"meridian/wire"
)

func TestAMisspelledNameIsAnsweredWithTheNameThatWasMeant(t *testing.T) {
	_, decode := pair(t)
	c := decode.adminClient(t)
	for what, call := range map[string]func() error{
		"peer list": func() error {
			_, err := c.ListPeers(t.Context(), &adminpb.ListPeersRequest{Name: "prefil"})
			return err
		},
		"transfer list": func() error {
			_, err := c.ListTransfers(t.Context(), &adminpb.ListTransfersRequest{Peer: "prefil"})
			return err
		},
		"fabric probe --peer": func() error {
			_, err := c.ProbeFabric(t.Context(), &adminpb.ProbeFabricRequest{Peer: "prefil"})
			return err
		},
	} {
		err := call()
		if d := adminpb.Detail(err); d == nil || d.Code != uint32(wire.CodeAbsent) || !strings.Contains(d.Fix, "did you mean prefill?") {
			t.Errorf("%s: %v, detail %+v", what, err, d)
		}
	}
	_, err := c.ProbeFabric(t.Context(), &adminpb.ProbeFabricRequest{Fabric: "lnik"})
	if d := adminpb.Detail(err); d == nil || !strings.Contains(d.Fix, "did you mean link?") {
		t.Errorf("fabric probe: %v, detail %+v", err, d)
	}
}
