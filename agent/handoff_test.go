package agent

import (
	"context"
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

// handedOff is a daemon with blocks that wait for a peer, and the peer.
func handedOff(t *testing.T) (prefill, decode *testNode, p, d *testEngine, keys []wire.Key) {
	t.Helper()
	dir := shortDir(t)
	prefill = startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	decode = startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill"))
	until(t, "the peer is ready", func() bool { return decode.node.Group().Usable(wire.Namespace{}) == nil })
	p, d = prefill.loader(t, 1), decode.engine(t)
	req, err := p.Begin(t.Context(), client.Begin{Model: "m", Prompt: []int32{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	keys = p.keys("prompt", 5)
	for _, err := range p.Put(t.Context(), p.blocks(keys, 64<<10, wire.OutputCritical, req)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if text, err := p.Handoff(t.Context(), req, time.Minute); err != nil || !strings.HasPrefix(text, "5 blocks are kept") {
		t.Fatalf("HANDOFF: %q, %v", text, err)
	}
	return prefill, decode, p, d, keys
}

// A daemon that leaves lets its peer pull what was handed off to it, and then leaves.
func TestADrainWaitsForBlocksThatAPeerIsToPull(t *testing.T) {
	prefill, _, p, d, keys := handedOff(t)
	drained := make(chan error, 1)
	go func() { drained <- prefill.Drain(t.Context()) }()
	until(t, "it drains", p.Draining)
	d.mustFetch(t, keys[:4])
	select {
	case err := <-drained:
		t.Fatalf("it has not waited for the last block: %v", err)
	default:
	}
	d.mustFetch(t, keys[4:])
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if st := prefill.store.Stats(); st.Pins != 0 || st.PinsEnded[blocks.PinPulled] != 5 {
		t.Errorf("%d pins, ended %v", st.Pins, st.PinsEnded)
	}
}

// It waits for no peer that is not there, and no longer than it may.
func TestADrainDoesNotWaitForAPeerThatDoesNotPull(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		prefill, decode, _, _, _ := handedOff(t)
		if err := decode.Close(); err != nil {
			t.Fatal(err)
		}
		if err := prefill.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("idle", func(t *testing.T) {
		prefill, _, _, _, _ := handedOff(t)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := prefill.Drain(ctx); err != nil {
			t.Error(err)
		}
		if !strings.Contains(prefill.log.String(), "no peer has pulled") {
			t.Error("the log does not say that blocks are pinned still")
		}
	})
}
