package fabric

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"meridian/wire"
)

// MaxRoutes bounds a table of routes: a choice walks it from the top.
const MaxRoutes = 1024

// Route is one rule. Conditions that are empty hold for everything. The first
// rule, from the top, whose conditions all hold and whose fabric can take the
// block is chosen; a rule with Require ends the search either way.
type Route struct {
	Tiers    []wire.Tier    // empty: every tier
	NS       wire.Namespace // zero: every namespace
	Peer     string         // empty: every peer, and blocks that are meant for none
	MinBytes uint64         // body bytes, inclusive
	MaxBytes uint64         // body bytes, inclusive; 0: no limit
	Fabric   string         // registry name, see PeerName
	Require  bool           // fail rather than fall back to a later rule
}

// String writes the rule as an operator would say it.
func (r Route) String() string {
	var cond []string
	if len(r.Tiers) > 0 {
		names := make([]string, len(r.Tiers))
		for i, t := range r.Tiers {
			names[i] = t.String()
		}
		cond = append(cond, "tier="+strings.Join(names, ","))
	}
	if r.NS != (wire.Namespace{}) {
		cond = append(cond, fmt.Sprintf("namespace=%x", r.NS[:8]))
	}
	if r.Peer != "" {
		cond = append(cond, "peer="+r.Peer)
	}
	if r.MinBytes > 0 || r.MaxBytes > 0 {
		cond = append(cond, "bytes="+sizeRange(r.MinBytes, r.MaxBytes))
	}
	if len(cond) == 0 {
		cond = append(cond, "everything")
	}
	verb := "prefer"
	if r.Require {
		verb = "require"
	}
	return strings.Join(cond, " ") + " -> " + verb + " " + r.Fabric
}

func sizeRange(lo, hi uint64) string {
	if hi == 0 {
		return fmt.Sprintf("%d..", lo)
	}
	return fmt.Sprintf("%d..%d", lo, hi)
}

// Query is a block that wants a fabric.
type Query struct {
	NS   wire.Namespace
	Tier wire.Tier
	Peer string // who shall have it or has it; "" for none (a store, a file)
	// AnyPeer says that the caller has no peer in mind and takes the one that
	// the rule names: an offload asks so where to go.
	AnyPeer bool
	Bytes   uint64 // of the body
	// Failed holds, by registry name, the fabrics that have already failed for
	// this block in this attempt, and how: they are passed over, and a require
	// on one of them ends the attempt.
	Failed map[string]error
}

// Choice is where a block goes.
type Choice struct {
	Name   string // registry name of Fabric
	Fabric Fabric
	Peer   string // of the query, or of the rule where the query left it open
	Rule   int    // index of the rule that was taken
	// Fallback is set when a preferred fabric above was passed over: the caller
	// counts it, with Wanted and Why, so that no fallback is silent.
	Fallback bool
	Wanted   string // the first fabric that was passed over
	Why      error  // why it was
}

// Step is what one rule had to say about a query.
type Step struct {
	Rule   int
	Route  Route
	Chosen bool
	Reason string
}

// Explanation is a choice with the reasons for it, a step for every rule.
type Explanation struct {
	Choice Choice
	Err    error // what Pick would have returned
	Steps  []Step
}

// String writes a line a rule and one for the outcome.
func (e Explanation) String() string {
	var b strings.Builder
	for _, s := range e.Steps {
		mark := " "
		if s.Chosen {
			mark = "*"
		}
		fmt.Fprintf(&b, "%s rule %d: %s: %s\n", mark, s.Rule, s.Route, s.Reason)
	}
	switch {
	case e.Err != nil:
		fmt.Fprintf(&b, "refused: %v", e.Err)
	case e.Choice.Fallback:
		fmt.Fprintf(&b, "%s, a fallback from %s: %v", e.Choice.Name, e.Choice.Wanted, e.Choice.Why)
	default:
		b.WriteString(e.Choice.Name)
	}
	return b.String()
}

// Routes chooses fabrics by rules that may be replaced while it is in use.
type Routes struct {
	reg   *Registry
	rules atomic.Pointer[[]rule]
}

// rule is a Route in force.
type rule struct {
	Route
	to path // Fabric
}

// NewRoutes returns a table over the fabrics of reg. One that is a Gate is asked
// once a choice whether it can be used now.
func NewRoutes(reg *Registry, rules []Route) (*Routes, error) {
	t := &Routes{reg: reg}
	if err := t.Replace(rules); err != nil {
		return nil, err
	}
	return t, nil
}

// Replace puts other rules in force at once. Rules that contradict themselves
// are refused as a whole, with CodeConfig; the old ones then stay.
func (t *Routes) Replace(rules []Route) error {
	if len(rules) > MaxRoutes {
		return &Error{Code: wire.CodeConfig, Have: MaxRoutes, Need: uint64(len(rules)), Text: "too many routes"}
	}
	own := make([]rule, len(rules))
	for i, r := range rules {
		if err := checkRoute(r); err != "" {
			return &Error{Code: wire.CodeConfig, Fabric: r.Fabric, Text: fmt.Sprintf("route %d: %s", i, err)}
		}
		r.Tiers = slices.Clone(r.Tiers)
		own[i] = rule{r, pathOf(r.Fabric)}
	}
	t.rules.Store(&own)
	return nil
}

func checkRoute(r Route) string {
	switch {
	case r.Fabric == "":
		return "names no fabric"
	case r.MaxBytes != 0 && r.MinBytes > r.MaxBytes:
		return fmt.Sprintf("min_bytes %d is above max_bytes %d", r.MinBytes, r.MaxBytes)
	}
	for _, tier := range r.Tiers {
		if tier > wire.OutputCritical {
			return fmt.Sprintf("tier %d is none of 0, 1, 2", tier)
		}
	}
	return ""
}

// Rules returns the rules in force.
func (t *Routes) Rules() []Route {
	own := *t.rules.Load()
	rules := make([]Route, len(own))
	for i := range own {
		rules[i] = own[i].Route
		rules[i].Tiers = slices.Clone(rules[i].Tiers)
	}
	return rules
}

// Pick chooses. The error is a *RouteError: a required fabric cannot take the
// block, or no rule has one that can.
func (t *Routes) Pick(q Query) (Choice, error) { return t.walk(&q, nil) }

// Explain is Pick with the reasons written out.
func (t *Routes) Explain(q Query) Explanation {
	var e Explanation
	e.Choice, e.Err = t.walk(&q, &e.Steps)
	return e
}
