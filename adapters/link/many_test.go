package link

import (
	"fmt"
	"testing"

	"meridian/fabric"
	"meridian/wire"
)

// manyPeers is how many peers a node of a large cluster lists.
const manyPeers = 1000

// many is a node that lists manyPeers, of which the last is connected, and the
// routes of a daemon over them.
func many(b testing.TB) (n *side, routes *fabric.Routes, ns wire.Namespace) {
	b.Helper()
	n = start(b, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		for i := range manyPeers {
			c.Peers = append(c.Peers, PeerConfig{Name: fmt.Sprintf("p%d", i)})
		}
	})
	last := fmt.Sprintf("p%d", manyPeers-1)
	a := start(b, 1, 10, "", func(c *Config) {
		c.Name = last
		c.Peers = []PeerConfig{{Name: "b", Addr: n.addr}}
	})
	ready(b, a.Peer("b"))
	ready(b, n.Peer(last))
	ns, err := n.ns.Add(testManifest("t"))
	if err != nil {
		b.Fatal(err)
	}
	var reg fabric.Registry
	if err := reg.Add(label, n.Group()); err != nil {
		b.Fatal(err)
	}
	for i := range manyPeers {
		name := fmt.Sprintf("p%d", i)
		if err := reg.Add(fabric.PeerName(label, name), n.Peer(name)); err != nil {
			b.Fatal(err)
		}
	}
	routes, err = fabric.NewRoutes(&reg, []fabric.Route{{Fabric: label}})
	if err != nil {
		b.Fatal(err)
	}
	return n, routes, ns
}

// No list is made for a block, however many peers are listed.
func TestAPickAmongManyPeersTakesNoMemory(t *testing.T) {
	n, routes, ns := many(t)
	last := fmt.Sprintf("p%d", manyPeers-1)
	k := key0(ns)
	for name, f := range map[string]func() bool{
		"group": func() bool {
			_, err := routes.Pick(fabric.Query{NS: ns, AnyPeer: true, Bytes: 1 << 20})
			return err == nil
		},
		"peer": func() bool {
			c, err := routes.Pick(fabric.Query{NS: ns, Peer: last, Bytes: 1 << 20})
			return err == nil && c.Name == fabric.PeerName(label, last)
		},
		"home": func() bool { return n.Group().Choose(ns, k) == last },
	} {
		ok := true
		if allocs := testing.AllocsPerRun(100, func() { ok = ok && f() }); allocs != 0 || !ok {
			t.Errorf("%s: %v allocations, the right one: %v", name, allocs, ok)
		}
	}
}

// BenchmarkPickAmongManyPeers is what the choice of a way costs a block: for the
// group of all peers, for the one peer that is connected, and the home of a key.
func BenchmarkPickAmongManyPeers(b *testing.B) {
	n, routes, ns := many(b)
	last := fmt.Sprintf("p%d", manyPeers-1)
	pick := func(q fabric.Query) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := routes.Pick(q); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("group", pick(fabric.Query{NS: ns, AnyPeer: true, Bytes: 1 << 20}))
	b.Run("peer", pick(fabric.Query{NS: ns, Peer: last, Bytes: 1 << 20}))
	b.Run("home", func(b *testing.B) {
		b.ReportAllocs()
		k := key0(ns)
		for b.Loop() {
			if n.Group().Choose(ns, k) != last {
				b.Fatal("another peer")
			}
		}
	})
}
