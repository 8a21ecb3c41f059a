package link

import (
	"testing"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// publish makes n blocks of size bytes of a namespace in a store.
func publish(t *testing.T, st *blocks.Store, ns wire.Namespace, tier wire.Tier, n, size int) []wire.Key {
	t.Helper()
	o := st.NewOwner(0)
	defer st.Drop(o)
	keys := make([]wire.Key, n)
	for i := range keys {
		keys[i] = key(ns, i)
		v, err := st.Reserve(o, ns, []uint32{uint32(size)}, time.Minute)
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		c := blocks.Commit{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: keys[i], Tier: tier, Att: wire.AttestProducer}
		if err := st.Ingest(o, randomBody(size), &c); err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
	}
	return keys
}

func leftOf(st *blocks.Store, ns wire.Namespace, keys []wire.Key) (n int) {
	for i := range keys {
		n += st.Lookup(ns, keys[i:i+1], nil)
	}
	return n
}

// A peer that pushes as much as it can into an arena full of another tenant's
// blocks, or of its own tenant's more important ones, takes the place of none.
func TestAPeersPushEvictsNeitherAnotherTenantNorAHigherTier(t *testing.T) {
	for _, c := range []struct {
		name, owner string
		there, push wire.Tier
	}{
		{"another tenant's output", "other", wire.OutputCritical, wire.OutputCritical},
		{"another tenant's cold blocks", "other", wire.ThinkComplete, wire.OutputCritical},
		{"its tenant's output", "t", wire.OutputCritical, wire.ThinkActive},
		{"its tenant's active thinking", "t", wire.ThinkActive, wire.ThinkComplete},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			_, there, theirs, addr := agentWith(t, 2, 20, "tcp://127.0.0.1:0", 1<<20, nil)
			n, _, reg, _ := agentWith(t, 1, 10, "", 1<<20, func(c *Config) {
				c.Peers = []PeerConfig{{Name: "b", Addr: addr, Tenants: []string{"t", "other"}}}
			})
			p := n.Peer("b")
			ready(t, p)
			ns, err := reg.Add(testManifest("t"))
			if err != nil {
				t.Fatal(err)
			}
			held := testManifest(c.owner)
			held.Role = "prefill"
			theirNS, err := theirs.Add(held)
			if err != nil {
				t.Fatal(err)
			}
			keys := publish(t, there, theirNS, c.there, 8, 120_000)
			it := make([]fabric.Item, 12)
			for i := range it {
				it[i] = fabric.Item{NS: ns, Key: key(ns, 100+i), Tier: c.push, M: payload(t, c.push, randomBody(120_000))}
			}
			p.Push(testContext(t), it)
			for i := range it {
				if it[i].Err == nil {
					t.Errorf("item %d was taken by an arena without room for it", i)
				}
			}
			if got := leftOf(there, theirNS, keys); got != len(keys) {
				t.Errorf("%d of %d blocks are left", got, len(keys))
			}
		})
	}
}
