package fabric_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"meridian/fabric"
	"meridian/wire"
)

var nsA, nsB = wire.Namespace{1}, wire.Namespace{2}

// table makes routes over the fabrics named; those in down are not ready.
func table(t *testing.T, rules []fabric.Route, names []string, down ...string) *fabric.Routes {
	t.Helper()
	reg := &fabric.Registry{}
	for _, name := range names {
		d := &dummy{name: name}
		if name == "small" {
			d.maxItem = 1000
		}
		if slices.Contains(down, name) {
			d.down = errors.New("the self-test failed")
		}
		if err := reg.Add(name, d); err != nil {
			t.Fatal(err)
		}
	}
	routes, err := fabric.NewRoutes(reg, rules)
	if err != nil {
		t.Fatal(err)
	}
	return routes
}

func TestPickTakesTheFirstRuleThatMatchesAndCan(t *testing.T) {
	rules := []fabric.Route{
		{Tiers: []wire.Tier{wire.ThinkComplete}, NS: nsA, Fabric: "file"},
		{Peer: "b", Fabric: "nixl"},
		{MinBytes: 1000, MaxBytes: 2000, Fabric: "link"},
		{Tiers: []wire.Tier{wire.ThinkActive, wire.OutputCritical}, Fabric: "small"},
		{Fabric: "link"},
	}
	all := []string{"file", "nixl", "link", "small", "link/c"}
	for _, c := range []struct {
		q          fabric.Query
		down       []string
		name, peer string
		rule       int
		wanted     string // of the fallback; "" for none
	}{
		{fabric.Query{NS: nsA}, nil, "file", "", 0, ""},
		{fabric.Query{NS: nsB}, nil, "link", "", 4, ""},
		{fabric.Query{NS: nsA, Tier: 1, Peer: "b"}, nil, "nixl", "b", 1, ""},
		{fabric.Query{Bytes: 1000}, nil, "link", "", 2, ""},
		{fabric.Query{Bytes: 2000}, nil, "link", "", 2, ""},
		{fabric.Query{Bytes: 2001}, nil, "link", "", 4, ""},
		{fabric.Query{Bytes: 999, Tier: 1}, nil, "link", "", 4, "small"},       // header and body do not fit
		{fabric.Query{Bytes: 968, Tier: 1}, nil, "small", "", 3, ""},           // just do
		{fabric.Query{NS: nsA}, []string{"file"}, "link", "", 4, "file"},       // not ready: a fallback
		{fabric.Query{Peer: "b"}, []string{"nixl"}, "link", "b", 4, "nixl"},    //
		{fabric.Query{Peer: "c"}, nil, "link/c", "c", 4, ""},                   // the peer's own entry
		{fabric.Query{Peer: "d"}, nil, "link", "d", 4, ""},                     // or the fabric's
		{fabric.Query{AnyPeer: true}, nil, "nixl", "b", 1, ""},                 // the rule chooses the peer
		{fabric.Query{AnyPeer: true}, []string{"nixl"}, "link", "", 4, "nixl"}, // and takes it back
		{fabric.Query{AnyPeer: true, Peer: "c"}, nil, "link/c", "c", 4, ""},    // an open query may name one
		{fabric.Query{NS: nsA, Failed: failed("file")}, nil, "link", "", 4, "file"},
	} {
		got, err := table(t, rules, all, c.down...).Pick(c.q)
		if err != nil {
			t.Errorf("%+v: %v", c.q, err)
			continue
		}
		if got.Name != c.name || got.Peer != c.peer || got.Rule != c.rule || got.Fabric.Label() != c.name {
			t.Errorf("%+v: %s to %q by rule %d, want %s to %q by %d", c.q, got.Name, got.Peer, got.Rule, c.name, c.peer, c.rule)
		}
		if got.Fallback != (c.wanted != "") || got.Wanted != c.wanted || (got.Why != nil) != got.Fallback {
			t.Errorf("%+v: fallback from %q (%v), want from %q", c.q, got.Wanted, got.Why, c.wanted)
		}
	}
}

func failed(names ...string) map[string]error {
	m := make(map[string]error)
	for _, n := range names {
		m[n] = &fabric.Error{Code: wire.CodeLaneLost, Fabric: n}
	}
	return m
}

func TestRequireRefusesAFallback(t *testing.T) {
	rules := []fabric.Route{
		{Peer: "b", Fabric: "nixl", Require: true},
		{Fabric: "small", Require: true, Tiers: []wire.Tier{wire.ThinkComplete}},
		{Fabric: "link"},
	}
	for _, c := range []struct {
		name  string
		q     fabric.Query
		have  []string
		down  []string
		rule  int
		text  string
		codes []wire.Code
	}{
		{"not registered", fabric.Query{Peer: "b"}, []string{"link", "small"}, nil, 0, "no fabric of this name", nil},
		{"not ready", fabric.Query{Peer: "b"}, []string{"link", "nixl"}, []string{"nixl"}, 0, "self-test", nil},
		{"failed before", fabric.Query{Peer: "b", Failed: failed("nixl")}, []string{"link", "nixl"}, nil, 0, "LANE_LOST", []wire.Code{wire.CodeLaneLost}},
		{"too large", fabric.Query{Bytes: 5000}, []string{"link", "small"}, nil, 1, "need 5032", []wire.Code{wire.CodeTooLarge}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := table(t, rules, c.have, c.down...).Pick(c.q)
			var e *fabric.RouteError
			if !errors.As(err, &e) || !e.Require || e.Rule != c.rule {
				t.Fatalf("got %v", err)
			}
			for _, code := range append(c.codes, wire.CodeUnreachable) {
				if !errors.Is(err, code) {
					t.Errorf("%v does not match %v", err, code)
				}
			}
			if wire.CodeOf(err) != wire.CodeUnreachable || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "forbids a fallback") {
				t.Errorf("says %v", err)
			}
		})
	}
}

// A require that is reached by a fallback still ends the search.
func TestRequireBelowAPreferEndsTheSearch(t *testing.T) {
	rules := []fabric.Route{{Fabric: "a"}, {Fabric: "b", Require: true}, {Fabric: "c"}}
	_, err := table(t, rules, []string{"a", "b", "c"}, "a", "b").Pick(fabric.Query{})
	var e *fabric.RouteError
	if !errors.As(err, &e) || e.Rule != 1 || e.Fabric != "b" {
		t.Fatalf("got %v", err)
	}
	c, err := table(t, rules, []string{"a", "b", "c"}, "a").Pick(fabric.Query{})
	if err != nil || c.Name != "b" || !c.Fallback || c.Wanted != "a" {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestNoRouteSaysSo(t *testing.T) {
	_, err := table(t, []fabric.Route{{NS: nsA, Fabric: "a"}}, []string{"a"}).Pick(fabric.Query{NS: nsB})
	if !errors.Is(err, wire.CodeUnreachable) || !strings.Contains(err.Error(), "no route matches") {
		t.Errorf("no rule matches: %v", err)
	}
	_, err = table(t, []fabric.Route{{Fabric: "a"}}, []string{"a"}, "a").Pick(fabric.Query{})
	if !errors.Is(err, wire.CodeUnreachable) || !strings.Contains(err.Error(), "fabric a was wanted") {
		t.Errorf("the only one is not ready: %v", err)
	}
	_, err = table(t, nil, nil).Pick(fabric.Query{})
	if !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("no rules: %v", err)
	}
}

func TestExplainGivesEveryRuleAReason(t *testing.T) {
	rules := []fabric.Route{
		{Tiers: []wire.Tier{wire.ThinkComplete}, Fabric: "x"},
		{NS: nsB, Fabric: "x"},
		{Peer: "b", Fabric: "x"},
		{MinBytes: 500, Fabric: "x"},
		{MaxBytes: 50, Fabric: "x"},
		{Fabric: "gone"},
		{Fabric: "link"},
		{Fabric: "file"},
	}
	routes := table(t, rules, []string{"x", "link", "file"})
	q := fabric.Query{NS: nsA, Tier: wire.OutputCritical, Peer: "c", Bytes: 100}
	e := routes.Explain(q)
	want := []string{
		"is not in the rule", "the rule wants 02", `peer is "c", the rule wants "b"`, "below min_bytes 500",
		"above max_bytes 50", "passed over: gone/c", "can take the block", "a rule above decided",
	}
	if len(e.Steps) != len(want) {
		t.Fatalf("%d steps", len(e.Steps))
	}
	for i, s := range e.Steps {
		if !strings.Contains(s.Reason, want[i]) || s.Rule != i || s.Chosen != (i == 6) {
			t.Errorf("step %d: %+v, want %q", i, s, want[i])
		}
	}
	picked, err := routes.Pick(q)
	if err != nil || fmt.Sprint(picked) != fmt.Sprint(e.Choice) {
		t.Errorf("Pick gives %+v, Explain %+v", picked, e.Choice)
	}
	text := e.String()
	for _, part := range []string{"* rule 6: everything -> prefer link", "a fallback from gone/c", "peer=b -> prefer x", "bytes=500.."} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	refused := table(t, []fabric.Route{{Fabric: "gone", Require: true}, {Fabric: "x"}}, []string{"x"}).Explain(q)
	if refused.Err == nil || !strings.Contains(refused.String(), "refused: route 0 requires") || len(refused.Steps) != 2 {
		t.Errorf("refusal:\n%s", refused)
	}
}

func TestRulesThatContradictThemselvesAreRefusedWhole(t *testing.T) {
	routes := table(t, []fabric.Route{{Fabric: "a"}}, []string{"a"})
	for _, bad := range []fabric.Route{
		{},
		{Fabric: "a", MinBytes: 10, MaxBytes: 9},
		{Fabric: "a", Tiers: []wire.Tier{3}},
	} {
		if err := routes.Replace([]fabric.Route{{Fabric: "b"}, bad}); !errors.Is(err, wire.CodeConfig) || !strings.Contains(err.Error(), "route 1") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := routes.Replace(make([]fabric.Route, fabric.MaxRoutes+1)); !errors.Is(err, wire.CodeConfig) {
		t.Errorf("too many: %v", err)
	}
	if c, err := routes.Pick(fabric.Query{}); err != nil || c.Name != "a" {
		t.Errorf("the old rules are gone: %v, %v", c, err)
	}
}

// Rules belong to the table: neither side's later changes reach the other.
func TestRulesAreCopied(t *testing.T) {
	rules := []fabric.Route{{Fabric: "a", Tiers: []wire.Tier{wire.ThinkActive}}}
	routes := table(t, rules, []string{"a"})
	rules[0].Tiers[0] = wire.OutputCritical
	routes.Rules()[0].Tiers[0] = wire.OutputCritical
	if _, err := routes.Pick(fabric.Query{Tier: wire.ThinkActive}); err != nil {
		t.Error(err)
	}
}

func TestReplaceWhilePicking(t *testing.T) {
	routes := table(t, []fabric.Route{{Fabric: "a"}}, []string{"a", "b"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if c, err := routes.Pick(fabric.Query{}); err != nil || c.Name != "a" && c.Name != "b" {
					t.Errorf("%v, %v", c.Name, err)
				}
			}
		})
	}
	for i := range 200 {
		if err := routes.Replace([]fabric.Route{{Fabric: string("ab"[i%2])}}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func TestPickDoesNotAllocate(t *testing.T) {
	routes := table(t, []fabric.Route{
		{NS: nsB, Fabric: "a"}, {Tiers: []wire.Tier{wire.ThinkActive}, Fabric: "a"}, {Fabric: "a"},
	}, []string{"a"})
	q := fabric.Query{NS: nsA, Bytes: 1 << 14}
	if n := testing.AllocsPerRun(100, func() { _, _ = routes.Pick(q) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A choice sees each fabric that came or went before it, also where it is asked
// between any two changes, and where others ask at the same time.
func TestAChoiceFollowsEveryChange(t *testing.T) {
	reg := &fabric.Registry{}
	routes, err := fabric.NewRoutes(reg, []fabric.Route{{Fabric: "link"}})
	if err != nil {
		t.Fatal(err)
	}
	stop, others := make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = routes.Pick(fabric.Query{Peer: "b"})
				}
			}
		})
	}
	want := func(name string) {
		t.Helper()
		c, err := routes.Pick(fabric.Query{Peer: "b"})
		if c.Name != name || (err == nil) != (name != "") {
			t.Errorf("%q, %v, want %q", c.Name, err, name)
		}
		if f, ok := reg.Get(name); ok != (name != "") || ok && f.Label() != name {
			t.Errorf("%q is registered: %v", name, ok)
		}
	}
	for range 100 {
		want("")
		_ = reg.Add("link", &dummy{name: "link"})
		want("link")
		_ = reg.Add("link/b", &dummy{name: "link/b"})
		_ = reg.Add("link/c", &dummy{name: "link/c"})
		want("link/b")
		reg.Remove("link/b")
		want("link")
		reg.Remove("link")
		want("")
		reg.Remove("link/c")
	}
	_ = reg.Add("link", &dummy{name: "link", closed: new([]string)})
	want("link")
	_ = reg.Close()
	want("")
	close(stop)
	others.Wait()
}
