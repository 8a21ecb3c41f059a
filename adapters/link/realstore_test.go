package link

import (
	"testing"
	"time"

	"meridian/blocks"
	"meridian/blocks/spaces"
	"meridian/fabric"
	"meridian/fabric/fabrictest"
	"meridian/wire"
)

// emptyRegistry knows no namespace, and tells st of each that it learns.
func emptyRegistry(st *blocks.Store) *spaces.Registry { return spaces.New(st.AddNamespace) }

// agentWith makes an agent on a block store with an arena of its own.
func agentWith(tb testing.TB, id byte, inc uint64, listen string, capacity uint64, change func(*Config)) (*Node, *blocks.Store, *spaces.Registry, string) {
	tb.Helper()
	st, err := blocks.Open(blocks.Config{Capacity: capacity, Agent: agentID(id), Incarnation: inc})
	if err != nil {
		tb.Fatal(err)
	}
	reg := emptyRegistry(st)
	cfg := Config{Agent: agentID(id), Incarnation: inc, Store: st, Namespaces: reg, Insecure: true, Lanes: 2, Congestion: "cubic", Tenants: []string{"t"}}
	if change != nil {
		change(&cfg)
	}
	giveTenants(cfg.Peers)
	n, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = n.Close()
		if err := st.Close(); err != nil {
			tb.Error(err)
		}
	})
	if listen == "" {
		return n, st, reg, ""
	}
	a, err := n.Listen(listen)
	if err != nil {
		tb.Fatal(err)
	}
	return n, st, reg, "tcp://" + a.String()
}

func TestFabricContractOnTheBlockStore(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		noLeaks(t)
		_, there, _, addr := agentWith(t, 2, 20, "tcp://127.0.0.1:0", 64<<20, nil)
		n, _, reg, _ := agentWith(t, 1, 10, "", 1<<20, func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: addr}} })
		p := n.Peer("b")
		ready(t, p)
		ns, err := reg.Add(testManifest("t"))
		if err != nil {
			t.Fatal(err)
		}
		owner := there.NewOwner(0)
		t.Cleanup(func() { there.Drop(owner) })
		return fabrictest.Harness{
			Fabric: p, NS: ns,
			Damage: func(it fabric.Item) error {
				v := []blocks.View{{NS: it.NS, Key: it.Key}}
				l, err := there.Acquire(owner, v, testTTL, false)
				if err != nil {
					return err
				}
				there.Payload(v[0])[wire.HeaderLen] ^= 1
				there.Release(owner, l)
				return nil
			},
		}
	})
}

// testTTL outlives every test.
const testTTL = time.Minute

// Blocks go from one arena straight into reserved slots of another, and are
// published there as they were.
func TestPullIntoReservedSlots(t *testing.T) {
	noLeaks(t)
	_, there, reg2, addr := agentWith(t, 2, 20, "tcp://127.0.0.1:0", 16<<20, nil)
	n, here, reg, _ := agentWith(t, 1, 10, "", 16<<20, func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: addr}} })
	p := n.Peer("b")
	ready(t, p)
	ns, err := reg.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reg2.Add(testManifest("t")); err != nil {
		t.Fatal(err)
	}
	source, sink := there.NewOwner(0), here.NewOwner(0)
	sizes := []uint32{100, 16 << 10, 1 << 20}
	v, err := there.Reserve(source, ns, sizes, testTTL)
	if err != nil {
		t.Fatal(err)
	}
	c := make([]blocks.Commit, len(v))
	for i := range v {
		copy(there.Room(v[i])[wire.HeaderLen:], randomBody(int(sizes[i])))
		c[i] = blocks.Commit{Slot: v[i].Ref.Slot, Gen: v[i].Ref.Gen, NS: ns, Key: key(ns, i), Tier: wire.ThinkActive, Len: sizes[i], Att: wire.AttestProducer}
	}
	there.Commit(source, c)
	room, err := here.Reserve(sink, ns, sizes, testTTL)
	if err != nil {
		t.Fatal(err)
	}
	it := make([]fabric.Item, len(v))
	for i := range it {
		it[i] = fabric.Item{NS: ns, Key: key(ns, i), M: fabric.Mem{B: here.Room(room[i])}}
	}
	p.Pull(testContext(t), it)
	for i := range it {
		if c[i].Err != nil || it[i].Err != nil {
			t.Fatalf("item %d: commit %v, pull %v", i, c[i].Err, it[i].Err)
		}
		c[i] = blocks.Commit{Slot: room[i].Ref.Slot, Gen: room[i].Ref.Gen, NS: ns, Key: key(ns, i), Tier: it[i].Head.Tier, Head: &it[i].Head, Att: wire.AttestProducer, Proof: it[i].Proof}
		if !it[i].Proof.Of(it[i].M.B[wire.HeaderLen:][:it[i].Head.BodyLen]) {
			t.Errorf("item %d comes without proof of its bytes: they would be hashed twice", i)
		}
	}
	here.Commit(sink, c)
	for i := range c {
		if c[i].Err != nil {
			t.Errorf("commit %d: %v", i, c[i].Err)
		}
		mine, err := here.Stat(key(ns, i))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := there.Stat(key(ns, i))
		if err != nil || mine.Head != theirs.Head {
			t.Errorf("block %d: header %+v here, %+v there, %v", i, mine.Head, theirs.Head, err)
		}
		if err := here.Verify(mine); err != nil {
			t.Errorf("verify %d: %v", i, err)
		}
	}
}

func TestPushIntoAFullStoreFailsItemByItem(t *testing.T) {
	noLeaks(t)
	_, _, _, addr := agentWith(t, 2, 20, "tcp://127.0.0.1:0", 1<<20, nil)
	n, _, reg, _ := agentWith(t, 1, 10, "", 1<<20, func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: addr}} })
	p := n.Peer("b")
	ready(t, p)
	ns, err := reg.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	it := make([]fabric.Item, 12)
	for i := range it {
		it[i] = fabric.Item{NS: ns, Key: key(ns, i), Tier: wire.OutputCritical, M: payload(t, wire.OutputCritical, randomBody(120_000))}
	}
	p.Push(testContext(t), it)
	good, full := 0, 0
	for i := range it {
		switch wire.CodeOf(it[i].Err) {
		case wire.CodeOK:
			good++
		case wire.CodeFull:
			full++
		default:
			t.Errorf("item %d: %v", i, it[i].Err)
		}
	}
	if good == 0 || full == 0 {
		t.Errorf("%d were taken and %d were too many", good, full)
	}
}
