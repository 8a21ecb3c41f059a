package force

import (
	"slices"

	"meridian/scheduler"
)

// Point is one place of the grid: one threshold moved, the others as in Base.
type Point struct {
	Base          string  `json:"base"`
	Threshold     string  `json:"threshold"`
	Value         float64 `json:"value"`
	Sets          []Share `json:"sets"`
	FalseTriggers int     `json:"false_triggers"` // on the flat series

	rules scheduler.SignalConfig
}

// Share is what a set makes of a point.
type Share struct {
	Set        string  `json:"set"`
	Forced     int     `json:"forced"`
	OfRequests float64 `json:"of_requests"`
	SavedMean  float64 `json:"saved_mean"`
	SavedP95   float64 `json:"saved_p95"`
}

// The bases of the grid. With the defaults an average is looked at after 2,592 tokens
// only (4/0.05 samples after the first, 32 tokens apart): quick is for thinking that is
// shorter than that.
const (
	asConfigured = "configured"
	quickBase    = "quick"
)

func quick(c scheduler.SignalConfig) scheduler.SignalConfig {
	c.Alpha, c.ProbeInterval, c.MinThink = 0.2, 8, min(64, c.MaxThink-1)
	return c
}

// knobs are the thresholds that are moved, by their keys in the configuration, those
// of scheduler.SignalConfig that have none by their own.
var knobs = []struct {
	name   string
	values []float64
	set    func(*scheduler.SignalConfig, float64)
	get    func(*scheduler.SignalConfig) float64
}{
	{"ema_alpha", []float64{0.05, 0.1, 0.2, 0.5}, func(c *scheduler.SignalConfig, v float64) { c.Alpha = v }, func(c *scheduler.SignalConfig) float64 { return c.Alpha }},
	{"eat_probe_interval_tokens", []float64{4, 8, 16, 32, 64}, func(c *scheduler.SignalConfig, v float64) { c.ProbeInterval = uint32(v) }, func(c *scheduler.SignalConfig) float64 { return float64(c.ProbeInterval) }},
	{"min_think_tokens", []float64{0, 64, 256, 512, 1024}, func(c *scheduler.SignalConfig, v float64) { c.MinThink = uint32(v) }, func(c *scheduler.SignalConfig) float64 { return float64(c.MinThink) }},
	{"max_think_tokens", []float64{600, 1000, 2500, 5000}, func(c *scheduler.SignalConfig, v float64) { c.MaxThink = uint32(v) }, func(c *scheduler.SignalConfig) float64 { return float64(c.MaxThink) }},
	{"eat_ema_variance_threshold", []float64{0.0001, 0.001, 0.01, 0.1}, func(c *scheduler.SignalConfig, v float64) { c.VarianceThreshold = v }, func(c *scheduler.SignalConfig) float64 { return c.VarianceThreshold }},
	{"p_end_level", []float64{0.01, 0.1, 0.25, 0.5, 0.9}, func(c *scheduler.SignalConfig, v float64) { c.PEndLevel = v }, func(c *scheduler.SignalConfig) float64 { return c.PEndLevel }},
	{"transition_entropy_threshold", []float64{1, 1.5, 2.5, 3.5}, func(c *scheduler.SignalConfig, v float64) { c.TransitionEntropy = v }, func(c *scheduler.SignalConfig) float64 { return c.TransitionEntropy }},
	{"rpdi_threshold", []float64{1.2, 1.5, 2, 3}, func(c *scheduler.SignalConfig, v float64) { c.RPDIThreshold = v }, func(c *scheduler.SignalConfig) float64 { return c.RPDIThreshold }},
	{"TransitionLevel", []float64{0.05, 0.25, 0.5, 0.75}, func(c *scheduler.SignalConfig, v float64) { c.TransitionLevel = v }, func(c *scheduler.SignalConfig) float64 { return c.TransitionLevel }},
	{"RPDILambda", []float64{1.1, 1.25, 1.5, 2}, func(c *scheduler.SignalConfig, v float64) { c.RPDILambda = v }, func(c *scheduler.SignalConfig) float64 { return c.RPDILambda }},
}

// points are the grid round a configuration: of each base itself, then of each
// threshold. Values that the rules refuse are left out.
func points(c scheduler.SignalConfig) []Point {
	var all []Point
	for _, b := range []struct {
		name  string
		rules scheduler.SignalConfig
	}{{asConfigured, c}, {quickBase, quick(c)}} {
		all = append(all, Point{Base: b.name, Threshold: "none moved", rules: b.rules})
		for _, k := range knobs {
			for _, v := range k.values {
				p := Point{Base: b.name, Threshold: k.name, Value: v, rules: b.rules}
				k.set(&p.rules, v)
				if _, err := scheduler.NewRules(p.rules); err != nil || k.get(&b.rules) == v {
					continue
				}
				all = append(all, p)
			}
		}
	}
	return slices.Clip(all)
}

// rulesOf names the thresholds.
func rulesOf(c scheduler.SignalConfig) []Rule {
	var all []Rule
	for _, k := range knobs {
		all = append(all, Rule{k.name, k.get(&c)})
	}
	return all
}
