package force

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"math"
	"slices"
	"strings"

	"meridian/scheduler"
)

//go:embed testdata/*.jsonl.gz
var recorded embed.FS

// Recordings are those that are part of this package.
func Recordings() ([]Recording, error) {
	files, err := recorded.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var all []Recording
	for _, f := range files {
		b, err := recorded.ReadFile("testdata/" + f.Name())
		if err != nil {
			return nil, err
		}
		r, err := Read(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Options of a run.
type Options struct {
	Rules      scheduler.SignalConfig // as the configuration says
	Recordings []Recording
	Synthetic  int // requests of each synthetic set; 0: none but the flat series
	Seed       uint64
	Progress   func(string) // nil: nobody is told
}

// Defaults of Options, without recordings.
func Defaults() Options {
	return Options{Rules: scheduler.DefaultSignalConfig(), Synthetic: 20, Seed: 1}
}

// Check says which option cannot be.
func (o *Options) Check() error {
	if o.Synthetic < 0 || o.Synthetic > 1000 {
		return fmt.Errorf("%d synthetic requests: from 0 to 1000", o.Synthetic)
	}
	names := map[string]bool{"converging": true, "oscillating": true, "flat": true}
	for i := range o.Recordings {
		h := &o.Recordings[i].Header
		if h.Name == "" || names[h.Name] || strings.HasSuffix(h.Name, eosSet) {
			return fmt.Errorf("recording %d has the name %.80q: each needs one of its own, not ending in %s", i+1, h.Name, eosSet)
		}
		names[h.Name] = true
	}
	_, err := scheduler.NewRules(o.Rules)
	return err
}

// arms are the choices of signals that are compared.
var arms = []struct {
	name string
	feed signals
}{
	{"all", signals{pEnd: true, eat: true, entropy: true, rpdi: true}},
	{"p_end, entropy", signals{pEnd: true, entropy: true}}, // what a node of llama.cpp measures
	{"p_end", signals{pEnd: true}},
	{"eat", signals{eat: true}},
	{"rpdi_indicator", signals{entropy: true}},
	{"rpdi", signals{rpdi: true}},
	{capArm, signals{}},
}

// capArm is the arm in which nothing but the cap forces.
const capArm = "cap alone"

// earlyArm is the arm of the rules that were replaced.
const earlyArm = "first rules"

// Run replays all recordings and the synthetic ones. The same options give the same
// report.
func Run(ctx context.Context, o Options) (Report, error) {
	rep, all, err := o.replay(ctx)
	if err != nil {
		return rep, err
	}
	return rep, o.sensitivity(ctx, all, &rep)
}

// replay makes a report without its grid, and gives what it replayed.
func (o *Options) replay(ctx context.Context) (rep Report, all []Recording, err error) {
	if err := o.Check(); err != nil {
		return rep, nil, err
	}
	for i := range o.Recordings {
		all = append(all, o.Recordings[i].sets()...)
	}
	made := Generate(o.Synthetic, o.Seed)
	if o.Synthetic == 0 {
		made = made[2:]
	}
	all = append(all, made...)
	rep.Rules = rulesOf(o.Rules)
	for i := range all {
		o.tell("%s", all[i].Header.Name)
		s, err := study(ctx, &all[i], &o.Rules)
		if err != nil {
			return rep, nil, fmt.Errorf("%s: %w", all[i].Header.Name, err)
		}
		rep.Sets = append(rep.Sets, s)
		if s.Flat {
			rep.FalseTriggers = s.Arms[0].Converged + s.Arms[0].Overthinking
		}
	}
	return rep, all, nil
}

// sensitivity adds the grid.
func (o *Options) sensitivity(ctx context.Context, all []Recording, rep *Report) error {
	for _, p := range points(o.Rules) {
		o.tell("sensitivity, %s %v", p.Threshold, p.Value)
		for i := range all {
			a, err := arm(ctx, &all[i], &p.rules, p.Threshold, arms[0].feed, &rep.Sets[i])
			if err != nil {
				return err
			}
			p.Sets = append(p.Sets, Share{Set: all[i].Header.Name, Forced: a.Forced, OfRequests: ratio(a.Forced, len(all[i].Requests)), SavedMean: a.SavedMean, SavedP95: a.SavedP95})
			if rep.Sets[i].Flat {
				p.FalseTriggers = a.Converged + a.Overthinking
			}
		}
		rep.Grid = append(rep.Grid, p)
	}
	return nil
}

func (o *Options) tell(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// study replays one recording without forcing, and with each choice of signals.
func study(ctx context.Context, rec *Recording, c *scheduler.SignalConfig) (Set, error) {
	s := Set{Header: rec.Header, Flat: rec.Header.Kind == Synthetic && rec.Header.Name == "flat"}
	s.Header.Requests = len(rec.Requests)
	free, err := newReplayer(&rec.Header, nil, signals{})
	if err != nil {
		return s, err
	}
	var used []uint32
	for i := range rec.Requests {
		q := &rec.Requests[i]
		o, err := free.play(rec.Header.Name, q)
		if err != nil {
			return s, err
		}
		used = append(used, o.used)
		s.Tokens += int(o.used)
		switch q.Ended {
		case ByCut:
			s.Cut++
		case ByEOS:
			s.EOS++
		case ByMarker:
			s.Marker++
		}
	}
	s.Mean, s.P95 = meanOf(used), p95(used)
	for _, a := range arms {
		if !rec.has(a.feed) {
			continue
		}
		got, err := arm(ctx, rec, c, a.name, a.feed, &s)
		if err != nil {
			return s, err
		}
		s.Arms = append(s.Arms, got)
	}
	got := Arm{Name: earlyArm}
	var all []outcome
	for i := range rec.Requests {
		all = append(all, playEarly(&rec.Requests[i], c, rec.Header.endTokens()))
	}
	got.sum(rec, all, &s)
	s.Arms = append(s.Arms, got)
	return s, nil
}

// has says whether a recording has any of the signals of an arm.
func (r *Recording) has(f signals) bool {
	return f == signals{} || slices.ContainsFunc(r.Requests, func(q Request) bool {
		return f.pEnd && len(q.PEnd) > 0 || f.eat && len(q.EAT) > 0 || f.entropy && len(q.Entropy) > 0 || f.rpdi && len(q.Entropy) > 0 && len(q.Sentences) > 0
	})
}

// arm replays a recording with a choice of signals; s says what it is without forcing.
func arm(ctx context.Context, rec *Recording, c *scheduler.SignalConfig, name string, feed signals, s *Set) (Arm, error) {
	a := Arm{Name: name}
	p, err := newReplayer(&rec.Header, c, feed)
	if err != nil {
		return a, err
	}
	var all []outcome
	for i := range rec.Requests {
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
		o, err := p.play(rec.Header.Name, &rec.Requests[i])
		if err != nil {
			return a, err
		}
		all = append(all, o)
	}
	a.sum(rec, all, s)
	return a, nil
}

// sum counts the outcomes of a recording's requests, in order.
func (a *Arm) sum(rec *Recording, all []outcome, s *Set) {
	var used, at []uint32
	for i, o := range all {
		used = append(used, o.used)
		switch o.reason {
		case scheduler.Converged:
			a.Converged++
		case scheduler.Overthinking:
			a.Overthinking++
		case scheduler.HardCap:
			a.HardCap++
		default:
			continue
		}
		at = append(at, o.at)
		a.Triggers = append(a.Triggers, Trigger{ID: rec.Requests[i].ID, At: o.at, Of: uint32(rec.Requests[i].Tokens()), Reason: o.reason.String()})
	}
	a.Forced = len(at)
	a.Mean, a.P95 = meanOf(used), p95(used)
	a.SavedMean, a.SavedP95 = saved(a.Mean, s.Mean), saved(a.P95, s.P95)
	if len(at) > 0 {
		slices.Sort(at)
		a.First, a.Median = at[0], at[(len(at)-1)/2]
	}
}

func meanOf(v []uint32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x)
	}
	return math.Round(sum/float64(len(v))*10) / 10
}

// p95 is the smallest value that at least 95 % are not above.
func p95(v []uint32) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	return float64(s[(95*len(s)+99)/100-1])
}

// saved is the share of what is less.
func saved(with, without float64) float64 {
	return math.Round((1-with/without)*1e4) / 1e4
}

func ratio(n, of int) float64 { return math.Round(float64(n)/float64(of)*1e4) / 1e4 }
