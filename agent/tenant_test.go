package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"meridian/agent/client"
	"meridian/fabric"
	"meridian/wire"
)

// Both sides' engines may use globex, but the peers share acme only: globex's
// blocks are absent, and its namespace is not even named to the peer.
func TestBlocksOfATenantThatThePeerHasNotProvedAreUnknown(t *testing.T) {
	dir := shortDir(t)
	both := func(name, text string) *testNode {
		cfg := loadConfig(t, dir, name, text)
		cfg.Security.Tenants = []string{"acme", "globex"}
		return startConfig(t, cfg)
	}
	prefill := both("prefill", listener("tcp://127.0.0.1:0", "decode"))
	decode := both("decode", dialler(prefill.Ports()["link"][0], "prefill"))
	decode.ready(t)
	a, b := prefill.engineOf(t, testManifest("globex")), decode.engineOf(t, testManifest("globex"))
	keys := a.keys("secret", 3)
	a.put(t, keys, 4<<10, wire.OutputCritical, 0)
	for i, err := range b.fetch(t, keys) {
		if !errors.Is(err, wire.CodeAbsent) {
			t.Errorf("block %d of another tenant: %v, want ABSENT", i, err)
		}
	}
	for _, n := range decode.node.Peers()[0].Namespaces {
		if n.NS == b.ns {
			t.Error("the peer was asked about a namespace of a tenant that it has not proved")
		}
	}
	// Asked all the same, the peer does not know it.
	if err := findAt(t, decode.node.Peer("prefill"), b.ns, keys[0]); !errors.Is(err, wire.CodeNSUnknown) {
		t.Errorf("the peer answers %v, want NS_UNKNOWN", err)
	}
}

func TestATenantThatIsNotAllowedOpensNothing(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	c, err := client.DialEngine(t.Context(), n.cfg.Engine.Socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Open(t.Context(), testManifest("nobody")); !errors.Is(err, wire.CodeNSUnknown) {
		t.Errorf("open of a tenant that is not allowed: %v", err)
	}
}

// Two sides that differ in block_tokens: fetches say GEOMETRY, and the field
// and both values are told, to the engine of the same daemon as well.
func TestGeometryMismatchNamesFieldAndBothValues(t *testing.T) {
	prefill, decode := pair(t)
	prefill.engine(t)
	other := testManifest("acme")
	other.BlockTokens = 32
	b := decode.engineOf(t, other)
	err := b.fetch(t, b.keys("k", 1))[0]
	if !errors.Is(err, wire.CodeGeometry) {
		t.Errorf("fetch across the mismatch: %v, want GEOMETRY", err)
	}
	names := func(text string) bool {
		return strings.Contains(text, "block_tokens") && strings.Contains(text, "16") && strings.Contains(text, "32")
	}
	var told []string
	for _, n := range decode.node.Peers()[0].Namespaces {
		if n.NS == b.ns && n.Code == wire.CodeGeometry {
			told = append(told, n.Text)
		}
	}
	if len(told) != 1 || !names(told[0]) {
		t.Errorf("the peer's row says %q, want block_tokens, 16 and 32", told)
	}
	c, err := client.DialEngine(t.Context(), prefill.cfg.Engine.Socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err = c.Open(t.Context(), other); !errors.Is(err, wire.CodeGeometry) || !names(fmt.Sprint(err)) {
		t.Errorf("the engine is told %v", err)
	}
}

// An agent that is on no list can have several sessions, and there is no bound
// on names: a scrape takes one row a name and a bounded number of names.
func TestPeerRowsOfAScrapeAreUniqueAndBounded(t *testing.T) {
	var rows []fabric.Peer
	for i := range maxPeerLabels + 50 {
		name := fmt.Sprintf("%04d", i)
		rows = append(rows, fabric.Peer{Name: name, Lanes: 1}, fabric.Peer{Name: name, Lanes: 2})
	}
	got := onePerName(rows)
	if len(got) != maxPeerLabels {
		t.Fatalf("%d rows, want %d", len(got), maxPeerLabels)
	}
	for i, p := range got {
		if p.Name != fmt.Sprintf("%04d", i) || p.Lanes != 1 {
			t.Fatalf("row %d is %s", i, p.Name)
		}
	}
}

// Without a list and without proof a peer is known by its agent id only, and the
// scrape shows it.
func TestPeersThatInsecureLetInAreScraped(t *testing.T) {
	n := startNode(t, shortDir(t), "hub", "[link]\ninsecure = true\nlisten = [\"tcp://127.0.0.1:0\"]\n")
	addr := n.Ports()["link"][0]
	twin := startNode(t, shortDir(t), "twin", fmt.Sprintf("[link]\ninsecure = true\nlanes = 1\n[[link.peer]]\nname = \"hub\"\naddress = %q\ntenants = [\"acme\"]\n", addr))
	until(t, "the twin is scraped as ready", func() bool {
		v, _ := n.series(t, fmt.Sprintf(`meridian_peer_ready{peer="%x",transport="tcp"}`, twin.id.agent[:4]))
		return v == "1"
	})
}
