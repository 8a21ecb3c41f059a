package agent

import (
	"meridian/fabric"
	"strings"
	"testing"
)

func TestAPartnerIsWorthAskingOnlyWhereItsBlocksCanBeHad(t *testing.T) {
	ready := fabric.Peer{Name: "a", State: fabric.PeerReady}
	down := fabric.Peer{Name: "b", State: fabric.PeerConnecting, Text: "no route"}
	for _, c := range []struct {
		name  string
		peers []fabric.Peer
		want  string // of the reason; empty: none
	}{
		{"", nil, "as a peer"}, {"a", nil, "as a peer"},
		{"", []fabric.Peer{down, ready}, ""}, {"a", []fabric.Peer{down, ready}, ""},
		{"", []fabric.Peer{down}, "no route"}, {"b", []fabric.Peer{ready, down}, "peer b is not ready"},
		{"c", []fabric.Peer{ready}, `no peer "c"`},
	} {
		got := ""
		if err := partnerBlocked(c.peers, c.name); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
