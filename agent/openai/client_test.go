package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	const stream = "\n: comment\ndata: one\n\nevent: x\nid: 7\nretry: 1\ndata:two\r\n\r\ndata: a\ndata: b\ndata\n\nfuture: y\n\ndata:  space\n\ndata: cut off"
	e := newEvents(byBytes(stream))
	var got []string
	for {
		d, err := e.next()
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			break
		}
		got = append(got, string(d))
	}
	if want := []string{"one", "two", "a\nb\n", " space"}; fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// byBytes gives one byte a Read.
func byBytes(s string) io.Reader { return &oneByte{s} }

type oneByte struct{ s string }

func (o *oneByte) Read(p []byte) (int, error) {
	if o.s == "" {
		return 0, io.EOF
	}
	p[0], o.s = o.s[0], o.s[1:]
	return 1, nil
}

// repeat gives the same bytes for ever.
type repeat string

func (r repeat) Read(p []byte) (int, error) {
	n := 0
	for n+len(r) <= len(p) {
		n += copy(p[n:], r)
	}
	return n, nil
}

func TestAServerCannotMakeTheClientGatherWithoutBound(t *testing.T) {
	for name, r := range map[string]io.Reader{"one line": repeat("x"), "many lines": repeat("data: x\n"), "a comment": repeat(":")} {
		if _, err := newEvents(r).next(); !errors.Is(err, ErrEventTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := newEvents(strings.NewReader("data: " + strings.Repeat("x", MaxEvent-8) + "\n\n"))
	if d, err := e.next(); err != nil || len(d) != MaxEvent-8 {
		t.Errorf("an event within the bound: %d bytes, %v", len(d), err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {}\n\n"))
	f.Add([]byte(": x\r\ndata\r\n\r\ndata: [DONE]\n\n"))
	f.Add([]byte(`data: {"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1}]}}],"meridian":{"token_id":1}}` + "\n\n"))
	f.Add([]byte(`data: {"choices":[{"text":"a","logprobs":{"tokens":["bytes:\\x0g"],"top_logprobs":[{"b":1}]}}],"usage":{}}` + "\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := newEvents(strings.NewReader(string(b)))
		s := &remoteStream{emit: func(Token) error { return nil }}
		for total := 0; ; {
			d, err := e.next()
			if err != nil {
				if err != io.EOF {
					t.Fatal(err)
				}
				return
			}
			if total += len(d); total > len(b) {
				t.Fatalf("%d bytes of events from %d", total, len(b))
			}
			if c, err := parseChunk(d); err == nil {
				if err := s.chunk(c); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func serveText(t *testing.T, status int, contentType, body string) *Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return NewClient(ClientConfig{URL: s.URL + "/v1/"})
}

func TestTheClientSaysWhatWentWrong(t *testing.T) {
	const sse = "text/event-stream; charset=utf-8"
	for _, c := range []struct {
		name              string
		status            int
		contentType, body string
		check             func(error) bool
	}{
		{"done", 200, sse, "data: {}\n\ndata: [DONE]\n\n", func(err error) bool { return err == nil }},
		{"cut", 200, sse, "data: {}\n\n", func(err error) bool { return errors.Is(err, ErrCut) }},
		{"cut in an event", 200, sse, "data: [DONE]\n", func(err error) bool { return errors.Is(err, ErrCut) }},
		{"not JSON", 200, sse, "data: {\n\n", func(err error) bool { return err != nil && !errors.Is(err, ErrCut) }},
		{"not a stream", 200, "application/json", "{}", func(err error) bool { return err != nil && strings.Contains(err.Error(), "application/json") }},
		{"error event", 200, sse, `data: {"error":{"message":"m","type":"t","param":null,"code":"c"}}` + "\n\n", func(err error) bool {
			var e *Error
			return errors.As(err, &e) && e.Code == "c" && e.Message == "m"
		}},
		{"status", 429, "application/json", `{"error":{"message":"m","type":"t","param":"p","code":"c"}}`, func(err error) bool {
			var e *Error
			return errors.As(err, &e) && e.Status == 429 && e.Param == "p"
		}},
		{"redirect", 302, "text/plain", "", func(err error) bool {
			var e *Error
			return errors.As(err, &e) && e.Status == 500 && e.Message == "Found"
		}},
		{"long", 200, sse, "data: " + strings.Repeat("x", MaxEvent) + "\n\n", func(err error) bool { return errors.Is(err, ErrEventTooLong) }},
	} {
		err := serveText(t, c.status, c.contentType, c.body).Stream(t.Context(), Call{Path: chatPath, Body: map[string]any{}}, func(*Chunk) error { return nil })
		if !c.check(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, url := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "unix:///x"} {
		if _, err := NewClient(ClientConfig{URL: url}).Models(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", url)) {
			t.Errorf("%q: %v", url, err)
		}
	}
	mine := errors.New("mine")
	err := serveText(t, 200, sse, "data: {}\n\ndata: [DONE]\n\n").Stream(t.Context(), Call{Path: chatPath}, func(*Chunk) error { return mine })
	if err != mine {
		t.Errorf("fn's error: %v", err)
	}
}

func TestTheClientShowsItsToken(t *testing.T) {
	s := httptest.NewServer(newFront(t, Config{Backend: saying(), Token: "t"}))
	defer s.Close()
	if m, err := NewClient(ClientConfig{URL: s.URL, Token: "t"}).Models(t.Context()); err != nil || len(m) != 2 || m[0] != (Model{"m", 1700000000, "us", 4096}) {
		t.Errorf("%+v, %v", m, err)
	}
	var e *Error
	if _, err := NewClient(ClientConfig{URL: s.URL}).Models(t.Context()); !errors.As(err, &e) || e.Status != 401 {
		t.Errorf("%v", err)
	}
}

func TestOneConnectionServesManyStreams(t *testing.T) {
	f := newFront(t, Config{Backend: saying(words("a")...)})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.ServeHTTP(w, r)
		select { // the end of the answer comes after [DONE], as it may on a network
		case <-r.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}))
	defer s.Close()
	dials := 0
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	defer transport.CloseIdleConnections()
	c := NewRemote(ClientConfig{URL: s.URL, HTTP: &http.Client{Transport: transport}})
	for range 5 {
		if _, err := c.Generate(t.Context(), &Request{Model: "m", Prompt: "x", TopP: 1, LogProbs: -1}, func(Token) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections for 5 streams", dials)
	}
}

// tripper answers without a network.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that goes on after [DONE], or keeps silent, has answered all the same.
func TestWhatFollowsTheEndOfAStreamIsNotWaitedFor(t *testing.T) {
	for name, after := range map[string]func(r *http.Request, w *io.PipeWriter){
		"silence": func(*http.Request, *io.PipeWriter) {},
		"a comment each second": func(r *http.Request, w *io.PipeWriter) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, ": alive\n\n")
				select {
				case <-r.Context().Done():
				case <-time.After(time.Second):
				}
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := NewClient(ClientConfig{URL: "http://server", HTTP: &http.Client{Transport: tripper(func(r *http.Request) (*http.Response, error) {
				body, w := io.Pipe()
				go func() {
					_, _ = io.WriteString(w, "data: [DONE]\n\n")
					after(r, w)
				}()
				context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
			})}})
			began := time.Now()
			if err := c.Stream(t.Context(), Call{Path: chatPath}, func(*Chunk) error { return nil }); err != nil || time.Since(began) != tailTime {
				t.Errorf("%s: %v after %v, want an answer after %v", name, err, time.Since(began), tailTime)
			}
		})
	}
}
