package scheduler

import (
	"strconv"
	"testing"
)

// live returns a core with n requests, a third each in ThinkDecode, with a
// multi-token marker, and in OutputDecode, and the inputs of one engine step that
// give each of them perStep tokens that end nothing.
func live(tb testing.TB, n, perStep int) (*Core, []Input) {
	tb.Helper()
	ms, err := NewModels([]Model{
		{Name: "one", Start: []int32{tokStart}, End: []int32{tokEnd}, EOS: []int32{tokEOS, 10}, MaxThink: 1<<32 - 1},
		{Name: "many", Start: []int32{1, 2, 3}, End: []int32{4, 5, 6}, EOS: []int32{tokEOS}, MaxThink: 1<<32 - 1},
	})
	if err != nil {
		tb.Fatal(err)
	}
	c := New(Config{Models: ms, OffloadThreshold: 4, Signals: rules(tb, nil)})
	toks := make([]int32, 4096)
	for i := range toks {
		toks[i] = 1000 + int32(i*7919%150000)
	}
	in := make([]Input, n)
	for i := range in {
		id := ID(i*2654435761 + 12345)
		open := [][]int32{{tokStart}, {1, 2, 3}, {tokText}}[i%3]
		c.Step(0, []Input{
			{Kind: Arrive, ID: id, Model: []string{"one", "many", "one"}[i%3]},
			{Kind: Tokens, ID: id, Tokens: open},
		})
		at := i % (len(toks) - perStep)
		in[i] = Input{Kind: Tokens, ID: id, Tokens: toks[at : at+perStep]}
	}
	var r Ready
	c.Ready(&r)
	return c, in
}

// BenchmarkRouterToken is the cost of a token with 1,024 live requests; target
// 25 ns. tokens=1 is plain decoding, tokens=4 is speculative.
func BenchmarkRouterToken(b *testing.B) {
	for _, perStep := range []int{1, 4} {
		b.Run("tokens="+strconv.Itoa(perStep), func(b *testing.B) {
			c, in := live(b, 1024, perStep)
			var r Ready
			b.ReportAllocs()
			steps := 0
			for b.Loop() {
				c.Step(Time(steps), in)
				c.Ready(&r)
				steps++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps*len(in)*perStep), "ns/token")
		})
	}
}

// BenchmarkRequest is a request's life but for its tokens: arrive, think, offload, end.
func BenchmarkRequest(b *testing.B) {
	c, _ := live(b, 1024, 1)
	in := []Input{
		{Kind: Arrive, ID: 1, Model: "one"},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokStart, tokText}},
		{Kind: KV, ID: 1, Blocks: 6},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokEnd, tokText, tokEOS}},
		{Kind: Done, ID: 1},
	}
	var r Ready
	b.ReportAllocs()
	for b.Loop() {
		c.Step(0, in)
		c.Ready(&r)
	}
}

// BenchmarkProbe is the cost of a signal with 1,024 live requests, a third of
// which do not think. An interval of 1 makes every sample count.
func BenchmarkProbe(b *testing.B) {
	c, in := live(b, 1024, 1)
	for i := range in {
		in[i].Kind, in[i].Tokens, in[i].Signal = Probed, nil, Signal{SigPEnd, 0.01}
	}
	for i := range c.monitors {
		c.monitors[i].rules = rules(b, func(c *SignalConfig) { c.ProbeInterval = 1 })
	}
	var r Ready
	b.ReportAllocs()
	steps := 0
	for b.Loop() {
		for i := range c.slots {
			c.slots[i].used++
		}
		c.Step(Time(steps), in)
		c.Ready(&r)
		steps++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps*len(in)), "ns/signal")
}

// BenchmarkRow is the cost of a signal of one row, with the vocabulary of Qwen3.
func BenchmarkRow(b *testing.B) {
	row := make([]float32, 151_936)
	for i := range row {
		row[i] = float32(i*7919%1000) / 100
	}
	logprobs, _ := logSoftmax(row)
	end := []int32{151_668}
	for _, bb := range []struct {
		name string
		f    func() (float64, error)
	}{
		{"entropy/logits", func() (float64, error) { return EntropyOfLogits(row) }},
		{"entropy/logprobs", func() (float64, error) { return Entropy(logprobs) }},
		{"p_end/logits", func() (float64, error) { return PEndOfLogits(row, end) }},
		{"p_end/logprobs", func() (float64, error) { return PEnd(logprobs, end) }},
		{"entropy/top20", func() (float64, error) { x, _, err := EntropyLowerBound(logprobs[:20]); return x, err }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bb.f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Neither a token, a signal nor a whole request allocates once the event buffers have
// grown, the built-in table included.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	c, in := live(t, 1024, 4)
	life := []Input{
		{Kind: Arrive, ID: 1, Model: "one", Tokens: []int32{5, tokStart}},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokText}},
		{Kind: Probed, ID: 1, Signal: Signal{SigPEnd, 0.5}},
		{Kind: Probed, ID: 1, Signal: Signal{SigEntropy, nan}},
		{Kind: Probed, ID: 1, Signal: Signal{SigRPDI, 9}},
		{Kind: KV, ID: 1, Blocks: 6},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokEnd, tokText, tokEOS}},
		{Kind: Done, ID: 1},
		{Kind: Arrive, ID: 2, Model: "org/Qwen3-8B"},
		{Kind: Tokens, ID: 2, Tokens: []int32{151667}},
		{Kind: Abort, ID: 2},
		{Kind: Arrive, ID: 2, Model: "nobody's"},
		{Kind: Abort, ID: 2},
	}
	var r Ready
	var now Time
	step := func() {
		now++
		c.Step(now, in)
		c.Step(now, life)
		c.Tick(now)
		c.Ready(&r)
		if s := c.Stats(); s.Tracked() != 1024 {
			t.Fatalf("%d tracked", s.Tracked())
		}
	}
	step()
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// Nor does a request's monitor of its own, or what follows its entropies.
func TestMonitorsDoNotAllocate(t *testing.T) {
	shared := rules(t, nil)
	end, row := []int32{1, 2}, make([]float32, 100)
	if n := testing.AllocsPerRun(100, func() {
		m, x := shared.Monitor(), RPDI{}
		for at := uint32(0); at < 4096; at += 16 {
			h, err := EntropyOfLogits(row)
			p, err2 := PEndOfLogits(row, end)
			ratio, _, err3 := x.Token(float32(h), true)
			if err != nil || err2 != nil || err3 != nil {
				t.Fatal(err, err2, err3)
			}
			if m.Due(at) {
				m.Probe(at, Signal{SigEntropy, float32(h)}, Signal{SigPEnd, float32(p)}, Signal{SigRPDI, float32(ratio)})
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
