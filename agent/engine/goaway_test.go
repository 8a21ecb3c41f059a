package engine_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire/link"
)

// stuff sends requests and reads no answer until the daemon reads no more: it is
// then busy writing to this engine.
func (r *raw) stuff() {
	r.t.Helper()
	ping := message(link.TypePing, 1, link.Empty{})
	var many []byte
	for range 512 {
		many = append(many, ping...)
	}
	for {
		_ = r.c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := r.c.Write(many)
		if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
			return
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			r.t.Fatal(err)
		}
		many = append(many[n:len(many):len(many)], many[:n]...) // goes on where a frame was cut
	}
}

// Engines that read nothing hold up neither the GOAWAY of the others nor the end
// of a drain in which nothing is in flight.
func TestAnEngineThatReadsNothingDelaysNobodysGoAway(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.SendTimeout = time.Hour })
	for range 3 {
		n.greeted(t).stuff()
	}
	var good []*raw
	for range 3 {
		good = append(good, n.greeted(t))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- n.srv.Drain(ctx) }()
	for _, r := range good {
		_ = r.c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if f := r.next(); f.f.Type != link.TypeGoAway {
			t.Errorf("%s, want GOAWAY", f.f.Type)
		}
	}
	if err := <-drained; err != nil {
		t.Errorf("Drain with nothing in flight: %v", err)
	}
}
