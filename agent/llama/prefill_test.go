package llama

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/agent/openai"
)

// down is a node whose llama-server does not run.
func down(ctx context.Context) *Node {
	return &Node{cfg: Config{Agent: "a", Name: "m"}, log: slog.New(slog.DiscardHandler), run: ctx, changed: make(chan struct{}), down: errors.New("it hangs")}
}

func prefillOf(n *Node, method, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+PrefillPath, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	n.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	return w
}

// A node whose llama-server hangs shows its partner no life.
func TestANodeWithoutAServerGivesNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := down(ctx)
		if w := prefillOf(n, http.MethodGet, ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "it hangs") {
			t.Errorf("asked whether it could: %d %s", w.Code, w.Body)
		}
		w := prefillOf(n, http.MethodPost, `{"model":"m","tokens":[1]}`, "Accept", linesType)
		if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "alive") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func TestAPrefillEndsWithItsAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asker, leave := context.WithTimeout(ctx, time.Second)
		defer leave()
		r := httptest.NewRequestWithContext(asker, http.MethodPost, "http://localhost"+PrefillPath, strings.NewReader(`{"model":"m","tokens":[1]}`))
		r.Header.Set("Accept", linesType)
		began := time.Now()
		down(ctx).Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it went on for %v", took)
		}
	})
}

func TestOnlyPrefillRequestsAreTaken(t *testing.T) {
	n := down(t.Context())
	for _, c := range []struct {
		method, body, host string
		status             int
	}{
		{http.MethodDelete, "", "", 405}, {http.MethodPost, "{", "", 400}, {http.MethodPost, `{"nonsense":1}`, "", 400}, {http.MethodPost, `[]`, "", 400},
		{http.MethodPost, `{"tokens":[` + strings.Repeat("1,", maxPrefillBody/2) + `1]}`, "", 400},
	} {
		if w := prefillOf(n, c.method, c.body); w.Code != c.status {
			t.Errorf("%s %.20s: %d %s", c.method, c.body, w.Code, w.Body)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "http://evil.example"+PrefillPath, strings.NewReader("{}"))
	w := httptest.NewRecorder()
	n.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "llama.hosts") {
		t.Errorf("a rebound name: %d %s", w.Code, w.Body)
	}
}

// Prompts whose last bytes never come have bounded memory together, and keep out nobody
// who sends his.
func TestPrefillsThatNeverEndHaveBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := down(ctx)
		h := n.Handler(http.NotFoundHandler())
		long := `{"tokens":[` + strings.Repeat("1000000,", maxPrefillTokens-10)
		var answers []*httptest.ResponseRecorder
		var outs []*io.PipeWriter
		var all sync.WaitGroup
		for range 2 * openai.MaxBodies / maxPrefillBody {
			body, out := io.Pipe()
			outs = append(outs, out)
			w := httptest.NewRecorder()
			answers = append(answers, w)
			all.Go(func() {
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost"+PrefillPath, body))
				_ = body.Close()
			})
			all.Go(func() { _, _ = io.WriteString(out, long) })
		}
		synctest.Wait()
		// Those that wait have taken in what was sent; the others were refused on the way.
		if refused := count429(answers); refused < len(answers)/2 || refused == len(answers) {
			t.Errorf("%d of %d were refused", refused, len(answers))
		}
		time.Sleep(time.Second) // of the bubble
		w := prefillOf(n, http.MethodPost, long[:len(long)-1]+"]}")
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("one that ends: %d %s", w.Code, w.Body)
		}
		for _, out := range outs {
			_ = out.Close()
		}
		all.Wait()
	})
}

func count429(answers []*httptest.ResponseRecorder) (n int) {
	for _, w := range answers {
		if w.Code == http.StatusTooManyRequests {
			n++
		}
	}
	return n
}

func TestPrefillsOfTooManyTokensAreRefusedBeforeTheyAreParsed(t *testing.T) {
	_, err := parsePrefill([]byte(`{"tokens":[` + strings.Repeat("1,", maxPrefillTokens) + `1]}`))
	if err == nil || !strings.Contains(err.Error(), "1048577 members") {
		t.Error(err)
	}
	q, err := parsePrefill([]byte(`{"model":"m","tokens":[1,2,3]}`))
	if err != nil || !slices.Equal(q.Tokens, []int32{1, 2, 3}) || cap(q.Tokens) != 4 {
		t.Errorf("%v %d, %v", q.Tokens, cap(q.Tokens), err)
	}
}

// deaf is an asker that reads nothing: a write ends with its deadline only.
type deaf struct {
	http.ResponseWriter
	until time.Time
	timer *time.Timer // of the deadline; nil: there is none
}

func (d *deaf) SetWriteDeadline(t time.Time) error {
	d.timer = time.NewTimer(time.Until(t))
	return nil
}

func (d *deaf) Write([]byte) (int, error) {
	if d.timer == nil {
		return 0, errors.New("a write without a deadline")
	}
	d.until = <-d.timer.C
	return 0, os.ErrDeadlineExceeded
}

// An asker that does not read its answer holds it for so long, and no longer.
func TestAnAskerThatDoesNotReadHoldsNothing(t *testing.T) {
	body := `{"model":"m","tokens":[1]}`
	for name, ask := range map[string]func(n *Node, w http.ResponseWriter){
		"whether it could": func(n *Node, w http.ResponseWriter) {
			n.servePrefill(w, httptest.NewRequest(http.MethodGet, PrefillPath, nil))
		},
		"at once": func(n *Node, w http.ResponseWriter) {
			n.servePrefill(w, httptest.NewRequest(http.MethodPost, PrefillPath, strings.NewReader(body)))
		},
		"in lines": func(n *Node, w http.ResponseWriter) {
			r := httptest.NewRequest(http.MethodPost, PrefillPath, strings.NewReader(body))
			r.Header.Set("Accept", linesType)
			n.servePrefill(w, r)
		},
		"a line": func(_ *Node, w http.ResponseWriter) {
			if err := (&lines{w: w}).send(prefillLine{Alive: true}); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := &deaf{ResponseWriter: httptest.NewRecorder()}
				ask(down(ctx), w)
				if w.until.IsZero() {
					t.Error("nothing was written, or without a deadline")
				}
			})
		})
	}
}
