package scheduler

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func rules(tb testing.TB, change func(*SignalConfig)) *Rules {
	tb.Helper()
	c := DefaultSignalConfig()
	if change != nil {
		change(&c)
	}
	r, err := NewRules(c)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// forced probes at every multiple of the seed's interval, and returns the first
// reason, where it came, and how many reasons came in all.
func forced(r *Rules, tokens uint32, signals func(at uint32) []Signal) (why Reason, at uint32, times int) {
	m := r.Monitor()
	for n := r.c.ProbeInterval; n <= tokens; n += r.c.ProbeInterval {
		if got := m.Probe(n, signals(n)...); got != NoReason {
			if times++; times == 1 {
				why, at = got, n
			}
		}
	}
	return why, at, times
}

// always is the same signals at every probe.
func always(s ...Signal) func(uint32) []Signal { return func(uint32) []Signal { return s } }

// A model that never thinks of ending is calm and has not converged. The rule of
// the seed, which starts its two moving averages at 0.5 and 0.25, sees a
// variance that rises and falls by itself and forces at token 3456 whatever the
// model; replayed here so that the input is known to be the one that does it.
func TestEndNearZeroForEverNeverConverges(t *testing.T) {
	for _, p := range []float32{0, 1e-6, 1e-3} {
		mean, square, first := 0.5, 0.25, 0
		for at := 32; at <= 20_000 && first == 0; at += 32 {
			mean = 0.05*float64(p) + 0.95*mean
			square = 0.05*float64(p)*float64(p) + 0.95*square
			if at >= 512 && square-mean*mean < 0.001 {
				first = at
			}
		}
		if first != 3456 {
			t.Errorf("p_end %v: the seed's rule forces at token %d, not at 3456: this is not its defect", p, first)
		}
		if why, at, _ := forced(rules(t, nil), 20_000, always(Signal{SigPEnd, p})); why != NoReason {
			t.Errorf("p_end %v: %s at token %d", p, why, at)
		}
	}
	// Noise below any level is quiet too.
	r := rand.New(rand.NewPCG(1, 1))
	noise := func(uint32) []Signal { return []Signal{{SigPEnd, r.Float32() * 0.05}} }
	if why, at, _ := forced(rules(t, nil), 20_000, noise); why != NoReason {
		t.Errorf("noise: %s at token %d", why, at)
	}
}

// A request that is as uncertain as ever does not overthink. The rule of the
// seed divides a sum over samples by a count of tokens, so that its mean is too
// small by the probe interval, and forces at token 544, the first probe after
// its minimum.
func TestMeanIsOverSamplesNotTokens(t *testing.T) {
	average, sum, first := 0.0, 0.0, 0
	for at := 32; at <= 20_000 && first == 0; at += 32 {
		average = 0.05*1 + 0.95*average
		sum++
		if at > 512 && average/(sum/float64(at)) > 3 {
			first = at
		}
	}
	if first != 544 {
		t.Errorf("the seed's rule forces at token %d, not at 544: this is not its defect", first)
	}
	var r *rand.Rand
	for name, h := range map[string]func(uint32) []Signal{
		"always uncertain": always(Signal{SigEntropy, 9}),
		"never uncertain":  always(Signal{SigEntropy, 0.1}),
		"at the threshold": always(Signal{SigEntropy, 2.5}),
		"half the time":    func(uint32) []Signal { return []Signal{{SigEntropy, 5 * r.Float32()}} },
		"a tenth of it":    func(uint32) []Signal { return []Signal{{SigEntropy, 2.77 * r.Float32()}} },
	} {
		r = rand.New(rand.NewPCG(2, 2))
		if why, at, _ := forced(rules(t, nil), 20_000, h); why != NoReason {
			t.Errorf("%s: %s at token %d", name, why, at)
		}
	}
}

// One uncertain token after many certain ones is a large multiple of a small
// mean, and nothing else.
func TestOneUncertainTokenIsNoOverthinking(t *testing.T) {
	spike := func(at uint32) []Signal {
		if at%6400 == 0 {
			return []Signal{{SigEntropy, 8}}
		}
		return []Signal{{SigEntropy, 0.2}}
	}
	if why, at, _ := forced(rules(t, nil), 30_000, spike); why != NoReason {
		t.Errorf("%s at token %d", why, at)
	}
	if why, at, _ := forced(rules(t, func(c *SignalConfig) { c.TransitionLevel = 0.01 }), 30_000, spike); why != Overthinking || at != 6400 {
		t.Errorf("without the level: %s at token %d, so the level is not what keeps it quiet", why, at)
	}
}

// reading recomputes the averages from all samples, by the formulas of arXiv
// 2509.26522 as sums: M_i = (1-a)^i x_0 + sum a (1-a)^(i-j) x_j, V_i likewise.
func reading(a float64, x []float64) (m, v float64) {
	weigh := func(y []float64, first float64) float64 {
		w := math.Pow(1-a, float64(len(y)-1)) * first
		for j := 1; j < len(y); j++ {
			w += a * math.Pow(1-a, float64(len(y)-1-j)) * y[j]
		}
		return w
	}
	d := make([]float64, len(x))
	for i := range x {
		d[i] = math.Pow(x[i]-weigh(x[:i+1], x[0]), 2)
	}
	return weigh(x, x[0]), weigh(d, 0)
}

func TestAveragesFollowTheirFormulas(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for _, a := range []float64{0.05, 0.1, 0.2, 1} {
		r := rules(t, func(c *SignalConfig) { c.Alpha = a })
		var v average
		var x []float64
		for i := range uint32(150) {
			x = append(x, random.Float64()*3)
			if !v.take(i*32, r, x[i]) {
				t.Fatal("a sample was left out")
			}
			m, want := reading(a, x)
			near(t, "mean", v.mean, m, 1e-9)
			near(t, "variance", v.variance, want, 1e-9)
			if v.warm(r) != (float64(i) >= 4/a) {
				t.Fatalf("alpha %v: warm %v at sample index %d", a, v.warm(r), i)
			}
		}
	}
}

// EAT forces at the first index from the warm-up on whose variance is below the
// threshold, and not before MinThink.
func TestEATStopsWhereThePaperDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	for range 60 {
		const d = 1.0 / (1 << 10)
		a := 0.1 + 0.1*random.Float64()
		noise, decay := random.Float64(), 0.9+0.1*random.Float64()
		least := uint32(random.IntN(3000))
		var x []float64
		want := uint32(0)
		series := make(map[uint32]float32)
		for at := uint32(32); at <= 20_000; at += 32 {
			series[at] = float32(1 + noise*random.Float64())
			noise *= decay
			x = append(x, float64(series[at]))
			if _, v := reading(a, x); want == 0 && len(x)-1 >= int(math.Ceil(4/a)) && at >= least && v < d {
				want = at
			}
			if len(x) == 120 {
				break
			}
		}
		r := rules(t, func(c *SignalConfig) { c.Alpha, c.VarianceThreshold, c.MinThink = a, d, least })
		why, at, times := forced(r, uint32(32*len(x)), func(at uint32) []Signal { return []Signal{{SigEAT, series[at]}} })
		if at != want || want > 0 && (why != Converged || times != 1) {
			t.Fatalf("alpha %v: %s at token %d, %d times, want %d", a, why, at, times, want)
		}
	}
}

// The seed's alpha of 0.05 is warm after 80 samples beyond the first: at token
// 81 times 32.
func TestConvergedNeedsCalmAndLevel(t *testing.T) {
	swinging := func(low, high float32) func(uint32) []Signal {
		return func(at uint32) []Signal { return []Signal{{SigPEnd, []float32{low, high}[at/32%2]}} }
	}
	level := func(l float64) func(*SignalConfig) { return func(c *SignalConfig) { c.EATLevel = l } }
	for name, tt := range map[string]struct {
		change  func(*SignalConfig)
		signals func(uint32) []Signal
		want    uint32 // 0: never
	}{
		"level and calm":          {nil, always(Signal{SigPEnd, 0.5}), 81 * 32},
		"certain to end":          {nil, always(Signal{SigPEnd, 1}), 81 * 32},
		"below the level":         {nil, always(Signal{SigPEnd, 0.499}), 0},
		"swings":                  {nil, swinging(0.3, 1), 0},
		"a lower level":           {func(c *SignalConfig) { c.PEndLevel = 0.1 }, always(Signal{SigPEnd, 0.2}), 81 * 32},
		"no variance is below 0":  {func(c *SignalConfig) { c.VarianceThreshold = 0 }, always(Signal{SigPEnd, 1}), 0},
		"alpha 1 warms up over 4": {func(c *SignalConfig) { c.Alpha, c.MinThink = 1, 0 }, always(Signal{SigPEnd, 1}), 5 * 32},
		"eat at any level":        {nil, always(Signal{SigEAT, 7}), 81 * 32},
		"eat at its level":        {level(1), always(Signal{SigEAT, 1}), 81 * 32},
		"eat above its level":     {level(1), always(Signal{SigEAT, 1.01}), 0},
	} {
		why, at, times := forced(rules(t, tt.change), 20_000, tt.signals)
		if at != tt.want || tt.want > 0 && (why != Converged || times != 1) {
			t.Errorf("%s: %s at token %d, %d times, want token %d", name, why, at, times, tt.want)
		}
	}
}

// A calm signal that rises to its level converges when its moving average gets
// there and the variance that the rise made is gone.
func TestRisingEndConverges(t *testing.T) {
	step := func(at uint32) []Signal {
		if at < 6400 {
			return []Signal{{SigPEnd, 0.001}}
		}
		return []Signal{{SigPEnd, 0.9}}
	}
	why, at, times := forced(rules(t, nil), 20_000, step)
	var x []float64
	want := uint32(0)
	for n := uint32(32); want == 0; n += 32 {
		x = append(x, float64(step(n)[0].Value))
		if m, v := reading(0.05, x); len(x) > 80 && m >= 0.5 && v < 0.001 {
			want = n
		}
	}
	if why != Converged || at != want || times != 1 || want <= 6400 {
		t.Errorf("%s at token %d, %d times, want %d", why, at, times, want)
	}
}

// A request that becomes uncertain after a long certain stretch overthinks.
func TestLateUncertaintyIsOverthinking(t *testing.T) {
	late := func(at uint32) []Signal {
		if at <= 9600 {
			return []Signal{{SigEntropy, 0.5}}
		}
		return []Signal{{SigEntropy, 4}}
	}
	// 300 zeros, then ones: the average is 1-0.95^k, at least one half from
	// k = 14 on, where the mean is 14/314.
	why, at, times := forced(rules(t, nil), 20_000, late)
	if why != Overthinking || at != 9600+14*32 || times != 1 {
		t.Errorf("%s at token %d, %d times", why, at, times)
	}
	// 20 zeros and as many ones make a mean of one half, of which nothing is
	// three times as much.
	early := func(at uint32) []Signal { return late(at + 9600 - 640) }
	if why, at, _ := forced(rules(t, nil), 20_000, early); why != NoReason {
		t.Errorf("early: %s at token %d", why, at)
	}
}

// SigRPDI comes with its own mean, so neither warm-up nor interval is asked for.
func TestRPDIForcesByItself(t *testing.T) {
	m := rules(t, nil).Monitor()
	if m.Probe(500, Signal{SigRPDI, 1}); !m.Due(500) {
		t.Error("it puts off a probe of the others")
	}
	for _, tt := range []struct {
		at   uint32
		x    float32
		want Reason
	}{{511, 9, NoReason}, {512, 2, NoReason}, {513, 2.01, Overthinking}, {514, 9, NoReason}} {
		if got := m.Probe(tt.at, Signal{SigRPDI, tt.x}); got != tt.want {
			t.Errorf("%v at token %d: %s, want %s", tt.x, tt.at, got, tt.want)
		}
	}
}

// Random signals of every kind: nothing before MinThink, at most one reason, and
// always one by MaxThink.
func TestForcingIsOnceAndWithinItsBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	seen := map[Reason]int{}
	for range 600 {
		r := rules(t, func(c *SignalConfig) {
			c.Alpha = 0.2 + 0.8*random.Float64()
			c.VarianceThreshold, c.PEndLevel, c.TransitionLevel = 0.05, 0.4, 0.2
			c.ProbeInterval = 1 + random.Uint32N(8)
			c.MinThink = random.Uint32N(200)
			c.MaxThink = c.MinThink + 1 + random.Uint32N(400)
		})
		m := r.Monitor()
		level := [4]float32{random.Float32() * 4, random.Float32(), random.Float32() * 4, random.Float32() * 2.2}
		reasons := 0
		for at := uint32(0); at <= r.c.MaxThink+50; at += 1 + random.Uint32N(4) {
			var s []Signal
			for range random.IntN(3) {
				n := SigEntropy + SignalName(random.IntN(4))
				s = append(s, Signal{n, level[n-1] * (0.5 + random.Float32())})
			}
			why := m.Probe(at, s...)
			if why == NoReason {
				continue
			}
			reasons++
			seen[why]++
			if at < r.c.MinThink || why == HardCap && at < r.c.MaxThink || at >= r.c.MaxThink && why != HardCap {
				t.Fatalf("%s at token %d, between %d and %d", why, at, r.c.MinThink, r.c.MaxThink)
			}
			if m.Due(at + 1000) {
				t.Fatal("a probe is due after the decision")
			}
		}
		if reasons != 1 {
			t.Fatalf("%d reasons", reasons)
		}
	}
	for _, why := range []Reason{Converged, Overthinking, HardCap} {
		if seen[why] < 20 {
			t.Errorf("%s came %d times", why, seen[why])
		}
	}
}

func TestHardCapNeedsNoSignal(t *testing.T) {
	m := rules(t, func(c *SignalConfig) { c.MinThink, c.MaxThink = 0, 100 }).Monitor()
	if got := m.Probe(99); got != NoReason {
		t.Fatalf("%s at token 99", got)
	}
	// With one that says the same, it is the cap that is told.
	if got := m.Probe(100, Signal{SigRPDI, 9}); got != HardCap {
		t.Fatalf("%s at the cap", got)
	}
	if got := m.Probe(101); got != NoReason {
		t.Fatalf("%s a second time", got)
	}
}

// An engine that measures every token gets the decisions of one that measures
// every 32nd.
func TestSamplesTooSoonAreLeftOut(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 5 {
		rising := random.Float32() / 10_000
		signals := func(at uint32) []Signal {
			return []Signal{{SigPEnd, min(float32(at)*rising, 1)}, {SigEntropy, float32(at%7) * rising * 5000}}
		}
		r := rules(t, nil)
		dense, sparse := r.Monitor(), r.Monitor()
		for at := uint32(32); at < 30_000; at++ {
			due := at%32 == 0
			if dense.Due(at) != (due && !dense.decided) {
				t.Fatalf("token %d: due %v", at, dense.Due(at))
			}
			want := NoReason
			if due {
				want = sparse.Probe(at, signals(at)...)
			}
			if got := dense.Probe(at, signals(at)...); got != want {
				t.Fatalf("token %d: %s, want %s", at, got, want)
			}
		}
		if dense != sparse {
			t.Fatalf("%+v and %+v", dense, sparse)
		}
	}
}

func TestProbesNearTheLastTokenDoNotWrap(t *testing.T) {
	r := rules(t, func(c *SignalConfig) { c.MaxThink = math.MaxUint32 })
	m := r.Monitor()
	m.Probe(math.MaxUint32-10, Signal{SigPEnd, 1})
	if m.Due(math.MaxUint32-1) || m.Probe(math.MaxUint32-1, Signal{SigPEnd, 1}) != NoReason || m.pEnd.n != 1 {
		t.Errorf("%+v", m)
	}
	if got := m.Probe(math.MaxUint32); got != HardCap {
		t.Errorf("%s at the cap", got)
	}
}

// What Check refuses leaves no trace.
func TestBadSignalsChangeNothing(t *testing.T) {
	m := rules(t, nil).Monitor()
	for at := range uint32(50) {
		m.Probe(at*32, Signal{SigPEnd, 0.7}, Signal{SigEntropy, 3}, Signal{SigEAT, 1})
	}
	before := m
	for _, s := range []Signal{{SigPEnd, nan}, {SigPEnd, 2}, {SigEntropy, inf}, {SigEAT, nan}, {SigRPDI, nan}, {SigRPDI, inf}, {SigRPDIIndicator, 99}, {77, 1}} {
		if why := m.Probe(5000, s); why != NoReason || m != before {
			t.Errorf("%v: %s, %+v", s, why, m)
		}
	}
	var zero Monitor
	if why := zero.Probe(1<<31, Signal{SigRPDI, 99}); why != NoReason || zero.Due(1<<31) || zero != (Monitor{}) {
		t.Errorf("the zero value: %s, %+v", why, zero)
	}
}

// Two reasons of one probe: the same one, whatever the order of the signals.
func TestOrderOfSignalsDoesNotMatter(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		why, at, _ := forced(rules(t, nil), 5000, func(at uint32) []Signal {
			s := []Signal{{SigPEnd, 1}, {SigRPDI, 0}}
			if at == 81*32 {
				s[1].Value = 5
			}
			if reverse {
				slices.Reverse(s)
			}
			return s
		})
		if why != Converged || at != 81*32 {
			t.Errorf("reversed %v: %s at token %d", reverse, why, at)
		}
	}
}

func TestRulesAreChecked(t *testing.T) {
	for field, change := range map[string]func(*SignalConfig, float64){
		"Alpha":             func(c *SignalConfig, x float64) { c.Alpha = x },
		"VarianceThreshold": func(c *SignalConfig, x float64) { c.VarianceThreshold = x },
		"PEndLevel":         func(c *SignalConfig, x float64) { c.PEndLevel = x },
		"EATLevel":          func(c *SignalConfig, x float64) { c.EATLevel = x },
		"TransitionEntropy": func(c *SignalConfig, x float64) { c.TransitionEntropy = x },
		"RPDIThreshold":     func(c *SignalConfig, x float64) { c.RPDIThreshold = x },
		"TransitionLevel":   func(c *SignalConfig, x float64) { c.TransitionLevel = x },
		"RPDILambda":        func(c *SignalConfig, x float64) { c.RPDILambda = x },
	} {
		for _, x := range []float64{-1, math.NaN(), math.Inf(1)} {
			c := DefaultSignalConfig()
			change(&c, x)
			var bad *SignalConfigError
			if _, err := NewRules(c); !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("%s %v: %v", field, x, err)
			}
		}
	}
	for want, change := range map[string]func(*SignalConfig){
		"signals: Alpha: 0 is not above 0 and at most 1":                 func(c *SignalConfig) { c.Alpha = 0 },
		"signals: PEndLevel: 0 is not above 0 and at most 1":             func(c *SignalConfig) { c.PEndLevel = 0 },
		"signals: RPDIThreshold: 1 is not above 1":                       func(c *SignalConfig) { c.RPDIThreshold = 1 },
		"signals: ProbeInterval: 0 is not at least 1":                    func(c *SignalConfig) { c.ProbeInterval = 0 },
		"signals: MinThink: 32768 is not below MaxThink, which is 32768": func(c *SignalConfig) { c.MinThink = c.MaxThink },
	} {
		c := DefaultSignalConfig()
		change(&c)
		if _, err := NewRules(c); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// An alpha so small that nothing ever warms up.
	r := rules(t, func(c *SignalConfig) { c.Alpha = 1e-300 })
	if why, at, _ := forced(r, 30_000, always(Signal{SigPEnd, 1})); why != NoReason {
		t.Errorf("%s at %d", why, at)
	}
}
