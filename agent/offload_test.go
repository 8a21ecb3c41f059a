package agent

import (
	"testing"

	"meridian/fabric/synthetic"
	"meridian/wire"
)

// think runs one reasoning request to its end and returns its think blocks.
func think(t *testing.T, e *testEngine, n int) []wire.Key {
	t.Helper()
	keys := e.keys("think", n)
	thinkOf(t, e, keys, 64<<10)
	return keys
}

const offloads = "[disagg]\nenabled = true\n"

func TestThinkBlocksLeaveForThePeerAndComeBackWhole(t *testing.T) {
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	decode := startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill")+offloads+"fabric = \"link\"\n")
	decode.ready(t)
	b := decode.engine(t)
	keys := think(t, b, 6) // a batch of 4, and a remainder
	until(t, "all think blocks are offloaded", func() bool { return decode.mover.OffloadStats().Blocks == 6 })
	until(t, "their slots are free", func() bool { return decode.store.Stats().OffloadedBytes == 6*64<<10 })
	for _, k := range keys {
		if v, err := prefill.store.Stat(k); err != nil || v.Seg == 0 {
			t.Fatalf("block %s at the peer: %+v, %v", k, v, err)
		}
	}
	b.mustFetch(t, keys)
	decode.quietNow(t)
	prefill.quietNow(t)
}

func TestThinkBlocksLeaveForTheSyntheticFabric(t *testing.T) {
	n := startNode(t, shortDir(t), "one", offloads+"fabric = \"nixl-synth\"\n", synthetic.New(synthetic.Options{}))
	n.ready(t)
	e := n.engine(t)
	keys := think(t, e, 5)
	until(t, "all think blocks are offloaded", func() bool { return n.store.Stats().Offloaded == 5 })
	e.mustFetch(t, keys)
}

// Prompt blocks are on the fabric by the time their PUT is acknowledged.
func TestWriteThroughComesBeforeTheAcknowledgement(t *testing.T) {
	world := synthetic.New(synthetic.Options{})
	other, err := world.Join("other", 1)
	if err != nil {
		t.Fatal(err)
	}
	through := offloads + "fabric = \"nixl-synth\"\nwrite_through = true\n"
	a := startNode(t, shortDir(t), "a", through, world).engine(t)
	b := startNode(t, shortDir(t), "b", offloads+"fabric = \"nixl-synth\"\n", other).engine(t)
	keys := a.keys("prompt", 5)
	a.put(t, keys, 32<<10, wire.OutputCritical, 0)
	b.mustFetch(t, keys)
	a.mustFetch(t, keys)
}

// Without a peer to go to, blocks stay where they are, and nothing is lost.
func TestAnOffloadWithoutARouteLeavesTheBlocks(t *testing.T) {
	n := startNode(t, shortDir(t), "decode", dialler("tcp://127.0.0.1:1", "prefill")+offloads+"fabric = \"link\"\n")
	e := n.engine(t)
	keys := think(t, e, 4)
	until(t, "the failure is counted", func() bool {
		v, ok := n.series(t, `meridian_failures_total{reason="UNREACHABLE"}`)
		return ok && v != "0"
	})
	e.mustFetch(t, keys)
	if n.store.Stats().Offloaded != 0 {
		t.Error("a slot was freed without a copy")
	}
	n.quietNow(t)
}
