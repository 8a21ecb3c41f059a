package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Bounds of what a client takes that is not a stream.
const (
	maxListBody  = 1 << 20
	maxErrorBody = 64 << 10
	// maxTail is what may follow [DONE], and tailTime how long it may take, if the
	// connection is to be used again.
	maxTail  = 4 << 10
	tailTime = 100 * time.Millisecond
)

// ErrSilent is of a server that has sent no line for ClientConfig.Silence.
var ErrSilent = errors.New("openai: the server has given no sign of life")

// ErrStuck is of a server that has sent no chunk for ClientConfig.Stuck, whatever
// signs of life it gave.
var ErrStuck = errors.New("openai: the server lives and sends nothing of the answer")

// ErrStalled is of a node that has shown no progress for ClientConfig.Stalled,
// whatever signs of life it gave.
var ErrStalled = errors.New("openai: the node lives and makes no progress")

// ErrCut is of a stream that ended without its [DONE].
var ErrCut = errors.New("openai: the stream ended before [DONE]")

// ClientConfig says where a server of the API is.
type ClientConfig struct {
	URL   string       // such as http://127.0.0.1:8080, with or without /v1
	Token string       // bearer token; empty: none
	HTTP  *http.Client // nil: one that follows no redirect

	// Silence bounds the time between two lines of a stream, the first included. A
	// node that forwards requests sends comments meanwhile. 0: no bound.
	Silence time.Duration
	// Stuck bounds the time between two chunks, the first included: signs of life do
	// not count. 0: no bound.
	Stuck time.Duration
	// Stalled bounds the time between two chunks, the first included, in which the
	// comments of another node tell of no progress, beyond what it says that its step
	// may take, at most MaxWait. 0: no bound.
	Stalled time.Duration
}

// Client calls a server of the API. It is safe for use by many goroutines.
type Client struct {
	url     string
	token   string
	http    *http.Client
	silence time.Duration
	stuck   time.Duration
	stalled time.Duration
}

// NewClient makes a Client. A URL that is none shows with the first call.
func NewClient(c ClientConfig) *Client {
	if c.HTTP == nil {
		c.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &Client{url: c.URL, token: c.Token, http: c.HTTP, silence: c.Silence, stuck: c.Stuck, stalled: c.Stalled}
}

// Call is a generation: Body is what goes out as JSON, and must ask for a stream.
type Call struct {
	Path string // /v1/chat/completions or /v1/completions
	Body any
	Hop  bool // this node forwards a request
}

// Stream runs a call and gives each chunk to fn, from this goroutine; a chunk is
// fn's to keep. An error that fn returns ends the call, and Stream returns it. What the server
// refuses comes as *Error, an early end as ErrCut, and anything else as the
// error of the connection.
func (c *Client) Stream(ctx context.Context, call Call, fn func(*Chunk) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	life := &silence{bound: c.silence, why: ErrSilent, end: cancel}
	answer := &silence{bound: c.stuck, why: ErrStuck, end: cancel}
	work := NewWatchdog(c.stalled, func() { cancel(ErrStalled) })
	defer life.hush()
	defer answer.hush()
	defer work.Stop()
	err := c.stream(ctx, call, life, answer, work, fn)
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, ErrSilent) || errors.Is(cause, ErrStuck) || errors.Is(cause, ErrStalled)) {
		return cause
	}
	return err
}

// silence ends a call whose server says nothing, or nothing that counts, for too
// long while somebody listens.
type silence struct {
	bound time.Duration // 0: none
	why   error
	end   context.CancelCauseFunc
	timer *time.Timer
}

// listen begins anew.
func (s *silence) listen() {
	switch {
	case s.bound == 0:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.bound, func() { s.end(s.why) })
	default:
		s.timer.Reset(s.bound)
	}
}

// hush: nobody listens.
func (s *silence) hush() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (c *Client) stream(ctx context.Context, call Call, life, chunks *silence, work *Watchdog, fn func(*Chunk) error) error {
	body, err := json.Marshal(call.Body)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	req, err := c.request(ctx, http.MethodPost, call.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	if call.Hop {
		req.Header.Set(HopHeader, "1")
	}
	life.listen()
	chunks.listen()
	work.Begin()
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != "text/event-stream" {
		return fmt.Errorf("openai: %s answers with %q, which is no event stream", c.url, resp.Header.Get("Content-Type"))
	}
	e := newEvents(resp.Body)
	e.heard = func(line []byte) {
		life.listen()
		if p, ok := aliveIn(line); ok {
			work.Saw(p)
		}
	}
	for {
		life.listen()
		chunks.listen()
		work.Begin()
		data, err := e.next()
		life.hush()
		chunks.hush()
		work.Stop()
		switch {
		case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
			return ErrCut
		case err != nil:
			return err
		case string(data) == "[DONE]":
			over := time.AfterFunc(tailTime, end)
			defer over.Stop()
			_, _ = io.CopyN(io.Discard, e.r, maxTail) // so that the connection can be used again
			return nil
		}
		chunk, err := parseChunk(data)
		if err != nil {
			return err
		}
		if err := fn(chunk); err != nil {
			return err
		}
	}
}

// parseChunk is one event of a stream, which may be an error.
func parseChunk(data []byte) (*Chunk, error) {
	var c struct {
		Chunk
		Error *errorObject `json:"error"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("openai: an event of the stream is not what it should be: %w", err)
	}
	if c.Error != nil {
		return nil, c.Error.as(http.StatusInternalServerError) // the status was sent long ago
	}
	return &c.Chunk, nil
}

// Models lists the server's models.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	req, err := c.request(ctx, http.MethodGet, modelsPath, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxListBody))
	if err != nil {
		return nil, err
	}
	var l modelList
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("openai: the list of models of %s: %w", c.url, err)
	}
	out := make([]Model, len(l.Data))
	for i, m := range l.Data {
		out[i] = Model{ID: m.ID, Created: m.Created, OwnedBy: m.OwnedBy, Context: m.MaxModelLen}
	}
	return out, nil
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	if u, err := url.Parse(c.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("openai: %q is no http:// or https:// URL", c.url)
	}
	base := strings.TrimSuffix(strings.TrimRight(c.url, "/"), "/v1")
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err == nil && c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, err
}

// do is for answers with status 200 only; the caller closes their body.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what came of it is shown
	return nil, ErrorOf(resp.StatusCode, b)
}
