package force

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"meridian/scheduler"
)

// mustRun is Run without the grid, which takes most of its time.
func mustRun(t *testing.T, o Options) Report {
	t.Helper()
	rep, _, err := o.replay(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func setOf(t *testing.T, rep *Report, name string) *Set {
	t.Helper()
	for i := range rep.Sets {
		if rep.Sets[i].Name == name {
			return &rep.Sets[i]
		}
	}
	t.Fatalf("no set %s", name)
	return nil
}

func armOf(t *testing.T, s *Set, name string) *Arm {
	t.Helper()
	for i := range s.Arms {
		if s.Arms[i].Name == name {
			return &s.Arms[i]
		}
	}
	t.Fatalf("set %s has no arm %s", s.Name, name)
	return nil
}

// No signal forces on a series that says nothing, over all thinking that the default
// configuration allows. The first versions of the rules did: at token 3456 wherever p_end
// stays near zero, and at token 544 where every token is uncertain. They are replayed, so
// that the series are known to be those that find it.
func TestNoSignalForcesOnAFlatSeries(t *testing.T) {
	for seed := range uint64(2) {
		c, series := scheduler.DefaultSignalConfig(), flat(seed)
		s, err := study(t.Context(), &series, &c)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Flat || s.Requests < 8 {
			t.Errorf("seed %d: %d series, flat: %v", seed, s.Requests, s.Flat)
		}
		for _, a := range s.Arms[:len(s.Arms)-1] {
			if a.Converged+a.Overthinking != 0 || a.HardCap != s.Requests || a.First != flatTokens {
				t.Errorf("seed %d, %s: %+v; want the cap of each, at its last token", seed, a.Name, a)
			}
		}
		faults := map[string]string{}
		for _, x := range armOf(t, &s, earlyArm).Triggers {
			faults[x.ID] = fmt.Sprint(x.Reason, " ", x.At)
		}
		for id, want := range map[string]string{"p_end 0": "converged 3456", "p_end 1e-6": "converged 3456", "p_end 0.001": "converged 3456", "entropy 9": "overthinking 544"} {
			if faults[id] != want {
				t.Errorf("seed %d: the first rules force %q as %q, not %q: the series does not find their fault", seed, id, faults[id], want)
			}
		}
	}
}

// The replay through the core decides as a monitor does that is asked directly.
func TestTheCoreForcesWhereAMonitorDoes(t *testing.T) {
	forced := map[scheduler.Reason]int{}
	for _, c := range []scheduler.SignalConfig{scheduler.DefaultSignalConfig(), quick(scheduler.DefaultSignalConfig())} {
		rules, err := scheduler.NewRules(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range Generate(6, 4) {
			p, err := newReplayer(&rec.Header, &c, arms[0].feed)
			if err != nil {
				t.Fatal(err)
			}
			for i := range rec.Requests {
				q := &rec.Requests[i]
				got, err := p.play(rec.Header.Name, q)
				if err != nil {
					t.Fatal(err)
				}
				why, at := monitored(t, rules, c, q)
				if got.reason != why || got.at != at {
					t.Errorf("%s %s: the core says %s at %d, a monitor %s at %d", rec.Header.Name, q.ID, got.reason, got.at, why, at)
				}
				if want := uint32(q.Tokens()); why != scheduler.NoReason && got.used != at+1 || why == scheduler.NoReason && got.used != want {
					t.Errorf("%s %s: %d thinking tokens of %d, forced at %d", rec.Header.Name, q.ID, got.used, want, got.at)
				}
				forced[why]++
			}
		}
	}
	for _, why := range []scheduler.Reason{scheduler.NoReason, scheduler.Converged, scheduler.Overthinking, scheduler.HardCap} {
		if forced[why] == 0 {
			t.Errorf("no request ended as %s: %v", why, forced)
		}
	}
}

// monitored is where a monitor of its own forces.
func monitored(t *testing.T, rules *scheduler.Rules, c scheduler.SignalConfig, q *Request) (scheduler.Reason, uint32) {
	m := rules.Monitor()
	var r scheduler.RPDI
	at := func(list []uint32, n uint32) int {
		for i, x := range list {
			if x == n {
				return i
			}
		}
		return -1
	}
	for i := range q.Tokens() {
		n := uint32(i + 1)
		var probe []scheduler.Signal
		if n%c.ProbeInterval == 0 {
			probe = append(probe, scheduler.Signal{Name: scheduler.SigPEnd, Value: q.PEnd[i]}, scheduler.Signal{Name: scheduler.SigEntropy, Value: q.Entropy[i]})
		}
		if k := at(q.EATAt, n); k >= 0 {
			probe = append(probe, scheduler.Signal{Name: scheduler.SigEAT, Value: q.EAT[k]})
		}
		v, ok, err := r.Token(q.Entropy[i], at(q.Sentences, n) >= 0)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			probe = append(probe, scheduler.Signal{Name: scheduler.SigRPDI, Value: float32(v)})
		}
		if why := m.Probe(n, probe...); why != scheduler.NoReason {
			return why, n
		}
	}
	return scheduler.NoReason, 0
}

// Thinking that nobody forces is as long as the recording says, however it ended, with
// markers of one token and of several.
func TestThinkingWithoutForcingIsAsLongAsRecorded(t *testing.T) {
	for _, marker := range []int{0, 1, 3} {
		for _, by := range []Ended{ByMarker, ByEOS, ByCut} {
			h := Header{Name: "x", EndTokens: marker}
			p, err := newReplayer(&h, nil, signals{})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{h.endTokens(), 5, 700} {
				q := Request{ID: "a", Ended: by, Entropy: make([]float32, n)}
				if o, err := p.play("x", &q); err != nil || o.used != uint32(n) || o.at != 0 {
					t.Errorf("marker of %d, %d tokens, %s: %+v, %v", marker, n, by, o, err)
				}
			}
		}
	}
}

func TestTheCapForcesAtItsTokenAndTheMarkerCounts(t *testing.T) {
	c := scheduler.DefaultSignalConfig()
	c.MaxThink = 600
	h := Header{Name: "x", EndTokens: 3}
	p, err := newReplayer(&h, &c, arms[0].feed)
	if err != nil {
		t.Fatal(err)
	}
	q := Request{ID: "a", Ended: ByCut, Entropy: make([]float32, 1000)}
	if o, err := p.play("x", &q); err != nil || o.at != 600 || o.used != 603 || o.reason != scheduler.HardCap {
		t.Errorf("%+v, %v", o, err)
	}
	q.Entropy = q.Entropy[:599]
	if o, err := p.play("x", &q); err != nil || o.at != 0 || o.used != 599 {
		t.Errorf("below the cap: %+v, %v", o, err)
	}
}

func TestWhatIsSavedIsCountedByHand(t *testing.T) {
	// Twenty requests of 100 to 2,000 tokens, cut at 1,000: eleven are forced.
	rec := Recording{Header: Header{Version: Version, Name: "stairs", Kind: Synthetic, Source: "a test"}}
	for i := range 20 {
		rec.Requests = append(rec.Requests, Request{ID: fmt.Sprint(i), Ended: ByMarker, Entropy: make([]float32, 100*(i+1))})
	}
	o := Defaults()
	o.Rules.MaxThink, o.Synthetic, o.Recordings = 1000, 0, []Recording{rec}
	rep := mustRun(t, o)
	s := setOf(t, &rep, "stairs")
	if s.Mean != 1050 || s.P95 != 1900 || s.Tokens != 21_000 || s.Marker != 20 {
		t.Errorf("without forcing: %+v", s)
	}
	// Request of 1,000 tokens: its own marker is the 1,000th, so it is not forced. The ten
	// longer ones have 1,001 each: (100+…+1,000 + 10×1,001)/20.
	a := armOf(t, s, "all")
	if a.Forced != 10 || a.HardCap != 10 || a.Mean != 775.5 || a.P95 != 1001 || a.First != 1000 || a.Median != 1000 || a.SavedMean != 0.2614 || a.SavedP95 != 0.4732 {
		t.Errorf("with a cap of 1,000: %+v", a)
	}
	if len(a.Triggers) != 10 || a.Triggers[0] != (Trigger{ID: "10", At: 1000, Of: 1100, Reason: "hard_cap"}) {
		t.Errorf("%+v", a.Triggers)
	}
}

func TestTheSameOptionsGiveTheSameBytes(t *testing.T) {
	report := func(seed uint64) []byte {
		o := Defaults()
		o.Synthetic, o.Seed = 3, seed
		rep := mustRun(t, o)
		b, err := json.Marshal(rep)
		if err != nil {
			t.Fatal(err)
		}
		return append(b, rep.Markdown()...)
	}
	one := report(1)
	if !bytes.Equal(one, report(1)) {
		t.Error("the same seed gave two reports")
	}
	if bytes.Equal(one, report(2)) {
		t.Error("another seed gave the same report")
	}
}

// The synthetic sets are what their names say, to rules that are quick enough.
func TestSyntheticSetsForceAsTheyAreNamed(t *testing.T) {
	o := Defaults()
	o.Rules = quick(o.Rules)
	rep := mustRun(t, o)
	if a := armOf(t, setOf(t, &rep, "converging"), "p_end"); a.Converged*2 < o.Synthetic || a.Overthinking != 0 || a.SavedMean <= 0 {
		t.Errorf("converging: %+v", a)
	}
	if a := armOf(t, setOf(t, &rep, "oscillating"), "rpdi_indicator"); a.Overthinking*2 < o.Synthetic || a.Converged != 0 || a.SavedMean <= 0 {
		t.Errorf("oscillating: %+v", a)
	}
	for i := range rep.Sets {
		if rep.Sets[i].Kind != Synthetic {
			t.Errorf("%s is labelled %s", rep.Sets[i].Name, rep.Sets[i].Kind)
		}
	}
}

// shorten cuts a request.
func (r *Request) shorten(n int) {
	if r.Tokens() <= n {
		return
	}
	r.Ended, r.Entropy, r.PEnd = ByCut, r.Entropy[:n], r.PEnd[:n]
	for len(r.EATAt) > 0 && r.EATAt[len(r.EATAt)-1] > uint32(n) {
		r.EATAt, r.EAT = r.EATAt[:len(r.EATAt)-1], r.EAT[:len(r.EAT)-1]
	}
}

// Every point of the grid moves one threshold, and says what flat series make of it.
func TestTheGridMovesOneThresholdAtATime(t *testing.T) {
	o := Defaults()
	o.Synthetic = 2
	rep, all, err := o.replay(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		for j := range all[i].Requests {
			all[i].Requests[j].shorten(6000) // enough for eager thresholds
		}
	}
	if err := o.sensitivity(t.Context(), all, &rep); err != nil {
		t.Fatal(err)
	}
	if rep.FalseTriggers != 0 {
		t.Errorf("%d false triggers with the defaults", rep.FalseTriggers)
	}
	still, wrong := 0, 0
	for _, p := range rep.Grid {
		base := o.Rules
		if p.Base == quickBase {
			base = quick(base)
		}
		moved := 0
		for _, k := range knobs {
			if k.get(&p.rules) != k.get(&base) {
				moved++
				if k.name != p.Threshold || k.get(&p.rules) != p.Value {
					t.Errorf("%+v moves %s", p, k.name)
				}
			}
		}
		if moved == 0 {
			still++
		}
		if moved > 1 || len(p.Sets) != len(rep.Sets) {
			t.Errorf("%s, %s %v: %d moved, %d sets", p.Base, p.Threshold, p.Value, moved, len(p.Sets))
		}
		wrong += p.FalseTriggers
	}
	if still != 2 || len(rep.Grid) < 40 || wrong == 0 {
		t.Errorf("%d points, %d of them the bases, %d false triggers: eager thresholds have some", len(rep.Grid), still, wrong)
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	rec := Generate(1, 1)[0]
	named := func(name string) Recording {
		r := rec
		r.Header.Name = name
		return r
	}
	for name, change := range map[string]func(*Options){
		"requests":        func(o *Options) { o.Synthetic = 1001 },
		"below 0":         func(o *Options) { o.Synthetic = -1 },
		"no name":         func(o *Options) { o.Recordings = []Recording{named("")} },
		"a name twice":    func(o *Options) { o.Recordings = []Recording{named("a"), named("a")} },
		"our name":        func(o *Options) { o.Recordings = []Recording{named("flat")} },
		"a set's name":    func(o *Options) { o.Recordings = []Recording{named("a/eos")} },
		"alpha of 0":      func(o *Options) { o.Rules.Alpha = 0 },
		"min above max":   func(o *Options) { o.Rules.MinThink = o.Rules.MaxThink },
		"interval of 0":   func(o *Options) { o.Rules.ProbeInterval = 0 },
		"threshold below": func(o *Options) { o.Rules.RPDIThreshold = 0.5 },
	} {
		o := Defaults()
		change(&o)
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
