package engine_test

import (
	"errors"
	"io"
	"testing"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// Connections that say nothing, or no more than HELLO, take no engine's place: who
// comes next is served, and the oldest silent one is told why it had to go.
func TestSilentConnectionsLockNoEngineOut(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Sessions = 4 })
	first := n.raw(t)
	for range 63 {
		n.raw(t)
	}
	e, err := client.DialEngine(ctx, n.path, client.Options{})
	if err != nil {
		t.Fatalf("the next engine: %v", err)
	}
	defer e.Close()
	if _, err := e.Open(ctx, manifest("acme")); err != nil {
		t.Errorf("the next engine opens: %v", err)
	}
	f, err := first.read()
	for err == nil && f.f.Type != link.TypeError {
		f, err = first.read()
	}
	if errors.Is(err, io.EOF) {
		t.Fatal("the oldest silent connection sees the end, and not why")
	}
	if err != nil {
		t.Fatal(err)
	}
	if m, _ := link.Parse[link.Error](f.p); m.Code != wire.CodeTooMany || m.Text == "" {
		t.Errorf("the oldest silent connection is told %v %q, want TOO_MANY", m.Code, m.Text)
	}
}
