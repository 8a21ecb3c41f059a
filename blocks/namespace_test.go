package blocks

import (
	"fmt"
	"testing"

	"meridian/blocks/quota"
	"meridian/wire"
)

// Namespaces come into the places of those that went, each into its own.
func TestANamespaceGetsNoOthersPlace(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 8192, ExtentBytes: 8192})
	o := c.NewOwner(false)
	fillCore(t, c, o, 1, wire.OutputCritical)
	open := func(i int) wire.Namespace {
		t.Helper()
		ns := nsOf(fmt.Sprint(i))
		if err := c.AddNamespace(ns, tenantOf("t")); err != nil {
			t.Fatal(err)
		}
		return ns
	}
	for round := range 5 {
		for i := range round {
			open(i)
		}
		for i := range round {
			if !c.RemoveNamespace(nsOf(fmt.Sprint(i))) {
				t.Fatal("an empty namespace stays")
			}
		}
		for i := range round + 2 {
			if n := c.Lookup(open(i), []wire.Key{benchKey(0)}, nil); n != 0 {
				t.Fatalf("round %d: namespace %d finds the block of another", round, i)
			}
		}
		if n := c.Lookup(nsOf("n"), []wire.Key{benchKey(0)}, nil); n != 1 {
			t.Fatalf("round %d: the block is gone from its namespace", round)
		}
		for i := range round + 2 {
			if !c.RemoveNamespace(nsOf(fmt.Sprint(i))) {
				t.Fatal("an empty namespace stays")
			}
		}
	}
	if n := len(c.ns); n != 7 {
		t.Errorf("%d places for at most 7 namespaces at a time", n)
	}
}

// What is guaranteed is divided among the tenants that have a namespace: the last
// one that goes gives the tenant's part to the others.
func TestATenantWithoutANamespaceHasNoPart(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 16384, ExtentBytes: 8192, Shares: Shares{TenantGuaranteed: 0.75}})
	part := func() uint64 {
		for _, r := range c.Quota() {
			if r.Rule == (quota.Rule{Resource: quota.GuaranteedBytes, Kind: quota.Tenant}) {
				return r.Limit
			}
		}
		t.Fatal("no row")
		return 0
	}
	for _, step := range []struct {
		ns, tenant string // tenant empty: the namespace goes
		tenants    uint64
	}{
		{"n", "t", 1}, {"n2", "t", 1}, {"m", "u", 2}, {"o", "v", 3},
		{"n", "", 3}, {"n2", "", 2}, {"m", "", 1}, {"m", "u", 2}, {"m", "", 1}, {"o", "", 1}, {"n", "t", 1}, {"m", "u", 2},
	} {
		if step.tenant == "" {
			if !c.RemoveNamespace(nsOf(step.ns)) {
				t.Fatalf("%s stays", step.ns)
			}
		} else if err := c.AddNamespace(nsOf(step.ns), tenantOf(step.tenant)); err != nil {
			t.Fatal(err)
		}
		if got := part(); got != 12288/step.tenants {
			t.Fatalf("%+v: each has %d bytes guaranteed, want %d", step, got, 12288/step.tenants)
		}
	}
}
