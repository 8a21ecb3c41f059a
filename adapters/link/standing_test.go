package link

import (
	"bytes"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// smallPair is an agent that pushes and a store that is pushed to, in a namespace
// of blocks of 16 KiB.
func smallPair(t *testing.T, change func(*Config)) (*Peer, *blocks.Store, wire.Namespace, *Node) {
	t.Helper()
	noLeaks(t)
	node, there, _, addr := agentWith(t, 2, 20, "tcp://127.0.0.1:0", 64<<20, change)
	n, _, reg, _ := agentWith(t, 1, 10, "", 1<<20, func(c *Config) {
		c.Lanes = 1
		c.Peers = []PeerConfig{{Name: "b", Addr: addr}}
	})
	ready(t, n.Peer("b"))
	ns, err := reg.Add(benchManifest(16 << 10))
	if err != nil {
		t.Fatal(err)
	}
	return n.Peer("b"), there, ns, node
}

// pushOf pushes bodies under keys that begin with first.
func pushOf(t *testing.T, p *Peer, ns wire.Namespace, first int, bodies ...[]byte) {
	t.Helper()
	it := make([]fabric.Item, len(bodies))
	for i, b := range bodies {
		it[i] = fabric.Item{NS: ns, Key: key(ns, first+i), Tier: wire.OutputCritical, M: payload(t, wire.OutputCritical, b)}
	}
	p.Push(testContext(t), it)
	for i := range it {
		if it[i].Err != nil {
			t.Fatalf("push of item %d: %v", first+i, it[i].Err)
		}
	}
}

// Small pushes over sockets into a real store: homes follow the first, the next come
// back as they were pushed, and the session's end gives all homes back.
func TestSmallPushesHaveHomesInTheStore(t *testing.T) {
	p, there, ns, node := smallPair(t, nil)
	pushOf(t, p, ns, 0, randomBody(16<<10))
	until(t, func() bool { return there.Stats().Reserved == standingHomes })
	if got := there.Stats().ReservedBytes; got > standingBytes {
		t.Errorf("%d bytes are reserved", got)
	}
	bodies := make([][]byte, 100)
	for i := range bodies {
		bodies[i] = randomBody(16<<10 - i)
	}
	for i := 0; i < len(bodies); i += 10 {
		pushOf(t, p, ns, 1+i, bodies[i:i+10]...)
	}
	for i, b := range bodies {
		it := []fabric.Item{{NS: ns, Key: key(ns, 1+i), M: fabric.Mem{B: make([]byte, wire.HeaderLen+16<<10)}}}
		if p.Pull(testContext(t), it); it[0].Err != nil || !bytes.Equal(it[0].M.B[wire.HeaderLen:][:len(b)], b) {
			t.Fatalf("body %d: %v", i, it[0].Err)
		}
	}
	_ = node.Close()
	if st := there.Stats(); st.Reserved != 0 || st.Leaked != 0 {
		t.Errorf("%d reservations are left, %d leaked", st.Reserved, st.Leaked)
	}
}

// A side may keep no homes at all; pushes then ask for room each.
func TestASideMayKeepNoHomes(t *testing.T) {
	p, there, ns, _ := smallPair(t, func(c *Config) { c.Standing = -1 })
	for i := range 5 {
		pushOf(t, p, ns, i, randomBody(16<<10))
	}
	if n := there.Stats().Reserved; n != 0 {
		t.Errorf("%d slots are reserved", n)
	}
}

// What is reserved ahead follows a limit that changes while a session runs.
func TestHomesFollowALimitThatChanges(t *testing.T) {
	var cfg Config
	p, there, ns, node := smallPair(t, func(c *Config) { c.Standing, cfg = -1, *c })
	u := Update{Peers: cfg.Peers, Tenants: cfg.Tenants, PSK: cfg.PSK, TLS: cfg.TLS, Standing: 8 * 16 << 10, Drain: time.Second}
	pushOf(t, p, ns, 0, randomBody(16<<10))
	if err := node.Apply(u); err != nil {
		t.Fatal(err)
	}
	pushOf(t, p, ns, 1, randomBody(16<<10))
	until(t, func() bool { return there.Stats().Reserved == 8 })
}

// A self-test of the path is one push: nothing is reserved for a next one.
func TestAProbeReservesNothingAhead(t *testing.T) {
	p, there, ns, _ := smallPair(t, nil)
	if _, _, err := p.Probe(testContext(t), "b"); err != nil {
		t.Fatal(err)
	}
	pushOf(t, p, ns, 0, randomBody(16<<10))
	until(t, func() bool { return there.Stats().Reserved >= standingHomes })
	if st := there.Stats(); st.Reserved != standingHomes || st.ReservedBytes > 2*standingHomes*16<<10 {
		t.Errorf("%d slots and %d bytes are reserved", st.Reserved, st.ReservedBytes)
	}
}
