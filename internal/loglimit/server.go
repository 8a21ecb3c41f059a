package loglimit

import (
	"context"
	"log/slog"
)

// Server is the handler for the ErrorLog of an http.Server (slog.NewLogLogger).
// What that says of connections becomes records of one message: its texts hold
// addresses, and the limit counts by message.
func Server(h slog.Handler) slog.Handler { return serverLog{h} }

type serverLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (s serverLog) Handle(ctx context.Context, r slog.Record) error {
	one := slog.NewRecord(r.Time, r.Level, "http connection", 0)
	one.AddAttrs(slog.String("text", r.Message))
	return s.Handler.Handle(ctx, one)
}
