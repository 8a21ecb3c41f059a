package fabric

import (
	"fmt"
	"iter"
	"reflect"
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
	// From is the fabric whose peers bring the blocks, or one of these peers, see
	// PeerName. Empty: they are those of this daemon's engines.
	From     string
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
	if r.From != "" {
		cond = append(cond, "from="+r.From)
	}
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
	From Hop // who brought it; zero: an engine of this daemon
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
	rules atomic.Pointer[[]*rule]
	froms atomic.Pointer[map[string]struct{}] // fabrics that rules have as From
}

// rule is a Route in force.
type rule struct {
	Route
	to     path          // Fabric
	from   path          // From
	taken  atomic.Uint64 // choices that it decided
	passed atomic.Uint64 // choices for which it held, and its fabric could not take the block
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
	own, froms := make([]*rule, len(rules)), map[string]struct{}{}
	for i, r := range rules {
		if err := checkRoute(r); err != "" {
			return &Error{Code: wire.CodeConfig, Fabric: r.Fabric, Text: fmt.Sprintf("route %d: %s", i, err)}
		}
		r.Tiers = slices.Clone(r.Tiers)
		own[i] = t.had(r, own[:i])
		if own[i] == nil {
			own[i] = &rule{Route: r, to: pathOf(r.Fabric), from: pathOf(r.From)}
		}
		froms[own[i].from.fabric] = struct{}{}
	}
	t.rules.Store(&own)
	t.froms.Store(&froms)
	return nil
}

// had is the rule in force that says the same and is not among those, so that its counts
// go on; nil: there is none.
func (t *Routes) had(r Route, taken []*rule) *rule {
	old := t.rules.Load()
	if old == nil {
		return nil
	}
	for _, o := range *old {
		if reflect.DeepEqual(o.Route, r) && !slices.Contains(taken, o) {
			return o
		}
	}
	return nil
}

func checkRoute(r Route) string {
	switch {
	case r.Fabric == "":
		return "names no fabric"
	case r.From != "" && r.From == PeerName(r.Fabric, r.Peer) && strings.Contains(r.From, "/"):
		return "leads back to " + r.From
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

// Bridges reports whether some rule is for blocks that peers of a fabric bring.
func (t *Routes) Bridges(fabric string) bool {
	_, ok := (*t.froms.Load())[fabric]
	return ok && fabric != ""
}

// Matching yields the rules that hold for a block, from the top down to the first
// that is required, whether their fabrics can take it or not.
func (t *Routes) Matching(q Query) iter.Seq2[int, Route] {
	return func(yield func(int, Route) bool) {
		rules := *t.rules.Load()
		for i := range rules {
			r := rules[i]
			if r.mismatch(&q) == matches && (!yield(i, r.Route) || r.Require) {
				return
			}
		}
	}
}

// RuleCount is a rule in force, and what it was asked.
type RuleCount struct {
	Route
	Taken  uint64 // blocks for which it was chosen
	Passed uint64 // blocks for which it held, and its fabric could not take them
}

// Counts returns the rules in force with their counts, which begin when the rule is put
// in force, and go on where other rules are replaced.
func (t *Routes) Counts() []RuleCount {
	own := *t.rules.Load()
	out := make([]RuleCount, len(own))
	for i, r := range own {
		out[i] = RuleCount{r.Route, r.taken.Load(), r.passed.Load()}
		out[i].Tiers = slices.Clone(r.Tiers)
	}
	return out
}

// Lookups are the fabrics, by registry name, that may be asked for a block which a peer
// asks for: those to which a rule sends what the peer brings of the namespace, whatever
// its tier and size.
func (t *Routes) Lookups(by Hop, ns wire.Namespace) map[string]bool {
	out := map[string]bool{}
	for _, r := range *t.rules.Load() {
		if r.from.fabric == by.Fabric && (r.from.peer == "" || r.from.peer == by.Peer) && (r.NS == (wire.Namespace{}) || r.NS == ns) {
			out[PeerName(r.Fabric, r.Peer)] = true
		}
	}
	return out
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
