package agent

import (
	"context"
	"io"
	"log/slog"

	"meridian/agent/config"
	"meridian/internal/loglimit"
)

// NewLogger makes the daemon's logger from its configuration.
func NewLogger(w io.Writer, c config.Agent, level *slog.LevelVar) *slog.Logger {
	level.Set(c.LogLevel)
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// logLimited writes a record whose kind is named, where level, message and peer do
// not tell kinds apart. How many records of a kind are written is decided in
// loglimit, as for every record of the daemon.
func (a *Agent) logLimited(level slog.Level, kind, msg string, args ...any) {
	a.log.Log(loglimit.WithKind(context.Background(), kind), level, msg, args...)
}
