package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/conformance/chaos"
	"meridian/wire"
)

// BenchmarkFrozenHolder prints how long a load takes over the link while one of
// three holders answers nothing: p50, p99 and the longest. Each load asks for a
// chain that all three have, but for its last block, which nobody has. A load is
// given two seconds. With -benchtime 100x it makes 100 loads.
func BenchmarkFrozenHolder(b *testing.B) {
	const chains, blocks, size, patience = 100, 8, 32 << 10, 2 * time.Second
	const arena = "[kv_memory]\ncapacity_bytes = \"64MiB\"\n"
	dir := shortDir(b)
	text := linkTable
	var holders []*testNode
	var last *chaos.Proxy
	for i := range 3 {
		name := fmt.Sprint("holder", i)
		h := startNode(b, dir, name, listener("tcp://127.0.0.1:0", "decode")+arena)
		proxy, err := chaos.NewProxy(chaos.ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: h.Ports()["link"][0]})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = proxy.Close() })
		text += fmt.Sprintf("[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"acme\"]\n", name, proxy.Addr())
		holders, last = append(holders, h), proxy
	}
	loadConfig(b, dir, "decode", text+arena) // writes the file
	cfg, _, err := openers.Load(config.Options{Path: filepath.Join(dir, "decode.toml")})
	if err != nil {
		b.Fatal(err)
	}
	decode := startConfig(b, cfg)
	until(b, "all holders are ready", func() bool {
		v := decode.varz()
		return v.Ready && v.Fabrics[linkFabric].Sessions == 3 && v.Fabrics[linkFabric].Lanes == 9
	})
	e := decode.engine(b)
	chain := func(i int) []wire.Key { return e.keys(fmt.Sprint("load ", i%chains), blocks+1) }
	for _, h := range holders {
		put := h.engine(b)
		for i := range chains {
			put.put(b, chain(i)[:blocks], size, wire.OutputCritical, 0)
		}
	}
	e.fetch(b, e.keys("warm", 1))
	last.Stall(true)
	var took []time.Duration
	whole := 0
	for i := 0; b.Loop(); i++ {
		decode.store.Discard(e.ns, chain(i))
		began := time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), patience)
		l, err := e.Acquire(ctx, e.space, chain(i), client.AcquireOptions{Fetch: true})
		took = append(took, time.Since(began))
		cancel()
		if err != nil {
			continue
		}
		if !slices.ContainsFunc(l.Blocks[:blocks], func(x client.Block) bool { return x.Err != nil }) {
			whole++
		}
		l.Release()
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1e3 }
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "max-ms")
	b.ReportMetric(100*float64(whole)/float64(len(took)), "%whole")
	b.ReportMetric(0, "ns/op")
}
