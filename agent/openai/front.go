package openai

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"meridian/internal/httpguard"
)

// Defaults of Config.
const (
	DefaultMaxRequests  = 64
	DefaultWriteTimeout = 30 * time.Second
	// DefaultCommentEvery is below the time after which proxies take a stream for dead, 30 s
	// or 60, and so long that most errors are known before, and have a status. Source: HTML
	// Living Standard, 9.2.7: "every 15 seconds or so".
	DefaultCommentEvery = 15 * time.Second
)

// HopHeader marks a request that another node's front has forwarded.
const HopHeader = "Meridian-Hop"

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
	modelsPath      = "/v1/models"
	healthPath      = "/health"
)

// Config says what a Front serves and whom.
type Config struct {
	Backend Backend
	Log     *slog.Logger // nil: nothing is logged

	Token   string   // bearer token that every call but /health needs; empty: none
	Hosts   []string // names or listen addresses that Host may be, beside loopback; an unspecified address allows every literal one
	Origins []string // scheme://host[:port] of web pages that may call; else none may
	Table   string   // the configuration's table with the keys hosts and origins, for refusals

	MaxRequests   int           // generations at a time; 0: DefaultMaxRequests
	MaxBackground int           // of them, those in the background; 0: all may be
	WriteTimeout  time.Duration // of each write; 0: DefaultWriteTimeout
	CommentEvery  time.Duration // how long a client's stream may be silent before it gets a comment; 0: DefaultCommentEvery
}

// Front is the HTTP handler.
type Front struct {
	cfg    Config
	guard  *httpguard.Guard
	stats  counters
	bodies Bodies
}

// New makes a Front. It fails on a Config that makes no sense.
func New(c Config) (*Front, error) {
	switch {
	case c.Backend == nil:
		return nil, errors.New("openai: Config.Backend is nil")
	case c.MaxRequests < 0 || c.MaxBackground < 0 || c.WriteTimeout < 0 || c.CommentEvery < 0:
		return nil, fmt.Errorf("openai: a limit is below 0: %d requests, %d in the background, %s a write, a comment each %s", c.MaxRequests, c.MaxBackground, c.WriteTimeout, c.CommentEvery)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MaxRequests == 0 {
		c.MaxRequests = DefaultMaxRequests
	}
	if c.MaxBackground == 0 {
		c.MaxBackground = c.MaxRequests
	}
	if c.CommentEvery == 0 {
		c.CommentEvery = DefaultCommentEvery
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = DefaultWriteTimeout
	}
	g, err := httpguard.New(httpguard.Config{Hosts: c.Hosts, Origins: c.Origins, Token: c.Token, Table: c.Table})
	if err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	return &Front{cfg: c, guard: g}, nil
}

// call is one request on its way through the front.
type call struct {
	f   *Front
	r   *http.Request
	out *writer
	id  string
}

func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	how := broken // a backend that panics leaves it so
	f.stats.begin()
	defer func() { f.stats.end(how) }()
	c := &call{f: f, r: r, out: newWriter(w, f.cfg.WriteTimeout), id: newID(r.URL.Path)}
	h := w.Header()
	h.Set("X-Request-Id", c.id)
	h.Set("X-Content-Type-Options", "nosniff")
	preflight, refused := f.guard.Check(w, r, r.URL.Path == healthPath)
	switch {
	case refused != nil:
		how = c.refuse(&Error{Status: refused.Status, Type: typeInvalid, Code: refused.Code, Message: refused.Text})
	case preflight:
		httpguard.AllowPreflight(w)
		how = http.StatusNoContent
	default:
		how = c.route()
	}
	f.cfg.Log.Debug("request", "request", c.id, "method", r.Method, "path", r.URL.Path, "ended", int(how))
}

func newID(path string) string {
	prefix := "req-"
	switch path {
	case chatPath:
		prefix = "chatcmpl-"
	case completionsPath:
		prefix = "cmpl-"
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails
	return prefix + hex.EncodeToString(b[:])
}

func (c *call) route() ending {
	path, method := c.r.URL.Path, http.MethodGet
	var serve func() ending
	switch {
	case path == chatPath:
		method, serve = http.MethodPost, func() ending { return c.generate(true) }
	case path == completionsPath:
		method, serve = http.MethodPost, func() ending { return c.generate(false) }
	case path == modelsPath:
		serve = c.models
	case strings.HasPrefix(path, modelsPath+"/"):
		serve = func() ending { return c.model(strings.TrimPrefix(path, modelsPath+"/")) }
	case path == healthPath:
		serve = c.health
	default:
		return c.refuse(&Error{Status: http.StatusNotFound, Type: typeInvalid, Code: "unknown_url",
			Message: fmt.Sprintf("%s %s is not here; there are POST %s, POST %s, GET %s and GET %s", c.r.Method, path, chatPath, completionsPath, modelsPath, healthPath)})
	}
	if c.r.Method != method {
		c.out.w.Header().Set("Allow", method)
		return c.refuse(&Error{Status: http.StatusMethodNotAllowed, Type: typeInvalid, Code: "method_not_allowed",
			Message: fmt.Sprintf("%s %s: only %s is allowed", c.r.Method, path, method)})
	}
	return serve()
}

// answered is how a request ended whose answer was written with that status.
func (c *call) answered(err error) ending {
	switch {
	case c.out.slow():
		return slow
	case c.out.err != nil:
		return cancelled
	case err != nil:
		c.f.cfg.Log.Error("an answer could not be written", "request", c.id, "err", err)
		return broken
	}
	return ending(c.out.code)
}

func (c *call) refuse(e *Error) ending { return c.answered(c.out.error(e)) }

func (c *call) generate(chat bool) ending {
	f := c.f
	if !f.stats.free(f.cfg.MaxRequests) { // a body that would be for nothing need not come
		return c.full()
	}
	a, bad := c.read(chat)
	switch {
	case bad == errGone:
		return cancelled
	case bad != nil: // also when time ran out, for which net/http ends the context
		return c.refuse(bad)
	}
	switch f.stats.enter(f.cfg.MaxRequests, f.cfg.MaxBackground, a.Background) {
	case noPlace:
		return c.full()
	case noShare:
		return c.refuse(&Error{Status: http.StatusTooManyRequests, Type: typeRate, Code: "too_many_requests",
			Message: fmt.Sprintf("%d requests in the background are being answered, which is their share of this node", f.cfg.MaxBackground)})
	case placed:
	}
	defer f.stats.leave(a.Background)
	a.ID = c.id
	ctx := c.r.Context()
	if _, err := c.find(ctx, a.Model); err != nil {
		return c.broke(err)
	}
	ans := newAnswer(a, c.out, f.cfg.Log, time.Now())
	still := c.beats(ctx, ans)
	defer still()
	res, err := f.cfg.Backend.Generate(ctx, &a.Request, func(t Token) error {
		if err := ctx.Err(); err != nil { // nothing is written before the end of an answer that goes out whole
			return err
		}
		return ans.take(t)
	})
	still()
	if err != nil && !errors.Is(err, ErrStop) {
		return c.failed(ans, err)
	}
	return c.answered(ans.finish(res))
}

func (c *call) full() ending {
	return c.refuse(&Error{Status: http.StatusTooManyRequests, Type: typeRate, Code: "too_many_requests",
		Message: fmt.Sprintf("%d requests are being answered, which is the limit of this node", c.f.cfg.MaxRequests)})
}

// read reads what is asked, before it has a place: a body that does not come has none. What is kept of it is bounded by the number of requests.
func (c *call) read(chat bool) (*ask, *Error) {
	body, bad := readBody(&c.f.bodies, c.out.w, c.r)
	if bad != nil {
		return nil, bad
	}
	defer body.Free()
	var a *ask
	body.Parse(func() { a, bad = parse(body.Bytes, chat, c.r.Header.Get(HopHeader) != "") })
	return a, bad
}

// BeatEvery is how long a stream to another node may be silent before that is shown that
// this one lives.
const BeatEvery = 500 * time.Millisecond

// beats shows signs of life in a stream while nothing else is sent, until the returned
// function is called, which waits for the last. An engine that hangs gives none, so
// that whoever waits notices.
func (c *call) beats(ctx context.Context, ans *answer) (still func()) {
	if !ans.stream {
		return func() {}
	}
	every := c.f.cfg.CommentEvery
	if ans.Hop {
		every = BeatEvery
	}
	pulse, _ := c.f.cfg.Backend.(Pulse)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		due := time.NewTimer(every)
		defer due.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-due.C:
			}
			if quiet := ans.quiet(); quiet < every {
				due.Reset(every - quiet)
				continue
			}
			due.Reset(every)
			var p Progress
			var err error
			if pulse != nil {
				p, err = pulse.Alive(ctx)
			}
			if err == nil && ctx.Err() == nil {
				ans.beat(p)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// failed ends an answer that the backend, or the client, broke off.
func (c *call) failed(ans *answer, err error) ending {
	if c.gone() {
		return c.lost()
	}
	whole, werr := ans.fail(c.seen(err))
	if how := c.answered(werr); whole || how < 0 {
		return how
	}
	return broken
}

// broke ends a request whose answer has not begun.
func (c *call) broke(err error) ending {
	if c.gone() {
		return c.lost()
	}
	return c.refuse(c.seen(err))
}

func (c *call) gone() bool {
	ctx := c.r.Context()
	return c.out.err != nil || ctx.Err() != nil && !errors.Is(context.Cause(ctx), errClosing)
}

func (c *call) lost() ending {
	if c.out.slow() {
		return slow
	}
	return cancelled
}

// seen is err as the client may see it. What it may not see goes to the log.
func (c *call) seen(err error) *Error {
	var said *Error
	switch {
	case errors.Is(context.Cause(c.r.Context()), errClosing):
		return &Error{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "shutting_down", Message: "the node is shutting down"}
	case errors.As(err, &said):
		e := visible(said)
		if e.Status >= 500 {
			c.f.cfg.Log.Warn("request failed", "request", c.id, "err", err)
		}
		return e
	case errors.Is(err, context.DeadlineExceeded):
		c.f.cfg.Log.Warn("request failed", "request", c.id, "err", err)
		return &Error{Status: http.StatusGatewayTimeout, Type: typeServer, Code: "timeout", Message: "the node did not answer in time"}
	}
	c.f.cfg.Log.Error("request failed", "request", c.id, "err", err)
	return internal()
}

// find looks a model up.
func (c *call) find(ctx context.Context, id string) (Model, error) {
	all, err := c.f.cfg.Backend.Models(ctx)
	if err != nil {
		return Model{}, err
	}
	for _, m := range all {
		if m.ID == id {
			return m, nil
		}
	}
	return Model{}, &Error{Status: http.StatusNotFound, Type: typeInvalid, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("there is no model %q here; GET %s lists those of this node", clip([]byte(id)), modelsPath)}
}

func (c *call) models() ending {
	all, err := c.f.cfg.Backend.Models(c.r.Context())
	if err != nil {
		return c.broke(err)
	}
	l := modelList{Object: "list", Data: []modelObject{}}
	for _, m := range all {
		l.Data = append(l.Data, modelObjectOf(m))
	}
	return c.answered(c.out.json(http.StatusOK, l))
}

func (c *call) model(id string) ending {
	m, err := c.find(c.r.Context(), id)
	if err != nil {
		return c.broke(err)
	}
	return c.answered(c.out.json(http.StatusOK, modelObjectOf(m)))
}

// health says whether the backend has a model to answer with.
func (c *call) health() ending {
	all, err := c.f.cfg.Backend.Models(c.r.Context())
	switch {
	case err != nil:
		return c.broke(err)
	case len(all) == 0:
		return c.refuse(&Error{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "not_ready", Message: "no model is ready"})
	}
	return c.answered(c.out.json(http.StatusOK, map[string]string{"status": "ok"}))
}
