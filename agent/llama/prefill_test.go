package llama

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
