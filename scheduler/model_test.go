package scheduler_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"meridian/scheduler"
)

// testModels are small, overlapping and self-overlapping on purpose: with token
// ids 0 to 7 every transition is near.
var testModels = map[string]scheduler.Model{
	"a": {Start: []int32{1}, End: []int32{2}, EOS: []int32{7}, Space: []int32{5, 6, 2}, MaxThink: 3},
	"b": {Start: []int32{1, 1, 2}, End: []int32{2, 3, 2, 4}, EOS: []int32{6, 7}, Space: []int32{5}, MaxThink: 6, KeepsThinking: true},
	"c": {Start: []int32{1, 2, 1, 2, 1}, End: []int32{1, 2, 1}, MaxThink: 5},
	"d": {Start: []int32{1}, EOS: []int32{7}, MaxThink: 2},
	"e": {End: []int32{2}, EOS: []int32{7}, MaxThink: 2},
	"f": {Start: []int32{1, 1}, End: []int32{1, 1, 1}, MaxThink: 9},
	"g": {Start: []int32{1}, End: []int32{2, 3, 4, 5, 6}, MaxThink: 60},
	"h": {Start: []int32{1}, MaxThink: 40, MinThink: 12},
}

// testRules are warm after six samples and sensitive, so that requests of a few
// tokens are forced by each of them.
var testRules = scheduler.SignalConfig{
	Alpha:             0.75,
	VarianceThreshold: 0.125,
	PEndLevel:         0.5,
	EATLevel:          1,
	TransitionEntropy: 1,
	RPDIThreshold:     1.25,
	TransitionLevel:   0.5,
	RPDILambda:        2,
	ProbeInterval:     2,
	MinThink:          8,
	MaxThink:          100,
}

// named makes a list of a map.
func named(m map[string]scheduler.Model) []scheduler.Model {
	var out []scheduler.Model
	for name, x := range m {
		x.Name = name
		out = append(out, x)
	}
	return out
}

// pair drives a core and the reference side by side.
type pair struct {
	core  *scheduler.Core
	ref   *reference
	ready scheduler.Ready
}

func newPair(t testing.TB) *pair {
	t.Helper()
	models, err := scheduler.NewModels(named(testModels))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := scheduler.NewRules(testRules)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{
		core: scheduler.New(scheduler.Config{Models: models, Signals: rules, OffloadThreshold: 3, OffloadAfter: 10, MaxRequests: 6, ReapAfter: 100}),
		ref: &reference{
			models: testModels, threshold: 3, after: 10, reapAfter: 100, limit: 6, rules: testRules,
			reqs: map[scheduler.ID]*refRequest{},
		},
	}
}

// follow compares what came out. Order between requests is the core's choice;
// order within one request is not.
func (p *pair) follow(ticked bool) error {
	p.core.Ready(&p.ready)
	got, want := slices.Clone(p.ready.Events), p.ref.events
	p.ref.events = nil
	byID := func(a, b scheduler.Event) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortStableFunc(got, byID)
	slices.SortStableFunc(want, byID)
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		return fmt.Errorf("events\n%+v, want\n%+v", got, want)
	}
	if want := p.ref.next(); p.ready.Next > want {
		return fmt.Errorf("next %d, want at most %d", p.ready.Next, want)
	}
	if ticked && p.ready.Next <= p.ref.now {
		return fmt.Errorf("next %d after a tick at %d", p.ready.Next, p.ref.now)
	}
	s := p.core.Stats()
	var phases [4]uint64
	for _, r := range p.ref.reqs {
		phases[r.phase]++
	}
	if s.Phases != phases || s.Tracked() != uint64(len(p.ref.reqs)) {
		return fmt.Errorf("phases %v, want %v", s.Phases, phases)
	}
	if s.Signals != p.ref.signals || s.SignalsIdle != p.ref.idle || s.SignalsBad != p.ref.bad {
		return fmt.Errorf("signals %d, %d, %d, want %d, %d, %d", s.Signals, s.SignalsIdle, s.SignalsBad, p.ref.signals, p.ref.idle, p.ref.bad)
	}
	return nil
}

// play reads operations from bytes and stops at the first difference.
func (p *pair) play(b []byte) error {
	take := func() byte {
		if len(b) == 0 {
			return 0
		}
		x := b[0]
		b = b[1:]
		return x
	}
	tokens := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(take() % 8)
		}
		return out
	}
	var now scheduler.Time
	for op := 0; len(b) > 0; op++ {
		now += scheduler.Time(take() % 16)
		kind, id := take(), scheduler.ID(take()%8)
		x := scheduler.Input{ID: id}
		switch kind % 16 {
		case 0, 1, 2:
			x.Kind, x.Model, x.Tokens = scheduler.Arrive, string("abcdefgh"[take()%8]), tokens(int(take()%8))
			if kind%16 == 2 {
				x.First, x.Decoded = uint32(take()%4), tokens(int(take()%12))
			}
		case 3, 4:
			x.Kind, x.Blocks, x.Think = scheduler.KV, uint32(take()%8), take()%2 == 0
		case 5:
			x.Kind = scheduler.Abort
		case 6:
			x.Kind = scheduler.Done
		case 7, 8:
			p.ref.tick(now)
			p.core.Tick(now)
			if err := p.follow(true); err != nil {
				return fmt.Errorf("operation %d, tick at %d: %w", op, now, err)
			}
			continue
		case 13, 14, 15:
			x.Kind = scheduler.Probed
			// Half of them calm and where they force, so that some requests get there.
			x.Signal.Name = scheduler.SignalName(take() % 8)
			x.Signal.Value = [...]float32{0.5, 0.5, 0.5, 0.25, 1, 2, 4, float32(math.NaN())}[take()%8]
		default:
			x.Kind, x.Tokens = scheduler.Tokens, tokens(int(take()%6))
		}
		p.ref.step(now, x)
		p.core.Step(now, []scheduler.Input{x})
		if err := p.follow(false); err != nil {
			return fmt.Errorf("operation %d, %+v at %d: %w", op, x, now, err)
		}
		pos, n := uint32(take()%32), uint32(take()%8)
		got, ok := p.core.PartOf(id, pos, n)
		if want, there := p.ref.part(id, pos, max(n, 1)); ok != there || got != want {
			return fmt.Errorf("operation %d, %+v: part of %d from %d on: %d, %v, want %d, %v", op, x, n, pos, got, ok, want, there)
		}
	}
	return nil
}

// A random walk over small models shows no difference between the core and a
// router that keeps everything and searches.
func TestCoreAgreesWithReference(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 4000)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if err := newPair(t).play(b); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// The same for requests that think long enough to be forced, with signals that
// keep to a level for a while.
func TestForcingAgreesWithReference(t *testing.T) {
	var sum scheduler.Stats
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := newPair(t)
		values := []float32{0, 0.25, 0.5, 0.75, 1, 2, 4, float32(math.NaN())}
		var level [8][8]float32
		for op := range 1500 {
			x := scheduler.Input{ID: scheduler.ID(r.IntN(8))}
			switch k := r.IntN(100); {
			case k < 6:
				x.Kind, x.Model = scheduler.Arrive, string("bgh"[r.IntN(3)])
				x.Tokens = testModels[x.Model].Start
			case k < 8:
				x.Kind = scheduler.Done
			case k < 50:
				x.Kind, x.Tokens = scheduler.Tokens, make([]int32, 1+r.IntN(3))
			default:
				x.Kind = scheduler.Probed
				x.Signal.Name = scheduler.SignalName(1 + r.IntN(5))
				l := &level[x.ID][x.Signal.Name]
				if r.IntN(10) == 0 {
					*l = values[r.IntN(len(values))]
				}
				x.Signal.Value = *l
			}
			p.ref.step(0, x)
			p.core.Step(0, []scheduler.Input{x})
			if err := p.follow(false); err != nil {
				t.Fatalf("seed %d, operation %d, %+v: %v", seed, op, x, err)
			}
		}
		s := p.core.Stats()
		sum.Add(&s)
	}
	for _, why := range []scheduler.Reason{scheduler.Converged, scheduler.Overthinking, scheduler.HardCap} {
		if sum.Reason[why] < 100 {
			t.Errorf("%s came %d times in all", why, sum.Reason[why])
		}
	}
	if n := sum.Events[scheduler.CannotForce]; n < 100 {
		t.Errorf("without an end marker: %d times", n)
	}
}

func FuzzCore(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 1, 1, 0, 9, 1, 4, 3, 3, 2, 3, 0, 3, 1, 5, 0, 0, 6, 1})
	f.Add([]byte{0, 0, 2, 1, 3, 1, 1, 2, 0, 9, 2, 5, 2, 3, 2, 3, 2, 0, 3, 2, 7, 0, 15, 7, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := newPair(t).play(b[:min(len(b), 4096)]); err != nil {
			t.Fatal(err)
		}
	})
}

// A request that is resumed after each of its tokens goes on as if it had never
// stopped. Only where it had been told to end its thinking, and thinks, it is told again.
func TestResumedRequestGoesOn(t *testing.T) {
	ms, err := scheduler.NewModels(named(testModels))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(8, 8))
	for range 2000 {
		toks := make([]int32, r.IntN(24))
		for i := range toks {
			toks[i] = r.Int32N(8)
		}
		prompt := toks[:r.IntN(len(toks)+1)]
		decoded := toks[len(prompt):]
		x := scheduler.Input{Kind: scheduler.Arrive, Model: string("abcdefgh"[r.IntN(8)]), Tokens: prompt, First: r.Uint32N(100)}
		var ready scheduler.Ready
		step := func(c *scheduler.Core, x scheduler.Input) []scheduler.Event {
			c.Step(0, []scheduler.Input{x})
			c.Ready(&ready)
			return slices.Clone(ready.Events)
		}
		whole := scheduler.New(scheduler.Config{Models: ms})
		after := [][]scheduler.Event{step(whole, x)} // events that followed each token
		for i := range decoded {
			after = append(after, step(whole, scheduler.Input{Kind: scheduler.Tokens, Tokens: decoded[i : i+1]}))
		}
		for cut := range len(decoded) + 1 {
			c, again := scheduler.New(scheduler.Config{Models: ms}), x
			again.Decoded = decoded[:cut]
			now := step(c, again)
			for i := cut; i < len(decoded); i++ {
				if got := step(c, scheduler.Input{Kind: scheduler.Tokens, Tokens: decoded[i : i+1]}); !slices.EqualFunc(got, after[i+1], sameEvent) {
					t.Fatalf("%+v, decoded %v, resumed after %d: token %d gave %+v, without the restart %+v", x, decoded, cut, i, got, after[i+1])
				}
			}
			if want := standing(slices.Concat(after[:cut+1]...), x.First+uint32(len(prompt)+cut)); !slices.EqualFunc(now, want, sameEvent) {
				t.Fatalf("%+v, decoded %v, resumed after %d: %+v, want %+v", x, decoded, cut, now, want)
			}
		}
	}
}

func sameEvent(a, b scheduler.Event) bool { return reflect.DeepEqual(a, b) }

// standing is what of the events so far still says where a request stands. The cap
// is due again where thinking has not ended, at the number of tokens of now.
func standing(all []scheduler.Event, total uint32) (left []scheduler.Event) {
	for _, e := range all {
		if e.Kind == scheduler.ForceBudget || e.Kind == scheduler.CannotForce {
			e.Used, e.Pos = e.Used+total-e.Pos, total
		}
		if e.Kind == scheduler.ExitThink || e.Kind == scheduler.Completed {
			left = slices.DeleteFunc(left, func(e scheduler.Event) bool { return e.Kind != scheduler.ExitThink })
		}
		left = append(left, e)
	}
	return left
}

// How tokens are cut into inputs changes nothing but the moment of the cap.
func TestCutsDoNotMatter(t *testing.T) {
	models := named(testModels)
	for i := range models {
		models[i].MaxThink = 1 << 30
	}
	ms, err := scheduler.NewModels(models)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range 3000 {
		toks := make([]int32, r.IntN(24))
		for i := range toks {
			toks[i] = r.Int32N(5)
		}
		prompt := toks[:r.IntN(len(toks)+1)]
		decoded := toks[len(prompt):]
		model := string("abcdef"[r.IntN(6)])
		run := func(cut func(int) int) []scheduler.Event {
			c := scheduler.New(scheduler.Config{Models: ms})
			c.Step(0, []scheduler.Input{{Kind: scheduler.Arrive, Model: model, Tokens: prompt}})
			for rest := decoded; len(rest) > 0; {
				n := cut(len(rest))
				c.Step(0, []scheduler.Input{{Kind: scheduler.Tokens, Tokens: rest[:n]}})
				rest = rest[n:]
			}
			var ready scheduler.Ready
			c.Ready(&ready)
			return ready.Events
		}
		whole := run(func(n int) int { return n })
		single := run(func(int) int { return 1 })
		some := run(func(n int) int { return 1 + r.IntN(n) })
		if !reflect.DeepEqual(whole, single) || !reflect.DeepEqual(whole, some) {
			t.Fatalf("model %s, prompt %v, decoded %v:\nwhole  %+v\nsingle %+v\nsome   %+v", model, prompt, decoded, whole, single, some)
		}
	}
}
