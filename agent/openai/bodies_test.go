package openai

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/halfopen"
)

// reader is a server that reads bodies, and says how long they were.
func reader(b *Bodies, limit int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := b.Read(w, r, limit)
		if err != nil {
			WriteError(w, err)
			return
		}
		defer body.Free()
		_, _ = fmt.Fprint(w, len(body.Bytes))
	})
}

// sender sends a body of which the last byte is withheld until the returned function is
// called, which returns the answer.
func sender(t *testing.T, h http.Handler, size int, from string, known bool) (end func() *httptest.ResponseRecorder) {
	t.Helper()
	body, out := io.Pipe()
	r := httptest.NewRequest(http.MethodPost, "http://localhost"+chatPath, body)
	r.RemoteAddr = from
	if known {
		r.ContentLength = int64(size)
	}
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(&deadlines{w, body}, r)
		_ = body.CloseWithError(io.ErrClosedPipe)
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(out, strings.Repeat("x", size-1))
	}()
	return func() *httptest.ResponseRecorder {
		<-sent
		_, _ = io.WriteString(out, "x")
		_ = out.Close()
		<-done
		return w
	}
}

// deadlines is a ResponseWriter whose read deadline ends the body.
type deadlines struct {
	http.ResponseWriter
	body *io.PipeReader
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	return d.body.CloseWithError(errors.New("the time is over"))
}

func (b *Bodies) heldNow() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

func TestBodiesHaveBoundedMemoryTogether(t *testing.T) {
	for _, known := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const size, most = 100 << 10, 1 << 20
			b := &Bodies{most: most}
			h := reader(b, size)
			ends := make([]func() *httptest.ResponseRecorder, 200)
			for i := range ends {
				ends[i] = sender(t, h, size, "192.0.2.1:1", known)
			}
			synctest.Wait()
			if n := b.heldNow(); n > most || n < most/2 {
				t.Errorf("length known %v: %d bytes are held by 200 bodies whose last byte is missing, of %d", known, n, most)
			}
			var whole, refused int
			for _, end := range ends {
				switch w := end(); {
				case w.Code == http.StatusOK && w.Body.String() == fmt.Sprint(size):
					whole++
				case w.Code == http.StatusTooManyRequests && strings.Contains(w.Body.String(), "1048576 bytes together") && w.Header().Get("Connection") == "close":
					refused++
				default:
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
			if whole < most/(2*size) || whole+refused != len(ends) {
				t.Errorf("length known %v: %d were read, %d refused", known, whole, refused)
			}
			if n := b.heldNow(); n != 0 || b.under.Len() != 0 {
				t.Errorf("afterwards %d bytes and %d bodies are held", n, b.under.Len())
			}
		})
	}
}

// A body whose end does not come is ended for one that comes, and so is one whose bytes
// trickle; a short one needs nobody's place.
func TestABodyThatDoesNotEndMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100 << 10
		b := &Bodies{most: 2*(size+1-freeBody) + 1}
		h := reader(b, size)
		slow := sender(t, h, size, "192.0.2.1:1", true)
		synctest.Wait()
		other := sender(t, h, size, "192.0.2.2:1", true)
		synctest.Wait()
		if w := sender(t, h, 1000, "192.0.2.3:1", true)(); w.Code != http.StatusOK {
			t.Errorf("a short one: %d %s", w.Code, w.Body)
		}
		if w := sender(t, h, size, "192.0.2.3:1", true)(); w.Code != http.StatusTooManyRequests {
			t.Errorf("while both may still send: %d %s", w.Code, w.Body)
		}
		time.Sleep(halfopen.Patience)
		if w := sender(t, h, size, "192.0.2.3:1", true)(); w.Code != http.StatusOK {
			t.Errorf("after their time: %d %s", w.Code, w.Body)
		}
		if w := slow(); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "did not come") {
			t.Errorf("the oldest: %d %s", w.Code, w.Body)
		}
		if w := other(); w.Code != http.StatusOK {
			t.Errorf("the other: %d %s", w.Code, w.Body)
		}
		if n := b.heldNow(); n != 0 || b.under.Len() != 0 {
			t.Errorf("afterwards %d bytes and %d bodies are held", n, b.under.Len())
		}
	})
}

// Over a connection: the read that waits is ended, and the client is told.
func TestAConnectionWhoseBodyMadeRoomIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100 << 10
		b, m := &Bodies{most: size}, newMemory()
		_, stop := startServer(reader(b, size), m)
		slow, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(slow, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size-1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(halfopen.Patience)
		h := m.client()
		resp, err := h.Post("http://localhost/", "application/json", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if status, body := answerOn(t, slow); resp.StatusCode != http.StatusOK || status != http.StatusTooManyRequests {
			t.Errorf("%d, and the one that made room: %d %s", resp.StatusCode, status, body)
		}
		if rest, err := io.ReadAll(slow); err != nil || len(rest) > 0 {
			t.Errorf("its connection goes on: %q, %v", rest, err)
		}
		_ = slow.Close()
		h.CloseIdleConnections()
		stop()
	})
}

func TestLongBodiesAreParsedAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Bodies
		var now, most atomic.Int32
		var wg sync.WaitGroup
		for range 5 * parsesAtATime {
			wg.Go(func() {
				r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", freeBody+1)))
				body, err := b.Read(httptest.NewRecorder(), r, MaxBody)
				if err != nil {
					t.Error(err)
					return
				}
				defer body.Free()
				body.Parse(func() {
					n := now.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					time.Sleep(time.Second) // of the bubble
					now.Add(-1)
				})
			})
		}
		wg.Wait()
		if n := most.Load(); n != parsesAtATime {
			t.Errorf("%d at a time, want %d", n, parsesAtATime)
		}
	})
}
