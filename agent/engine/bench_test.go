package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
)

func init() {
	roles["daemon"] = daemonRole
	roles["echo"] = echoRole
}

// daemonRole serves a store of args[1] bytes on the socket args[0].
func daemonRole(args []string) {
	capacity, err := strconv.ParseUint(args[1], 10, 64)
	childFail(err)
	store, err := blocks.Open(blocks.Config{Capacity: capacity})
	childFail(err)
	srv, err := engine.Listen(engine.Config{
		Path: args[0], Tenants: []string{"acme"}, Store: store, Host: newHost(store),
		Limits: engine.Limits{StagingBytes: 80 << 20},
	})
	childFail(err)
	go func() { childFail(srv.Serve()) }()
	say("ready")
	untilTold()
}

// echoRole sends everything back: the bare price of a socket between two
// processes.
func echoRole([]string) {
	b := make([]byte, 4096)
	for {
		n, err := unix.Read(3, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		if _, err := unix.Write(3, b[:n]); err != nil {
			return
		}
	}
}

// latencies reports percentiles in addition to the benchmark's mean.
type latencies []time.Duration

func (l latencies) report(b *testing.B) {
	slices.Sort(l)
	at := func(p float64) float64 { return float64(l[int(p*float64(len(l)-1))].Nanoseconds()) / 1e3 }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
}

// BenchmarkAcquire16 is what an engine waits for a lease on 16 blocks, in another
// process than the daemon's, compared with the round trip of the same number of bytes on
// a bare socket.
func BenchmarkAcquire16(b *testing.B) {
	b.Run("bare-socket", benchBare)
	for _, c := range []struct {
		name     string
		body     int
		capacity int
	}{
		{"block=16KiB", 16 << 10, 8 << 20},
		{"block=63MiB", 63 << 20, 16 * 64 << 20},
	} {
		b.Run(c.name, func(b *testing.B) { benchAcquire(b, c.body, c.capacity) })
	}
}

func benchBare(b *testing.B) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fds[0])
	c := childWithFD(b, fds[1])
	defer c.kill()
	req := make([]byte, 24+16+16*52+4)
	answer := make([]byte, 4096)
	all := make(latencies, 0, b.N)
	b.ResetTimer()
	for range b.N {
		t := time.Now()
		if _, err := unix.Write(fds[0], req); err != nil {
			b.Fatal(err)
		}
		for got := 0; got < len(req); {
			n, err := unix.Read(fds[0], answer)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
		all = append(all, time.Since(t))
	}
	b.StopTimer()
	all.report(b)
}

func childWithFD(b *testing.B, fd int) *child {
	f := os.NewFile(uintptr(fd), "peer")
	defer f.Close()
	return spawnWith(b, f, "echo")
}

func benchAcquire(b *testing.B, size, capacity int) {
	path := filepath.Join(tempDir(b), "s")
	d := spawn(b, "daemon", path, strconv.Itoa(capacity))
	d.expect(b, "ready")
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	m := manifest("acme")
	m.BlockBytes = uint32(size)
	ns, err := e.Open(ctx, m)
	if err != nil {
		b.Fatal(err)
	}
	bytes := body(3, size)
	keys := make([]wire.Key, 16)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint(i))
		if errs := e.Put(ctx, []client.Block{{NS: ns, Key: keys[i], Tier: wire.OutputCritical, Body: bytes}}); errs[0] != nil {
			b.Fatal(errs[0])
		}
	}
	l := new(client.Lease)
	all := make(latencies, 0, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		t := time.Now()
		if err := e.AcquireInto(ctx, l, ns, keys, client.AcquireOptions{}); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(t))
		for i := range l.Blocks {
			if l.Blocks[i].Err != nil {
				b.Fatal(l.Blocks[i].Err)
			}
		}
		l.Release()
	}
	b.StopTimer()
	all.report(b)
}
