package agent

import (
	"testing"

	"meridian/agent/client"
)

// The ranks of one model connect to one daemon, as a node with TP 2 has them.
func TestTwoRanksOfOneModelShareADaemon(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	first := testManifest("acme")
	first.TPSize = 2
	second := first
	second.TPRank = 1
	n.engineOf(t, first)
	c, err := client.DialEngine(t.Context(), n.cfg.Engine.Socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Open(t.Context(), second); err != nil {
		t.Errorf("rank 1 beside rank 0: %v", err)
	}
}
