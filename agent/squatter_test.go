package agent

import (
	"encoding/hex"
	"strings"
	"testing"

	"meridian/adapters/link"
	"meridian/agent/finding"
	"meridian/wire"
)

// holds says which of two daemons has a block.
func holds(a, b *testNode, key wire.Key) (inA, inB bool) {
	has := func(n *testNode) bool {
		v, err := n.store.Stat(key)
		return err == nil && v.Seg != 0
	}
	return has(a), has(b)
}

// A daemon with a certificate of its own gives the agent id of another one. It is
// served as who it is: sessions, handles, homes of keys and metrics of the two have
// nothing to do with each other, and people are told.
func TestAnAgentIDUnderAnotherNameTakesNothingFromItsOwner(t *testing.T) {
	dir := shortDir(t)
	ca := newAuthority(t, dir)
	listen := "[link]\nlanes = 2\nlisten = [\"tls://127.0.0.1:0\"]\n[[link.peer]]\nname = \"owner\"\ntenants = [\"acme\"]\n[[link.peer]]\nname = \"squatter\"\ntenants = [\"acme\"]\n"
	home := startNode(t, dir, "home", listen+ca.issue(t, "home", "acme")+offloads+"fabric = \"link\"\n")
	dial := "[link]\nlanes = 2\n[[link.peer]]\nname = \"home\"\naddress = \"" + home.Ports()["link"][0] + "\"\ntenants = [\"acme\"]\n"
	owner := startNode(t, dir, "owner", dial+ca.issue(t, "owner", "acme"))
	until(t, "the owner's session", func() bool { return peerOf(home, "owner").State == link.StateReady })
	_, id, _ := owner.Identity()
	before := peerOf(home, "owner")
	held := owner.engine(t)
	early := held.keys("owner's", 8)
	held.put(t, early, 64<<10, wire.OutputCritical, 0)
	e := home.engine(t)
	e.mustFetch(t, early[:2])

	cfg := loadConfig(t, shortDir(t), "squatter", dial+ca.issue(t, "squatter", "acme"))
	cfg.Agent.ID = hex.EncodeToString(id[:])
	squatter := startConfig(t, cfg)
	until(t, "the squatter's session", func() bool { return peerOf(home, "squatter").State == link.StateReady })
	for _, n := range []*testNode{owner, squatter, home} {
		n.ready(t)
	}

	// Sessions: the owner's is the one that it had.
	if now := peerOf(home, "owner"); now.Agent != id || now.Inc != before.Inc || now.Addr != before.Addr || now.State != link.StateReady {
		t.Errorf("the owner's session was %+v and is %+v", before, now)
	}
	if got := peerOf(home, "squatter"); got.Agent != id || got.Inc == before.Inc {
		t.Errorf("the squatter's session: %+v", got)
	}
	if strings.Contains(owner.log.String(), "session ended") {
		t.Error("the owner lost a session")
	}

	// Homes of keys: each offloaded block has one, and both daemons are some's.
	thoughts := think(t, e, 32)
	until(t, "all think blocks are offloaded", func() bool { return home.mover.OffloadStats().Blocks == uint64(len(thoughts)) })
	here := map[bool]int{}
	for i, k := range thoughts {
		inOwner, inSquatter := holds(owner, squatter, k)
		if inOwner == inSquatter {
			t.Errorf("think block %d: at the owner %t, at the squatter %t", i, inOwner, inSquatter)
		}
		here[inOwner]++
	}
	if here[true] == 0 || here[false] == 0 {
		t.Errorf("%d blocks went to the owner and %d to the squatter, want some to each", here[true], here[false])
	}
	e.mustFetch(t, thoughts) // each comes back from where it went

	// Metrics: a series each, and no restart of a peer.
	for _, name := range []string{"owner", "squatter"} {
		for sample, want := range map[string]string{
			`meridian_peer_ready{peer="` + name + `",transport="tls"}`:     "1",
			`meridian_peer_incarnation_changes_total{peer="` + name + `"}`: "0",
		} {
			if v, ok := home.series(t, sample); !ok || v != want {
				t.Errorf("%s is %q (there: %t), want %s", sample, v, ok, want)
			}
		}
	}

	// People: one finding names both, with their addresses.
	var found []finding.Finding
	for _, f := range home.findings() {
		if f.ID == "link.duplicate" {
			found = append(found, f)
		}
	}
	at := func(name string) string { return name + " at " + peerOf(home, name).Addr }
	if len(found) != 1 || !strings.Contains(found[0].Reason, at("owner")) || !strings.Contains(found[0].Reason, at("squatter")) || found[0].Fix == "" {
		t.Errorf("findings %+v; want one with %q and %q", found, at("owner"), at("squatter"))
	}

	// Handles: what only the owner has is gone with it, whoever bears its id, and the
	// squatter's blocks stay to be had.
	own := squatter.engine(t)
	late := own.keys("squatter's", 4)
	own.put(t, late, 64<<10, wire.OutputCritical, 0)
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the owner is away", func() bool { return peerOf(home, "owner").State != link.StateReady })
	for i, err := range e.fetch(t, early[2:]) {
		if err == nil {
			t.Errorf("block %d of a daemon that is gone was served", i)
		}
	}
	e.mustFetch(t, late)
	if got := peerOf(home, "squatter"); got.State != link.StateReady {
		t.Errorf("the squatter's session ended with the owner's: %+v", got)
	}
}

// peerOf is what a daemon knows of a peer.
func peerOf(n *testNode, name string) link.PeerInfo {
	for _, p := range n.node.Peers() {
		if p.Name == name {
			return p
		}
	}
	return link.PeerInfo{}
}
