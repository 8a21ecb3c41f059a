package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"meridian/fabric"
	"meridian/wire"
)

// picky is a fabric whose peers may have the blocks of one namespace.
type picky struct {
	dummy
	only wire.Namespace
}

func (p *picky) MayHave(ns wire.Namespace) error {
	if ns != p.only {
		return wire.CodeNSUnknown
	}
	return nil
}

// Rules with From are for what its peers bring, and for nothing else; none leads back to
// who brought a block, or to peers that may not have it.
func TestARuleIsForWhatItsPeersBring(t *testing.T) {
	rules := []fabric.Route{
		{From: "nixl/app", Fabric: "mooncake"},
		{From: "nixl", NS: nsB, Fabric: "link", Peer: "b"},
		{From: "nixl", Fabric: "nixl", Peer: "app"},
		{From: "link", Fabric: "picky"},
		{From: "link", Fabric: "link", Peer: "b"},
		{Fabric: "picky"},
	}
	reg := &fabric.Registry{}
	for _, name := range []string{"mooncake", "link", "link/b", "nixl", "nixl/app"} {
		if err := reg.Add(name, &dummy{name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := reg.Add("picky", &picky{dummy{name: "picky"}, nsA}); err != nil {
		t.Fatal(err)
	}
	routes, err := fabric.NewRoutes(reg, rules)
	if err != nil {
		t.Fatal(err)
	}
	at := func(fabricName, peer string) fabric.Hop { return fabric.Hop{Fabric: fabricName, Peer: peer} }
	for _, c := range []struct {
		from fabric.Hop
		ns   wire.Namespace
		want string // "" for nowhere
	}{
		{at("nixl", "app"), nsA, "mooncake"},
		{at("nixl", "other"), nsA, "nixl/app"},
		{at("nixl", "other"), nsB, "link/b"},
		{at("link", "a"), nsA, "picky"},
		{at("link", "a"), nsB, "link/b"}, // picky may not have it
		{at("link", "b"), nsB, ""},       // it came from there
		{at("mooncake", "x"), nsA, ""},
		{fabric.Hop{}, nsB, "picky"}, // of an engine: the routes alone decide
	} {
		got, err := routes.Pick(fabric.Query{From: c.from, NS: c.ns, AnyPeer: true})
		if (err != nil) != (c.want == "") || got.Name != c.want {
			t.Errorf("from %v, %v: %q %v, want %q", c.from, c.ns[:1], got.Name, err, c.want)
		}
	}
	for name, want := range map[string]bool{"nixl": true, "link": true, "mooncake": false, "": false} {
		if routes.Bridges(name) != want {
			t.Errorf("%q bridges: %v", name, !want)
		}
	}
	lookups := slices.Sorted(maps.Keys(routes.Lookups(at("nixl", "app"), nsA)))
	if got := fmt.Sprint(lookups); got != "[mooncake nixl/app]" {
		t.Error("a question goes to", got)
	}
	taken := ""
	for _, r := range routes.Counts() {
		taken += fmt.Sprint(r.Taken, "/", r.Passed, " ")
	}
	if taken != "1/0 1/0 1/0 1/2 1/0 1/0 " {
		t.Error("the counts are", taken)
	}
	if err := routes.Replace([]fabric.Route{{Fabric: "nixl"}, rules[3], rules[3]}); err != nil {
		t.Fatal(err)
	}
	taken = ""
	for _, r := range routes.Counts() {
		taken += fmt.Sprint(r.Taken, "/", r.Passed, " ")
	}
	if taken != "0/0 1/2 0/0 " {
		t.Error("after a change the counts are", taken)
	}
	if err := routes.Replace([]fabric.Route{{From: "link/b", Fabric: "link", Peer: "b"}}); !errors.Is(err, wire.CodeConfig) {
		t.Error("a rule that leads back:", err)
	}
	if got := fabric.HopsOf(fabric.WithHops(context.Background(), 3)); got != 3 {
		t.Error(got, "hops")
	}
}
