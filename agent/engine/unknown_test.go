package engine_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
)

// A request of a model that nobody knows is followed, counted, and told once a name; an
// engine that makes names up is told of so many, and no more.
func TestAModelThatNobodyKnowsIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) {
		c.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	e, _ := n.open(t)
	lines := func(model string) {
		t.Helper()
		if _, err := e.Begin(ctx, client.Begin{Model: model}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		lines("nobody-1")
	}
	lines("qwen3-8b") // of a family that is built in
	for i := range 100 {
		lines(fmt.Sprint("made-up-", i))
	}
	if got := n.srv.Stats().Scheduler.UnknownModel; got != 103 {
		t.Errorf("%d requests of models that nobody knows are counted, want 103", got)
	}
	e.Close()
	n.wait(1)
	text := out.String()
	if got := strings.Count(text, "nobody-1"); got != 1 {
		t.Errorf("nobody-1 is told %d times", got)
	}
	if got := strings.Count(text, "is not known"); got != 32 || strings.Contains(text, "qwen3") {
		t.Errorf("%d lines, want 32:\n%s", got, text)
	}
}
