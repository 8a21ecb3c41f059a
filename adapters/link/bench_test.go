package link

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/fabric"
	"meridian/internal/invariants/leak"
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
				ctx := fabric.WithClass(b.Context(), fabric.ClassUrgent)
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

// BenchmarkPuller is the asking side alone, with the holder in a process of its
// own and a pull for each processor under way at a time. Beside the processor
// time of this process it reports how often one of its threads went to sleep for
// each pull, which other load on the machine changes little. Its profile:
//
//	go test -run '^$' -bench Puller/16KiB -benchtime 3000x -cpuprofile puller.prof -o link.test ./adapters/link
//	go tool pprof -top -nodecount=20 link.test puller.prof
func BenchmarkPuller(b *testing.B) {
	for _, c := range []struct{ size, batch int }{{16 << 10, 64}, {64 << 10, 64}, {1 << 20, 16}} {
		b.Run(fmt.Sprintf("%dKiB", c.size>>10), func(b *testing.B) {
			p, ns, _ := benchPeer(b, c.size)
			total := c.size * c.batch
			b.SetBytes(int64(total))
			before := usage(b)
			defer cpuPerByte(b, total)()
			var asked atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				room := make([]byte, c.batch*(wire.HeaderLen+c.size))
				it := make([]fabric.Item, c.batch)
				for pb.Next() {
					from := int(asked.Add(int64(c.batch)))
					for i := range it {
						at := i * (wire.HeaderLen + c.size)
						it[i] = fabric.Item{NS: ns, Key: key(ns, (from+i)%benchBlocks(c.size)), M: fabric.Mem{B: room[at : at+wire.HeaderLen+c.size]}}
					}
					p.Pull(fabric.WithClass(b.Context(), fabric.ClassUrgent), it)
					for i := range it {
						if it[i].Err != nil {
							b.Error(it[i].Err)
							return
						}
					}
				}
			})
			b.ReportMetric(float64(usage(b).Nvcsw-before.Nvcsw)/float64(b.N), "sleeps/op")
		})
	}
}

// benchHolder is set in the environment of BenchmarkPuller's holder: the size of
// its blocks.
const benchHolder = "MERIDIAN_TEST_LINK_HOLDER"

// benchBlocks is how many blocks the holder has: 64 MiB, more than the caches
// of a processor.
func benchBlocks(size int) int { return 64 << 20 / size }

// TestMain is the holder's process, too.
func TestMain(m *testing.M) {
	size, err := strconv.Atoi(os.Getenv(benchHolder))
	if err != nil {
		leak.Main(m)
	}
	if err := hold(size); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hold serves blocks of one size until its input ends.
func hold(size int) error {
	st, reg, err := smallStore(size)
	if err != nil {
		return err
	}
	n, err := New(Config{Agent: agentID(2), Incarnation: 20, Store: st, Namespaces: reg, Insecure: true, Congestion: "cubic", Tenants: []string{"t"}})
	if err != nil {
		return err
	}
	a, err := n.Listen("tcp://127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(a)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, n.Close(), st.Close())
}

// benchPeer starts a holder's process, and an agent that is connected to it.
func benchPeer(b *testing.B, size int) (*Peer, wire.Namespace, int) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchHolder+"="+strconv.Itoa(size))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	here := start(b, 1, 10, "", func(c *Config) {
		c.Congestion, c.Lanes = "cubic", 0
		c.Peers = []PeerConfig{{Name: "b", Addr: "tcp://" + strings.TrimSpace(addr)}}
	})
	ready(b, here.Peer("b"))
	ns, err := here.ns.Add(benchManifest(size))
	if err != nil {
		b.Fatal(err)
	}
	return here.Peer("b"), ns, cmd.Process.Pid
}

func usage(b *testing.B) (u unix.Rusage) {
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u
}

// cpuPerByte reports the processor time of the process for each GB moved, which
// unlike the speed does not depend on what else the machine does. Where both
// agents are in it, two cores that had nothing else to do would move 2/x GB/s at
// most.
func cpuPerByte(b *testing.B, size int) func() {
	used := func() time.Duration {
		u := usage(b)
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
