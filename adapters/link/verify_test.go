package link

import (
	"bytes"
	"testing"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// A holder that verifies each local read hashes nothing for what a peer asks: that
// would be under the session's lock, and the peer hashes what arrives. A block that
// no longer matches is served to nobody all the same.
func TestAHolderHashesNothingUnderItsSessionsLock(t *testing.T) {
	noLeaks(t)
	st, err := blocks.Open(blocks.Config{Capacity: 8 << 20, Agent: agentID(2), Incarnation: 20, VerifyAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	reg := emptyRegistry(st)
	there, err := New(Config{Agent: agentID(2), Incarnation: 20, Store: st, Namespaces: reg, Insecure: true, Lanes: 2, Tenants: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = there.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	addr, err := there.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, _, mine, _ := agentWith(t, 1, 10, "", 1<<20, func(c *Config) {
		c.Peers = []PeerConfig{{Name: "b", Addr: "tcp://" + addr.String(), Tenants: []string{"t"}}}
	})
	p := n.Peer("b")
	ready(t, p)
	ns, err := mine.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Add(testManifest("t")); err != nil {
		t.Fatal(err)
	}
	keys := publish(t, st, ns, wire.OutputCritical, 4, 300_000)
	pull := func() []fabric.Item {
		it := make([]fabric.Item, len(keys))
		for i := range it {
			it[i] = fabric.Item{NS: ns, Key: keys[i], M: fabric.Mem{B: make([]byte, wire.HeaderLen+300_000)}}
		}
		p.Find(testContext(t), it)
		p.Pull(testContext(t), it) // by the handles that Find gave
		return it
	}
	for i, it := range pull() {
		if it.Err != nil {
			t.Errorf("block %d: %v", i, it.Err)
		}
	}
	if got := st.Stats().Verified; got != 0 {
		t.Errorf("%d bodies were hashed by the holder", got)
	}
	o := st.NewOwner(0)
	v := []blocks.View{{NS: ns, Key: keys[0]}}
	l, err := st.Acquire(o, v, testTTL, false)
	if err != nil || v[0].Err != nil {
		t.Fatal(err, v[0].Err)
	}
	if got := st.Stats().Verified; got != 1 {
		t.Errorf("a local read hashed %d bodies, want 1", got)
	}
	body := st.Payload(v[0])[wire.HeaderLen:]
	good := bytes.Clone(body[:1])
	body[0] ^= 1
	if it := pull(); wire.CodeOf(it[0].Err) != wire.CodeChecksum || it[1].Err != nil {
		t.Errorf("the damaged block: %v; another: %v", it[0].Err, it[1].Err)
	}
	copy(body, good)
	st.Release(o, l)
	st.Drop(o)
}
