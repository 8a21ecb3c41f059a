package link

import (
	"fmt"
	"testing"

	"meridian/fabric"
	"meridian/wire"
)

// BenchmarkPull moves 64 MiB an operation from one agent to another over
// loopback, verified. Compare with BenchmarkHash and with the raw socket.
func BenchmarkPull(b *testing.B) {
	const total = 64 << 20
	for _, via := range []string{"tcp", "unix"} {
		for _, size := range []int{16 << 10, 64 << 10, 1 << 20, 4 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", via, size>>10), func(b *testing.B) {
				listen := "tcp://127.0.0.1:0"
				if via == "unix" {
					listen = "unix://" + b.TempDir() + "/s"
				}
				there := start(b, 2, 20, listen, func(c *Config) { c.Congestion = "cubic" })
				here := start(b, 1, 10, "", func(c *Config) {
					c.Congestion = "cubic"
					c.Peers = []PeerConfig{{Name: "b", Addr: there.addr}}
				})
				p := here.Peer("b")
				ready(b, p)
				ns, err := here.ns.Add(testManifest("t"))
				if err != nil {
					b.Fatal(err)
				}
				it := make([]fabric.Item, total/size)
				for i := range it {
					there.store.Add(ns, key(ns, i), wire.OutputCritical, randomBody(size))
					it[i] = fabric.Item{NS: ns, Key: key(ns, i), M: fabric.Mem{B: make([]byte, wire.HeaderLen+size)}}
				}
				ctx := WithClass(b.Context(), 0)
				b.SetBytes(total)
				for b.Loop() {
					for i := range it {
						it[i].H = fabric.Handle{}
					}
					p.Pull(ctx, it)
					for i := range it {
						if it[i].Err != nil {
							b.Fatal(it[i].Err)
						}
					}
				}
			})
		}
	}
}

// BenchmarkHash is the hash alone, on one core.
func BenchmarkHash(b *testing.B) {
	for _, size := range []int{16 << 10, 64 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			body := randomBody(size)
			b.SetBytes(int64(size))
			for b.Loop() {
				wire.SumOf(body)
			}
		})
	}
}
