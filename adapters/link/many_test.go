package link

import (
	"fmt"
	"runtime"
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
	// Handshakes of further lanes would count as memory of what is measured.
	until(b, func() bool { return n.Stats().Lanes == 3 && a.Stats().Lanes == 3 })
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

// memory is what the process has on the heap and in stacks, in MiB.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / (1 << 20)
}

// BenchmarkMemoryOfManyPeers is what an idle node with manyPeers takes, in MiB: none
// of them reachable, and all of them connected by one data lane, and by four. Those are
// in this process too, so the second figure and the third are of both ends.
//
//	go test -run '^$' -bench MemoryOfMany -benchtime 1x ./adapters/link
func BenchmarkMemoryOfManyPeers(b *testing.B) {
	list := func(addr string, lanes int) func(*Config) {
		return func(c *Config) {
			c.Name, c.Lanes = "b", lanes
			for i := range manyPeers {
				c.Peers = append(c.Peers, PeerConfig{Name: fmt.Sprintf("p%d", i), Addr: addr})
			}
		}
	}
	b.Run("unreachable", func(b *testing.B) {
		for b.Loop() {
			before := memory()
			n := start(b, 2, 20, "", list("tcp://127.0.0.1:1", 1))
			for _, p := range n.peers() {
				until(b, func() bool { _, code, _ := p.status(); return code == wire.CodeUnreachable })
			}
			b.ReportMetric(memory()-before, "MiB")
			n.stop(b)
		}
	})
	for _, lanes := range []int{1, 4} {
		b.Run(fmt.Sprintf("connected/lanes=%d", lanes), func(b *testing.B) {
			for b.Loop() {
				before := memory()
				n := start(b, 2, 20, "unix://"+b.TempDir()+"/s", list("", lanes))
				var all []*side
				for i := range manyPeers {
					a := start(b, 1, uint64(i+1), "", func(c *Config) {
						c.Name, c.Lanes, c.Agent = fmt.Sprintf("p%d", i), lanes, [16]byte{1, byte(i), byte(i >> 8)}
						c.Peers = []PeerConfig{{Name: "b", Addr: n.addr}}
					})
					ready(b, a.Peer("b"))
					until(b, func() bool { return a.Peer("b").info().Lanes == lanes })
					all = append(all, a)
				}
				b.ReportMetric(memory()-before, "MiB")
				b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
				for _, a := range all {
					a.stop(b)
				}
				n.stop(b)
			}
		})
	}
}
