package python

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/internal/testbed"
	"meridian/wire"
)

const benchRounds = 4000

// benchmarks are those of meridian/bench.py that the Go client has as well, in the same
// words; a name has no blanks in a benchmark's.
var benchmarks = []struct{ python, name string }{
	{"ping", "ping"},
	{"acquire and release, 16 blocks", "acquire=16"},
	{"acquire and release, 64 blocks", "acquire=64"},
	{"acquire, release later, 64 blocks", "acquire=64/later"}, // as the Go client releases
	{"has, 1024 keys", "has=1024"},
	{"tokens, 256 requests", "tokens=256"},
}

// BenchmarkClients measures the Go client and the one in Python against the same daemon, in
// turn, each in another process than the daemon's: the better of two medians, in
// microseconds, and how many times the former the latter is.
func BenchmarkClients(b *testing.B) {
	dir := testbed.ShortDir(b)
	d := newDaemon(b, dir, "house", "")
	d.ready(b)
	best := map[string][2]float64{}
	keep := func(name string, who int, us float64) {
		both, ok := best[name]
		if !ok {
			both = [2]float64{math.Inf(1), math.Inf(1)}
		}
		both[who] = min(both[who], us)
		best[name] = both
	}
	for range 2 {
		for name, us := range benchGo(b, d.at("e")) {
			keep(name, 0, us)
		}
		out, err := python(b, "-m", "meridian.bench", "--json", "--rounds", strconv.Itoa(benchRounds), d.at("e")).Output()
		if err != nil {
			b.Fatal(err)
		}
		var got map[string]struct {
			P50 float64 `json:"p50_us"`
		}
		if err := json.Unmarshal(out, &got); err != nil {
			b.Fatal(err)
		}
		for _, c := range benchmarks {
			keep(c.name, 1, got[c.python].P50)
		}
	}
	for _, c := range benchmarks {
		b.Run(c.name, func(b *testing.B) {
			both := best[c.name]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(both[0], "go-µs")
			b.ReportMetric(both[1], "python-µs")
			b.ReportMetric(both[1]/both[0], "times")
		})
	}
}

// benchGo has the medians of the Go client.
func benchGo(b *testing.B, socket string) map[string]float64 {
	ctx := context.Background()
	e, err := client.DialEngine(ctx, socket, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	m := wire.Manifest{Tenant: "acme", Model: "meridian/bench", Role: "kv", Dtype: "bf16", BlockTokens: 16, BlockBytes: 16 << 10, TPSize: 1, PPSize: 1, DCPSize: 1}
	ns, err := e.Open(ctx, m)
	if err != nil {
		b.Fatal(err)
	}
	keys := make([]wire.Key, 1024)
	blocks := make([]client.Block, len(keys))
	for i := range keys {
		keys[i] = wire.KeyOf(m.Namespace(), fmt.Append(nil, "go ", i))
		blocks[i] = client.Block{NS: ns, Key: keys[i], Tier: wire.OutputCritical, Body: make([]byte, 16<<10)}
	}
	for _, err := range e.Put(ctx, blocks) {
		if err != nil && err != wire.CodeExists {
			b.Fatal(err)
		}
	}
	reqs, ones, toks := make([]uint32, 256), make([]uint8, 256), make([]int32, 256)
	for i := range reqs {
		if reqs[i], err = e.Begin(ctx, client.Begin{Model: "bench", Prompt: []int32{1, 2, 3}}); err != nil {
			b.Fatal(err)
		}
		ones[i], toks[i] = 1, int32(i)
	}
	l := new(client.Lease)
	acquire := func(n int) func() error {
		return func() error {
			err := e.AcquireInto(ctx, l, ns, keys[:n], client.AcquireOptions{})
			l.Release()
			return err
		}
	}
	took := make([]time.Duration, benchRounds)
	p50 := func(call func() error) float64 {
		for i := range took {
			begun := time.Now()
			if err := call(); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		return float64(took[len(took)/2].Nanoseconds()) / 1000
	}
	got := map[string]float64{
		"ping":       p50(func() error { return e.Ping(ctx) }),
		"acquire=16": p50(acquire(16)),
		"acquire=64": p50(acquire(64)),
		"has=1024":   p50(func() error { _, err := e.Has(ctx, ns, keys, false); return err }),
		"tokens=256": p50(func() error { return e.Tokens(reqs, ones, toks) }),
	}
	got["acquire=64/later"] = got["acquire=64"]
	return got
}
