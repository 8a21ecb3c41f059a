package openai

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// endless emits until somebody stops it.
func endless() *fake {
	return &fake{generate: func(ctx context.Context, _ *Request, emit func(Token) error) (Result, error) {
		for {
			if err := emit(Token{Bytes: []byte("tick ")}); err != nil {
				return Result{}, err
			}
			if err := ctx.Err(); err != nil {
				return Result{}, err
			}
		}
	}}
}

// In a bubble a goroutine that outlives its test fails it, and time passes only
// when all wait: the timeouts are the real ones.

func TestClientsThatNeverReadAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFront(t, Config{Backend: endless()}), newMemory()
		_, stop := startServer(f, m)
		conns := make([]net.Conn, 200)
		for i := range conns {
			c, err := begin(m, streamed+"}")
			if err != nil {
				t.Fatal(err)
			}
			conns[i] = c
		}
		synctest.Wait()
		if s := f.Stats(); s.Active != DefaultMaxRequests || s.Total != 200 || s.Slow != 0 {
			t.Errorf("with all of them waiting: %+v", s)
		}
		time.Sleep(DefaultWriteTimeout + time.Second)
		synctest.Wait()
		// 64 had a place, the others would not even read that they have none.
		if s := f.Stats(); s.Active != 0 || s.Slow != 200 || s.Total != 200 {
			t.Errorf("afterwards: %+v", s)
		}
		for _, c := range conns {
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Errorf("the connection was not closed: %v", err)
			}
			_ = c.Close()
		}
		stop()
	})
}

func TestAClientThatReadsSlowlyGetsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFront(t, Config{Backend: saying(words("a", "b", "c")...)}), newMemory()
		_, stop := startServer(f, m)
		c, err := begin(m, streamed+"}")
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for b := make([]byte, 64); !strings.Contains(all.String(), "[DONE]"); {
			time.Sleep(DefaultWriteTimeout / 20)
			n, err := c.Read(b)
			if err != nil {
				t.Fatalf("%v after %q", err, all.String())
			}
			all.Write(b[:n])
		}
		_ = c.Close()
		stop()
	})
}

// A client that reads a little of each write just in time does not hold what answers it
// for each write anew.
func TestAClientThatReadsNowAndThenIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFront(t, Config{Backend: endless()}), newMemory()
		_, stop := startServer(f, m)
		c, err := begin(m, streamed+"}")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for b := make([]byte, 1<<10); err == nil && time.Since(began) < 10*DefaultWriteTimeout; _, err = c.Read(b) {
			time.Sleep(DefaultWriteTimeout / 3)
		}
		synctest.Wait()
		if took, s := time.Since(began), f.Stats(); took > (patience+1)*DefaultWriteTimeout || s.Slow != 1 || s.Active != 0 {
			t.Errorf("it was answered for %v, %+v", took, s)
		}
		_ = c.Close()
		stop()
	})
}

// answerOn reads one answer from a bare connection.
func answerOn(t *testing.T, c net.Conn) (status int, body []byte) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func TestSendersThatNeverEndAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFront(t, Config{Backend: endless()}), newMemory()
		_, stop := startServer(f, m)
		silent, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		half, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(half, "POST "+chatPath+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		unread, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(unread, "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if status, _ := answerOn(t, unread); status != http.StatusNotFound {
			t.Errorf("a body that nobody wants and that never comes: %d", status)
		}
		if b, err := io.ReadAll(silent); err != nil || len(b) != 0 {
			t.Errorf("a client that sends nothing: %q, %v", b, err)
		}
		status, body := answerOn(t, half)
		if e := errorIn(t, body); status != http.StatusRequestTimeout || e.Code != "request_timeout" {
			t.Errorf("half a body: %d %+v", status, e)
		}
		synctest.Wait()
		if s := f.Stats(); s.Active != 0 || s.Status[408] != 1 {
			t.Errorf("%+v", s)
		}
		_, _, _ = silent.Close(), half.Close(), unread.Close()
		stop()
	})
}

// The time of a body is over when the body is there, and an earlier answer's
// time to be written is not the next one's.
func TestTimesOfOneRequestDoNotEndAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fake{generate: func(ctx context.Context, _ *Request, _ func(Token) error) (Result, error) {
			time.Sleep(BodyTimeout + DefaultWriteTimeout)
			return Result{Finish: "stop"}, ctx.Err()
		}}
		mux, m := http.NewServeMux(), newMemory()
		mux.Handle("/", newFront(t, Config{Backend: b}))
		mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(DefaultWriteTimeout)
			w.WriteHeader(http.StatusNoContent)
		})
		_, stop := startServer(mux, m)
		h := m.client()
		for _, path := range []string{chatPath, "/other", chatPath} {
			time.Sleep(DefaultWriteTimeout)
			resp, err := h.Post("http://localhost"+path, "application/json", strings.NewReader(hello+"}"))
			if err != nil || resp.StatusCode >= 300 {
				t.Fatalf("%s: %v %v", path, resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		h.CloseIdleConnections()
		stop()
	})
}

func TestTooManyRequestsAreTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := &fake{generate: func(context.Context, *Request, func(Token) error) (Result, error) {
			<-release
			return Result{Finish: "stop"}, nil
		}}
		f, m := newFront(t, Config{Backend: b, MaxRequests: 2}), newMemory()
		_, stop := startServer(f, m)
		h := m.client()
		statuses := make(chan int, 2)
		for range 2 {
			go func() {
				resp, err := h.Post("http://localhost"+chatPath, "application/json", strings.NewReader(hello+"}"))
				if err != nil {
					statuses <- 0
					return
				}
				_ = resp.Body.Close()
				statuses <- resp.StatusCode
			}()
		}
		synctest.Wait()
		resp, err := h.Post("http://localhost"+chatPath, "application/json", strings.NewReader(hello+"}"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if e := errorIn(t, body); resp.StatusCode != 429 || e.Code != "too_many_requests" || e.Type != typeRate || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%d %v %+v", resp.StatusCode, resp.Header, e)
		}
		if r, err := h.Get("http://localhost/v1/models"); err != nil || r.StatusCode != 200 {
			t.Errorf("a full node does not say what it serves: %v", err)
		} else {
			_ = r.Body.Close()
		}
		close(release)
		if a, b := <-statuses, <-statuses; a != 200 || b != 200 {
			t.Errorf("%d, %d", a, b)
		}
		synctest.Wait()
		if s := f.Stats(); s.Active != 0 {
			t.Errorf("%+v", s)
		}
		h.CloseIdleConnections()
		stop()
	})
}

// A body that never comes has no place among the requests that are answered.
func TestBodiesThatNeverComeKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFront(t, Config{Backend: saying(words("yes")...), MaxRequests: 2}), newMemory()
		_, stop := startServer(f, m)
		var conns []net.Conn
		for range 200 {
			c, err := m.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, "POST "+chatPath+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{"); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		synctest.Wait()
		h := m.client()
		resp, err := h.Post("http://localhost"+chatPath, "application/json", strings.NewReader(hello+"}"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		synctest.Wait()
		if s := f.Stats(); resp.StatusCode != http.StatusOK || s.Active != 0 {
			t.Errorf("a request beside 200 whose bodies do not come: %d, %+v", resp.StatusCode, s)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		h.CloseIdleConnections()
		stop()
	})
}

// A client that goes away ends the generation within two tokens, whether the
// backend is at a token or still at the prompt, and over real sockets.
func TestADisconnectCancels(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		tokens int // before the client goes
	}{
		"stream": {streamed + "}", 1}, "stream, at the prompt": {streamed + "}", 0}, "whole": {hello + "}", 1}, "whole, at the prompt": {hello + "}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			started, ended := make(chan struct{}), make(chan int, 1)
			b := &fake{generate: func(ctx context.Context, _ *Request, emit func(Token) error) (Result, error) {
				for range c.tokens {
					if err := emit(Token{Bytes: []byte("x")}); err != nil {
						t.Error(err)
					}
				}
				close(started)
				<-ctx.Done()
				n := 0
				for ; n < 10; n++ {
					if err := emit(Token{Bytes: []byte("x")}); err != nil {
						ended <- n
						return Result{}, err
					}
				}
				ended <- n
				return Result{}, ctx.Err()
			}}
			f := newFront(t, Config{Backend: b})
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := NewServer(f, slog.New(slog.DiscardHandler))
			served := make(chan error, 1)
			go func() { served <- s.Serve(ln) }()
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			r, _ := http.NewRequest("POST", "http://"+ln.Addr().String()+chatPath, strings.NewReader(c.body))
			if err := r.Write(conn); err != nil {
				t.Fatal(err)
			}
			<-started
			_ = conn.Close()
			if n := <-ended; n > 2 {
				t.Errorf("%d tokens were taken after the client had gone", n)
			}
			s.Shutdown(t.Context())
			if err := <-served; err != nil {
				t.Error(err)
			}
			if st := f.Stats(); st.Cancelled != 1 || st.Active != 0 || st.Total != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A backend that does not look at its context is stopped by emit.
func TestEmitSaysThatTheClientHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var emitted atomic.Int32
		goOn := make(chan struct{})
		b := &fake{generate: func(_ context.Context, _ *Request, emit func(Token) error) (Result, error) {
			_ = emit(Token{Bytes: []byte("x")})
			<-goOn
			for range 100 {
				if err := emit(Token{Bytes: []byte("x")}); err != nil {
					return Result{}, err
				}
				emitted.Add(1)
			}
			return Result{}, nil
		}}
		f, m := newFront(t, Config{Backend: b}), newMemory()
		_, stop := startServer(f, m)
		c, err := begin(m, streamed+"}")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		close(goOn)
		synctest.Wait()
		if n, s := emitted.Load(), f.Stats(); n > 2 || s.Cancelled != 1 || s.Active != 0 {
			t.Errorf("%d tokens, %+v", n, s)
		}
		stop()
	})
}

func TestABackendThatPanicsTakesOnlyItsConnectionAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fake{generate: func(context.Context, *Request, func(Token) error) (Result, error) { panic("oh") }}
		f, m := newFront(t, Config{Backend: b}), newMemory()
		_, stop := startServer(f, m)
		h := m.client()
		if resp, err := h.Post("http://localhost"+chatPath, "application/json", strings.NewReader(hello+"}")); err == nil {
			_ = resp.Body.Close()
			t.Error("an answer came")
		}
		b.generate = nil
		resp, err := h.Post("http://localhost"+chatPath, "application/json", strings.NewReader(hello+"}"))
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("afterwards: %v", err)
		}
		_ = resp.Body.Close()
		synctest.Wait()
		if s := f.Stats(); s.Active != 0 || s.Broken != 1 || s.Status[200] != 1 {
			t.Errorf("%+v", s)
		}
		h.CloseIdleConnections()
		stop()
	})
}

func TestShutdownLetsAnAnswerEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := &fake{generate: func(_ context.Context, _ *Request, emit func(Token) error) (Result, error) {
			_ = emit(Token{Bytes: []byte("a")})
			<-release
			return Result{Finish: "stop"}, emit(Token{Bytes: []byte("b")})
		}}
		m := newMemory()
		s, stop := startServer(newFront(t, Config{Backend: b}), m)
		answer := make(chan string)
		go func() {
			resp, err := m.client().Post("http://localhost"+chatPath, "application/json", strings.NewReader(streamed+"}"))
			if err != nil {
				answer <- err.Error()
				return
			}
			all, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			answer <- string(all)
		}()
		synctest.Wait()
		down := make(chan struct{})
		go func() { defer close(down); s.Shutdown(t.Context()) }()
		synctest.Wait()
		select {
		case <-down:
			t.Error("it did not wait")
		default:
		}
		if _, err := m.dial(t.Context(), "", ""); err == nil {
			t.Error("it takes new connections")
		}
		close(release)
		text, _ := textOf(chunksOf(t, <-answer))
		if text != "ab" {
			t.Errorf("%q", text)
		}
		<-down
		stop()
	})
}

func TestShutdownEndsWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := &fake{generate: func(ctx context.Context, r *Request, emit func(Token) error) (Result, error) {
			if r.Temperature > 0 {
				_ = emit(Token{Bytes: []byte("a")})
			}
			<-ctx.Done()
			return Result{}, ctx.Err()
		}}
		f, m := newFront(t, Config{Backend: waiting}), newMemory()
		s, stop := startServer(f, m)
		bodies := make(chan string, 2)
		for _, body := range []string{streamed + "}", hello + `,"temperature":0}`} {
			go func() {
				resp, err := m.client().Post("http://localhost"+chatPath, "application/json", strings.NewReader(body))
				if err != nil {
					bodies <- err.Error()
					return
				}
				all, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				bodies <- resp.Status + string(all)
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
		for range 2 {
			// One had begun and gets an event, the other a status.
			if b := <-bodies; !strings.Contains(b, "shutting_down") || strings.Contains(b, "[DONE]") || strings.HasPrefix(b, "200") == !strings.Contains(b, "data:") {
				t.Errorf("%s", b)
			}
		}
		if st := f.Stats(); st.Active != 0 || st.Broken != 1 || st.Status[503] != 1 {
			t.Errorf("%+v", st)
		}
		stop()
	})
}

func TestCloseEndsAWriteThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFront(t, Config{Backend: endless()}), newMemory()
		_, stop := startServer(f, m)
		c, err := begin(m, streamed+"}")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		stop()
		if took := time.Since(start); took >= DefaultWriteTimeout || f.Stats().Active != 0 {
			t.Errorf("it took %v, %+v", took, f.Stats())
		}
		_ = c.Close()
	})
}
