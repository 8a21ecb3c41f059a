package agent

import (
	"strings"
	"testing"

	"meridian/adapters/link"
)

func TestAPartnerIsWorthAskingOnlyWhereItsBlocksCanBeHad(t *testing.T) {
	ready := link.PeerInfo{Name: "a", State: link.StateReady}
	down := link.PeerInfo{Name: "b", State: link.StateConnecting, Text: "no route"}
	for _, c := range []struct {
		name  string
		peers []link.PeerInfo
		want  string // of the reason; empty: none
	}{
		{"", nil, "[[link.peer]]"}, {"a", nil, "[[link.peer]]"},
		{"", []link.PeerInfo{down, ready}, ""}, {"a", []link.PeerInfo{down, ready}, ""},
		{"", []link.PeerInfo{down}, "no route"}, {"b", []link.PeerInfo{ready, down}, "peer b is not ready"},
		{"c", []link.PeerInfo{ready}, `no peer "c"`},
	} {
		got := ""
		if err := partnerLink(c.peers, c.name); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
