package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// fake is a Backend that does what a test says.
type fake struct {
	generate func(ctx context.Context, r *Request, emit func(Token) error) (Result, error)
	models   func() ([]Model, error)

	mu   sync.Mutex
	last *Request
}

func (f *fake) Models(context.Context) ([]Model, error) {
	if f.models != nil {
		return f.models()
	}
	return []Model{{ID: "m", Created: 1700000000, OwnedBy: "us", Context: 4096}, {ID: "org/large", OwnedBy: "us"}}, nil
}

func (f *fake) Generate(ctx context.Context, r *Request, emit func(Token) error) (Result, error) {
	f.mu.Lock()
	f.last = r
	f.mu.Unlock()
	if f.generate == nil {
		return Result{Finish: "stop"}, nil
	}
	return f.generate(ctx, r, emit)
}

func (f *fake) asked() *Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// saying is a Backend whose answer is these tokens.
func saying(tokens ...Token) *fake {
	return &fake{generate: func(_ context.Context, _ *Request, emit func(Token) error) (Result, error) {
		r := Result{Finish: "stop", Prompt: 5, Cached: 3}
		for _, t := range tokens {
			r.Completion++
			if t.Thinking {
				r.Thinking++
			}
			if err := emit(t); err != nil {
				if err == ErrStop {
					return r, nil
				}
				return r, err
			}
		}
		return r, nil
	}}
}

// words are tokens with ids from 0 up.
func words(texts ...string) []Token {
	out := make([]Token, len(texts))
	for i, s := range texts {
		out[i] = Token{ID: int32(i), Bytes: []byte(s)}
	}
	return out
}

func newFront(t testing.TB, c Config) *Front {
	t.Helper()
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// post sends a body to a front without a network.
func post(t testing.TB, h http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	return ask1(t, h, http.MethodPost, path, body, header...)
}

func ask1(t testing.TB, h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Host = "localhost:8080"
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// errorIn is the error object of a body; the test fails if there is none.
func errorIn(t testing.TB, body []byte) *Error {
	t.Helper()
	var b struct {
		Error struct {
			Message, Type string
			Param, Code   *string
		}
	}
	if err := json.Unmarshal(body, &b); err != nil || b.Error.Message == "" || b.Error.Type == "" {
		t.Fatalf("no error object (%v): %s", err, body)
	}
	for _, member := range []string{`"param":`, `"code":`} {
		if !bytes.Contains(body, []byte(member)) {
			t.Errorf("%s is missing in %s", member, body)
		}
	}
	e := &Error{Message: b.Error.Message, Type: b.Error.Type}
	if b.Error.Param != nil {
		e.Param = *b.Error.Param
	}
	if b.Error.Code != nil {
		e.Code = *b.Error.Code
	}
	return e
}

// dataOf are the events of a stream, which must be framed exactly.
func dataOf(t testing.TB, body string) []string {
	t.Helper()
	var out []string
	for body != "" {
		event, rest, ok := strings.Cut(body, "\n\n")
		data, isData := strings.CutPrefix(event, "data: ")
		if !ok || !isData || strings.Contains(data, "\n") {
			t.Fatalf("not an event: %q", event)
		}
		out = append(out, data)
		body = rest
	}
	return out
}

// chunksOf are the chunks of a whole stream.
func chunksOf(t testing.TB, body string) []Chunk {
	t.Helper()
	data := dataOf(t, body)
	if len(data) == 0 || data[len(data)-1] != "[DONE]" {
		t.Fatalf("the stream does not end in [DONE]: %q", body)
	}
	out := make([]Chunk, len(data)-1)
	for i := range out {
		if err := json.Unmarshal([]byte(data[i]), &out[i]); err != nil {
			t.Fatalf("%v in %s", err, data[i])
		}
	}
	return out
}

// textOf joins what a stream of chat chunks or completion chunks says.
func textOf(chunks []Chunk) (text, reasoning string) {
	for _, c := range chunks {
		for _, o := range c.Choices {
			if o.Text != nil {
				text += *o.Text
			}
			if o.Delta != nil && o.Delta.Content != nil {
				text += *o.Delta.Content
			}
			if o.Delta != nil && o.Delta.ReasoningContent != nil {
				reasoning += *o.Delta.ReasoningContent
			}
		}
	}
	return text, reasoning
}

// memory is a listener whose connections have no buffer at all: a write blocks
// until the other side reads.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), done: make(chan struct{})} }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.once.Do(func() { close(m.done) }); return nil }
func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

func (m *memory) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case m.conns <- theirs:
		return ours, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

// client is an HTTP client whose connections go to m.
func (m *memory) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: m.dial}}
}

// startServer serves h at m; stop ends it and waits.
func startServer(h http.Handler, m *memory) (s *Server, stop func()) {
	s = NewServer(h, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- s.Serve(m) }()
	return s, func() {
		s.Close()
		<-done
	}
}

// begin sends a request over a bare connection and does not read.
func begin(m *memory, body string) (net.Conn, error) {
	c, err := m.dial(context.Background(), "", "")
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(http.MethodPost, "http://localhost"+chatPath, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return c, r.Write(c)
}

// jsonOf is v in JSON.
func jsonOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const hello = `{"model":"m","messages":[{"role":"user","content":"hi"}]`
