package engine_test

import (
	"strings"
	"testing"
	"time"

	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// An engine that begins a frame and does not end it, in silence or with a byte now and
// then, is told so, and its place is free. One that is silent between two frames stays.
func TestAFrameThatAnEngineBeginsEnds(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, e *engine.Config) { e.Limits.FrameTime = 30 * time.Millisecond })
	silent, _ := n.join(t, member{agent: 9, inc: 1})
	ping := message(link.TypePing, 3, link.Empty{})
	for name, stalls := range map[string]func(r *raw){
		"10 bytes of a header":  func(r *raw) { r.write(ping[:10]) },
		"behind a whole frame":  func(r *raw) { r.write(append(ping, ping[:len(ping)-1]...)) },
		"a byte now and then":   func(r *raw) { drip(r, message(link.TypeHas, 5, link.Has{Items: make([]link.Want, 4000)})) },
		"the middle of payload": func(r *raw) { r.write(message(link.TypeHas, 5, link.Has{Items: make([]link.Want, 4000)})[:100_000]) },
	} {
		for _, r := range []*raw{n.greeted(t), first(n.join(t, member{agent: 1, inc: 1}))} {
			stalls(r)
			if e := r.refusedWith(wire.CodeNoProgress); !strings.Contains(e.Text, "of a frame") || !strings.Contains(e.Text, "within 30ms") {
				t.Errorf("%s: %q", name, e.Text)
			}
			r.c.Close()
			n.wait(1)
		}
	}
	if _, e := silent.ask(7, message(link.TypePing, 7, link.Empty{})); e.Code != wire.CodeOK {
		t.Errorf("an engine that was silent between two frames: END %s", e.Code)
	}
}

func first(r *raw, _ []byte) *raw { return r }

// drip sends b byte by byte, until the daemon has enough of it.
func drip(r *raw, b []byte) {
	for i := range b {
		if _, err := r.c.Write(b[i : i+1]); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
