package agent

import (
	"strings"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/blocks"
	"meridian/wire"
)

// A prefill node hands a request off; the decode node pulls its blocks over the link, and
// each pull ends the pin of its block. The rest waits.
func TestAPeersPullEndsAHandoff(t *testing.T) {
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	decode := startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill"))
	until(t, "the peer is ready", func() bool { return decode.node.Group().Usable(wire.Namespace{}) == nil })
	p, d := prefill.loader(t, 1), decode.engine(t)
	req, err := p.Begin(t.Context(), client.Begin{Model: "m", Prompt: []int32{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	keys := p.keys("prompt", 5)
	b := p.blocks(keys, 64<<10, wire.OutputCritical, req)
	for i := range b {
		b[i].Auto, b[i].Pos, b[i].Pin = true, uint32(16*i), time.Minute
	}
	for _, err := range p.Put(t.Context(), b) {
		if err != nil {
			t.Fatal(err)
		}
	}
	d.mustFetch(t, keys[:1]) // while prefill goes on
	until(t, "a pull is noted", func() bool { return prefill.store.Stats().PinsEnded[blocks.PinPulled] == 1 })
	text, err := p.Handoff(t.Context(), req, time.Minute)
	if err != nil || !strings.HasPrefix(text, "4 blocks are kept for 1m0s, 1 were pulled already") {
		t.Fatalf("HANDOFF: %q, %v", text, err)
	}
	d.mustFetch(t, keys[1:4])
	until(t, "each pull is noted", func() bool { return prefill.store.Stats().Pins == 1 })
	if v, err := prefill.store.Stat(keys[4]); err != nil || v.Pins != 1 {
		t.Errorf("the block that nobody pulled: %d pins, %v", v.Pins, err)
	}
	_ = p.Close()
	until(t, "the engine's pins go with it", func() bool { return prefill.store.Stats().Pins == 0 })
}
