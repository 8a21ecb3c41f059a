package link

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
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
				defer cpuPerByte(b, total)()
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

// cpuPerByte reports the processor time of the process for each GB moved, which
// unlike the speed does not depend on what else the machine does. Both agents
// are in it: two cores that had nothing else to do would move 2/x GB/s at most.
func cpuPerByte(b *testing.B, size int) func() {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() {
		b.ReportMetric((used()-before).Seconds()*1e9/float64(size)/float64(b.N), "cpu-s/GB")
	}
}

// BenchmarkSocket is the kernel's share: the same bytes over loopback, written
// and read in the pieces that the link uses, without protocol and hash.
func BenchmarkSocket(b *testing.B) {
	const total = 64 << 20
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	in, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	out, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	n := &Node{cfg: Config{Congestion: "cubic"}}
	n.tune(in)
	n.tune(out)
	src, dst := randomBody(total), make([]byte, total)
	b.SetBytes(total)
	defer cpuPerByte(b, total)()
	for b.Loop() {
		done := make(chan error)
		go func() {
			for at := 0; at < total; at += proto.MaxChunk {
				if _, err := out.Write(src[at : at+proto.MaxChunk]); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		if _, err := io.ReadFull(in, dst); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	_ = in.Close()
	_ = out.Close()
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
