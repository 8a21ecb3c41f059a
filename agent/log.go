package agent

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"meridian/agent/config"
)

// logEvery is how often one kind of warning may be written; what was left out
// is counted in the next one.
const logEvery = time.Second

// NewLogger makes the daemon's logger from its configuration.
func NewLogger(w io.Writer, c config.Agent, level *slog.LevelVar) *slog.Logger {
	level.Set(c.LogLevel)
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// logLimiter remembers when each kind of warning was last written. Kinds are
// constants of this package with names of the config or bounded labels, so there
// are few.
type logLimiter struct {
	mu   sync.Mutex
	last map[string]time.Time
	left map[string]int
}

// allow says whether kind may be written now, and how many were left out.
func (l *logLimiter) allow(kind string, now time.Time) (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last, l.left = map[string]time.Time{}, map[string]int{}
	}
	if now.Sub(l.last[kind]) < logEvery {
		l.left[kind]++
		return false, 0
	}
	n := l.left[kind]
	l.last[kind], l.left[kind] = now, 0
	return true, n
}

// logLimited writes at most one record of a kind each logEvery.
func (a *Agent) logLimited(level slog.Level, kind, msg string, args ...any) {
	ok, left := a.limited.allow(kind, time.Now())
	if !ok {
		return
	}
	if left > 0 {
		args = append(args, "left_out", left)
	}
	a.log.Log(context.Background(), level, msg, args...)
}
