package agent

import (
	"errors"
	"testing"

	"meridian/adapters/link"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// A pull whose memory is still written after it failed: its slots stay out of
// use until the fabric is quiet, then everything returns and the block comes.
func TestMemoryThatAFabricMayStillWriteIsQuarantined(t *testing.T) {
	world := synthetic.New(synthetic.Options{})
	late, err := world.Join("late", 1, synthetic.Fault{Kind: synthetic.Late, Op: synthetic.OpPull, Times: 3})
	if err != nil {
		t.Fatal(err)
	}
	a := startNode(t, shortDir(t), "a", offloads+"fabric = \"nixl-synth\"\nwrite_through = true\n", world).engine(t)
	n := startNode(t, shortDir(t), "b", offloads+"fabric = \"nixl-synth\"\n", late)
	n.ready(t)
	b := n.engine(t)
	keys := a.keys("k", 3)
	a.put(t, keys, 32<<10, wire.OutputCritical, 0)
	for i, err := range b.fetch(t, keys) {
		if err == nil {
			t.Errorf("block %d arrived though its pull was late", i)
		}
	}
	if n := late.Stats().Hits[synthetic.Late.String()]; n != 3 {
		t.Fatalf("%d late pulls, want 3", n)
	}
	n.quietNow(t)
	if st := late.Stats(); st.Reused != 0 || st.LateDone != 3 {
		t.Errorf("%d of %d late writes met memory that was in use again", st.Reused, st.LateDone)
	}
	b.mustFetch(t, keys)
}

// A push that fails late still reads its source: the block is not evicted under
// it, and stays in the arena.
func TestASourceThatAFabricMayStillReadIsPinned(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{{Kind: synthetic.Late, Op: synthetic.OpPush, Times: 4}}})
	n := startNode(t, shortDir(t), "one", offloads+"fabric = \"nixl-synth\"\n", f)
	n.ready(t)
	e := n.engine(t)
	keys := think(t, e, 4)
	until(t, "the pushes have failed", func() bool { return f.Stats().LateDone == 4 })
	n.quietNow(t)
	if st := f.Stats(); st.Reused != 0 {
		t.Errorf("%d late reads met another block's bytes", st.Reused)
	}
	e.mustFetch(t, keys)
	if n := n.store.Stats().Offloaded; n != 0 {
		t.Errorf("%d slots were freed without a copy", n)
	}
}

// A fabric that refuses every push: the blocks go to the next that the routes
// allow, and the fallback is counted.
func TestAnOffloadFailsOverToTheNextRoute(t *testing.T) {
	dir := shortDir(t)
	full := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{{Kind: synthetic.Full, Op: synthetic.OpPush}}})
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	decode := startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill")+
		"[[route]]\nfabric = \"nixl-synth\"\n"+offloads+"fabric = \"link\"\n", full)
	until(t, "the peer is there", func() bool { return decode.node.Group().Usable(wire.Namespace{}) == nil })
	b := decode.engine(t)
	keys := think(t, b, 4)
	until(t, "the blocks are at the peer", func() bool { return decode.store.Stats().Offloaded == 4 })
	for _, k := range keys {
		if v, err := decode.store.Stat(k); v.Where.Fabric != linkFabric {
			t.Errorf("the copy is at %q (%v), want the link", v.Where.Fabric, err)
		}
	}
	if v, _ := decode.series(t, `meridian_fabric_fallbacks_total{used="link",wanted="nixl-synth"}`); v != "4" {
		t.Errorf("%q fallbacks were counted, want 4", v)
	}
	b.mustFetch(t, keys)
	decode.quietNow(t)
}

// A copy counts for as long as the incarnation lives that has it.
func TestACopyAtAnEarlierIncarnationIsNone(t *testing.T) {
	prefill, decode := pair(t)
	e, asker := prefill.engine(t), decode.engine(t)
	keys := e.keys("prompt", 1)
	e.put(t, keys, 64<<10, wire.OutputCritical, 0)
	it := []fabric.Item{{NS: asker.ns, Key: keys[0]}}
	decode.node.Peer("prefill").Find(t.Context(), it)
	if it[0].Err != nil {
		t.Fatal(it[0].Err)
	}
	at := func(inc uint64) blocks.Loc {
		ref := wire.RefOf(it[0].H)
		ref.Inc = inc
		return blocks.Loc{Fabric: linkFabric, H: ref.Handle()}
	}
	for name, c := range map[string]struct {
		loc  blocks.Loc
		want bool
	}{
		"nowhere":                {blocks.Loc{}, false},
		"at the peer":            {at(prefill.id.incarnation), true},
		"at its earlier life":    {at(prefill.id.incarnation - 1), false},
		"on a persistent fabric": {blocks.Loc{Fabric: synthetic.Label, H: [32]byte{1}}, true},
	} {
		if got := decode.mover.Copied(c.loc); got != c.want {
			t.Errorf("a copy %s: %v, want %v", name, got, c.want)
		}
	}
}

// aggressive_think_eviction needs neither a fabric nor disagg.enabled.
func TestAggressiveEvictionFreesThinkBlocksAtExitThink(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "[kv_memory]\ncapacity_bytes = \"16MiB\"\naggressive_think_eviction = true\n")
	e := n.engine(t)
	prompt := e.keys("prompt", 2)
	e.put(t, prompt, 64<<10, wire.OutputCritical, 0)
	keys := think(t, e, 3)
	until(t, "the think blocks are gone", func() bool {
		for _, k := range keys {
			if _, err := n.store.Stat(k); !errors.Is(err, wire.CodeAbsent) {
				return false
			}
		}
		return true
	})
	e.mustFetch(t, prompt)
	if n.mover.OffloadStats().Blocks != 0 {
		t.Error("evicted blocks were offloaded")
	}
}

// One fabric in two daemons: the end of one does not end it for the other.
func TestAFabricOfTwoDaemonsOutlivesEither(t *testing.T) {
	f := synthetic.New(synthetic.Options{})
	text := offloads + "fabric = \"nixl-synth\"\n"
	first := startNode(t, shortDir(t), "first", text, f)
	second := startNode(t, shortDir(t), "second", text, f)
	second.ready(t)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	e := second.engine(t)
	keys := think(t, e, 4)
	until(t, "the other still offloads", func() bool { return second.store.Stats().Offloaded == 4 })
	e.mustFetch(t, keys)
}

// The peer group is no fabric that is ready while none of its peers is.
func TestTheGroupOfPeersIsReadyWithOneOfThem(t *testing.T) {
	alone := startNode(t, shortDir(t), "decode", dialler("tcp://127.0.0.1:1", "prefill"))
	f, _ := alone.fabrics.Get(linkFabric)
	if err := f.(fabric.Gate).Usable(wire.Namespace{}); !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("without a peer: %v", err)
	}
	_, decode := pair(t)
	f, _ = decode.fabrics.Get(linkFabric)
	if err := f.(fabric.Gate).Usable(wire.Namespace{}); err != nil {
		t.Errorf("with one: %v", err)
	}
	if p := decode.node.Peers()[0]; p.State != link.StateReady {
		t.Errorf("peer %s", p.State)
	}
}
