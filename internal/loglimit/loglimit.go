package loglimit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// DefaultBurst is how many records of one kind are written in each Every where
	// nothing else is configured.
	DefaultBurst = 10
	// Every is how long one account of a kind lasts.
	Every = time.Minute
	// MaxKinds bounds the kinds that are told apart at the same time.
	MaxKinds = 1024
)

// subjects are the attributes that tell records with the same message apart. Their
// values come from the configuration, not from strangers.
var subjects = []string{"peer", "path"}

// Handler passes on a bounded number of records. Handlers that come of it by
// WithAttrs and WithGroup share its account.
type Handler struct {
	next    slog.Handler
	account *account
	subject string // of WithAttrs
	group   bool   // an attribute is not the record's own any more
}

// New puts a limit in front of next: burst records of a kind in each Every. A next
// that is limited already is returned as it is, so that the receiver of a logger may
// make sure of a limit.
func New(next slog.Handler, burst int) *Handler {
	if h, ok := next.(*Handler); ok {
		return h
	}
	return &Handler{next: next, account: &account{burst: burst, kinds: map[string]*kind{}}}
}

// Logger is a logger with a limit.
func Logger(l *slog.Logger, burst int) *slog.Logger { return slog.New(New(l.Handler(), burst)) }

// SetBurst changes how many records of a kind are written in each Every, of those
// that h is derived from too.
func (h *Handler) SetBurst(n int) {
	h.account.mu.Lock()
	defer h.account.mu.Unlock()
	h.account.burst = n
}

// LeftOut is how many records were not written until now.
func (h *Handler) LeftOut() uint64 {
	h.account.mu.Lock()
	defer h.account.mu.Unlock()
	return h.account.total
}

type kindKey struct{}

// WithKind names the kind of the records that are logged with the context, in
// place of their level, message and peer.
func WithKind(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, kindKey{}, name)
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	d := *h
	d.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		if slices.Contains(subjects, a.Key) && !h.group {
			d.subject = a.Value.String()
		}
	}
	return &d
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	d := *h
	d.next, d.group = h.next.WithGroup(name), true
	return &d
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !h.account.allow(h.kindOf(ctx, r), h.next, r) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// kindOf is the name of the record's kind.
func (h *Handler) kindOf(ctx context.Context, r slog.Record) string {
	if name, ok := ctx.Value(kindKey{}).(string); ok {
		return name
	}
	subject := h.subject
	r.Attrs(func(a slog.Attr) bool {
		found := slices.Contains(subjects, a.Key)
		if found {
			subject = a.Value.String()
		}
		return !found
	})
	return r.Level.String() + " " + r.Message + "\x00" + subject
}

// Flush writes what has been left out until now, of every kind: at the end of a
// program nobody waits for the rest of Every.
func (h *Handler) Flush() {
	a := h.account
	a.mu.Lock()
	names := make([]string, 0, len(a.kinds))
	for name := range a.kinds {
		names = append(names, name)
	}
	a.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		a.end(name)
	}
}

// account counts what was written and left out.
type account struct {
	burst int

	mu    sync.Mutex
	total uint64 // left out
	kinds map[string]*kind
	swept time.Time
}

// kind is one kind of record in the current Every.
type kind struct {
	since   time.Time
	written int
	left    int
	next    slog.Handler // of the last record that was left out
	level   slog.Level
	message string
	timer   *time.Timer // runs while something is left out
}

// allow says whether a record may be written now.
func (a *account) allow(name string, next slog.Handler, r slog.Record) bool {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.kinds[name]
	if k == nil && len(a.kinds) >= MaxKinds {
		a.forget(now)
		if len(a.kinds) >= MaxKinds {
			name = r.Level.String()
			r.Message = "log lines of more kinds than are counted apart"
			k = a.kinds[name]
		}
	}
	if k == nil {
		k = &kind{since: now}
		a.kinds[name] = k
	}
	if now.Sub(k.since) >= Every && k.left == 0 {
		k.since, k.written = now, 0
	}
	if k.written < a.burst {
		k.written++
		return true
	}
	k.left++
	a.total++
	k.next, k.level, k.message = next, r.Level, r.Message
	if k.timer == nil {
		k.timer = time.AfterFunc(k.since.Add(Every).Sub(now), func() { a.end(name) })
	}
	return false
}

// forget drops kinds whose time is over and of which nothing was left out. It
// looks at all of them, so it does so ten times in each Every at most.
func (a *account) forget(now time.Time) {
	if now.Sub(a.swept) < Every/10 {
		return
	}
	a.swept = now
	for name, k := range a.kinds {
		if k.left == 0 && now.Sub(k.since) >= Every {
			delete(a.kinds, name)
		}
	}
}

// end closes a kind's account, and says how many records were left out.
func (a *account) end(name string) {
	now := time.Now()
	a.mu.Lock()
	k := a.kinds[name]
	if k == nil || k.left == 0 {
		a.mu.Unlock()
		return
	}
	k.timer.Stop()
	delete(a.kinds, name)
	a.mu.Unlock()
	r := slog.NewRecord(now, k.level, fmt.Sprintf("%s: and %d more", k.message, k.left), 0)
	r.AddAttrs(slog.Int("more", k.left), slog.Duration("within", now.Sub(k.since).Round(time.Millisecond)))
	_ = k.next.Handle(context.Background(), r)
}
