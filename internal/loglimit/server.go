package loglimit

import (
	"context"
	"log"
	"log/slog"
)

// ServerLog is the ErrorLog of an http.Server. What it says of connections becomes
// records of one message: its texts hold addresses, and the limit counts by message.
func ServerLog(h slog.Handler, level slog.Level) *log.Logger {
	return slog.NewLogLogger(serverLog{h}, level)
}

type serverLog struct{ slog.Handler }

func (s serverLog) Handle(ctx context.Context, r slog.Record) error {
	one := slog.NewRecord(r.Time, r.Level, "http connection", 0)
	one.AddAttrs(slog.String("text", r.Message))
	return s.Handler.Handle(ctx, one)
}
