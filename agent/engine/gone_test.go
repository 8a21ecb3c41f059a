package engine_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire/link"
)

// warnings keeps the messages of records above Info.
type warnings struct {
	slog.Handler
	mu   *sync.Mutex
	list *[]string
}

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelInfo {
		w.mu.Lock()
		defer w.mu.Unlock()
		*w.list = append(*w.list, r.Message)
	}
	return w.Handler.Handle(ctx, r)
}

// Which of the daemon's writes meets the closed socket is left to chance, so
// many engines try.
func TestAnEngineThatClosesWithAnswersOnTheirWayIsNoWarning(t *testing.T) {
	w := warnings{Handler: slog.DiscardHandler, mu: new(sync.Mutex), list: new([]string)}
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Sessions = 1000 })
	cfg := n.cfg
	cfg.Path += "2"
	cfg.Log = slog.New(w)
	srv, err := engine.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve() }()
	second := &node{path: cfg.Path}
	for range 100 {
		r := second.greeted(t)
		var pings []byte
		for i := range 50 {
			pings = append(pings, message(link.TypePing, uint64(2*i+1), link.Empty{})...)
		}
		r.write(pings)
		_ = r.c.Close()
	}
	srv.Close()
	<-served
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(*w.list) > 0 {
		t.Errorf("%d warnings, such as %q", len(*w.list), (*w.list)[0])
	}
}
