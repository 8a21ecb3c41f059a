package llama_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/agent/llama"
	"meridian/agent/llama/pair"
	"meridian/agent/openai"
)

// childOf is the llama-server of a node.
func childOf(t *testing.T, n *pair.Node) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); strings.Contains(string(b), "(llama-server)") && len(f) > 1 && f[1] == strconv.Itoa(n.Pid()) {
			pid, err := strconv.Atoi(strings.Fields(string(b))[0])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// series reads one series of a node's metrics, or the sum of those that begin so.
// One with labels appears with its first event, and is 0 before.
func series(t *testing.T, n *pair.Node, name string) float64 {
	t.Helper()
	resp, err := http.Get(n.Ports["http"][0] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// patience is how long what needs many answers of a model may take on a busy machine.
const patience = 4 * time.Minute

// eventually waits until f says nothing more.
func eventually(t *testing.T, f func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		why := f()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(why)
		}
		<-tick.C
	}
}

// idle says what a node still holds for requests.
func idle(t *testing.T, n *pair.Node) string {
	for _, name := range []string{`meridian_llama_slots{state="busy"}`, "meridian_llama_front_active_requests", "meridian_leases", "meridian_reservations",
		"meridian_phase_router_tracked_requests", "meridian_leaked"} {
		if v := series(t, n, name); v != 0 {
			return fmt.Sprintf("%s: %s is %g", n.Name, name, v)
		}
	}
	return ""
}

func TestFaultsEndTheirOwnRequestOrFallBackToLocalPrefill(t *testing.T) {
	p := startPair(t, nil)
	t.Run("llama-server dies in the middle of a prefill", func(t *testing.T) { dieInPrefill(t, p) })
	t.Run("llama-server dies at any moment", func(t *testing.T) { dieAnywhere(t, p) })
	t.Run("a client that goes away", func(t *testing.T) { clientGone(t, p) })
	t.Run("clients that never read", func(t *testing.T) { neverRead(t, p) })
	t.Run("prompts that cannot be", func(t *testing.T) { badPrompts(t, p) })
	t.Run("the prefill node is killed", func(t *testing.T) { prefillGone(t, p) })
}

func dieInPrefill(t *testing.T, p *pair.Pair) {
	body := map[string]any{"prompt": words(900, "lighthouse"), "max_tokens": 4}
	failed := make(chan error)
	go func() {
		_, err := ask(t, p.Decode, true, body)
		failed <- err
	}()
	eventually(t, func() string {
		if series(t, p.Decode, `meridian_llama_slots{state="busy"}`) == 0 {
			return "the request has no slot"
		}
		return ""
	})
	before := series(t, p.Decode, "meridian_llama_restarts_total")
	child := childOf(t, p.Decode)
	if child == 0 {
		t.Fatal("no process of the node is called llama-server")
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Errorf("the request, which no client had seen a token of, ended with %v; want it tried again", err)
	}
	if after := series(t, p.Decode, "meridian_llama_restarts_total"); after != before+1 {
		t.Errorf("%g restarts, want one more than %g", after, before)
	}
	eventually(t, func() string { return idle(t, p.Decode) })
}

// dieAnywhere kills the decode node's llama-server at moments spread over the
// restore, the decoding and the save of a request.
func dieAnywhere(t *testing.T, p *pair.Pair) {
	for i := range 4 {
		body := map[string]any{"prompt": words(300, "station"), "max_tokens": 20 + i}
		done := make(chan error, 1)
		go func() {
			_, err := ask(t, p.Decode, false, body)
			done <- err
		}()
		restored := series(t, p.Decode, "meridian_llama_decoded_tokens_total")
		eventually(t, func() string {
			if series(t, p.Decode, "meridian_llama_decoded_tokens_total") < restored+float64(i*6) && len(done) == 0 {
				return "the request does not come that far"
			}
			return ""
		})
		if pid := childOf(t, p.Decode); pid != 0 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		var said *openai.Error
		if err := <-done; err != nil && (!errors.As(err, &said) || said.Code != "engine_down" && said.Status != http.StatusInternalServerError) {
			t.Errorf("round %d: %v; want an answer, or an error that says that the engine is down", i, err)
		}
	}
	mustAsk(t, p.Decode, false, map[string]any{"prompt": words(300, "station"), "max_tokens": 4})
	eventually(t, func() string { return idle(t, p.Decode) })
}

func clientGone(t *testing.T, p *pair.Pair) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := 0
	body := map[string]any{"model": "smollm2", "prompt": words(40, "bell"), "max_tokens": 1500, "stream": true}
	err := openai.NewClient(openai.ClientConfig{URL: p.Decode.URL}).Stream(ctx, openai.Call{Path: "/v1/completions", Body: body}, func(*openai.Chunk) error {
		if seen++; seen == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the client's own end came as %v", err)
	}
	eventually(t, func() string { return idle(t, p.Decode) })
	if n := series(t, p.Decode, `meridian_llama_requests_total{outcome="cancelled"}`); n == 0 {
		t.Error("no request counts as cancelled")
	}
}

func neverRead(t *testing.T, p *pair.Pair) {
	const sessions = 200
	addr := strings.TrimPrefix(p.Decode.URL, "http://")
	body := `{"model":"smollm2","prompt":"a","max_tokens":4,"stream":true}`
	request := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
	conns := make([]net.Conn, 0, sessions)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range sessions {
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				_, err = io.WriteString(c, request)
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		})
	}
	wg.Wait()
	mustAnswer(t, p.Prefill) // the other node is not disturbed
	eventually(t, func() string { return idle(t, p.Decode) })
	mustAnswer(t, p.Decode)
}

func mustAnswer(t *testing.T, n *pair.Node) {
	t.Helper()
	eventually(t, func() string {
		a, err := ask(t, n, true, map[string]any{"prompt": "b", "max_tokens": 2})
		var said *openai.Error
		if errors.As(err, &said) && said.Status == http.StatusTooManyRequests {
			return "still too many requests"
		}
		if err != nil || len(a.ids) == 0 {
			t.Fatalf("%s: %v, %+v", n.Name, err, a)
		}
		return ""
	})
}

func badPrompts(t *testing.T, p *pair.Pair) {
	for _, c := range []struct {
		name string
		body map[string]any
		code string
	}{
		{"above the context", map[string]any{"prompt": words(4000, "x")}, "context_length_exceeded"},
		{"a token above the vocabulary", map[string]any{"prompt": []int{1, 2, 1 << 20}}, "invalid_value"},
		{"NUL", map[string]any{"prompt": "a\x00b"}, ""},
		{"another model", map[string]any{"prompt": "a", "model": "other"}, "model_not_found"},
	} {
		for _, n := range []*pair.Node{p.Prefill, p.Decode} {
			_, err := ask(t, n, false, c.body)
			var said *openai.Error
			if !errors.As(err, &said) || said.Status < 400 || said.Status >= 500 || c.code != "" && said.Code != c.code {
				t.Errorf("%s at %s: %v; want a refusal with code %q", c.name, n.Name, err, c.code)
			}
		}
	}
	for _, body := range []string{`{`, `{"model":"smollm2","tokens":[1],"namespace":"00"}`, `{"model":"smollm2","tokens":"x"}`, `[]`} {
		resp, err := http.Post(p.Prefill.URL+"/meridian/v1/prefill", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusConflict {
			t.Errorf("prefill of %s: %s %s", body, resp.Status, b)
		}
	}
}

func TestNoWebPageMayAskForAPrefill(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "http://localhost"+llama.PrefillPath, strings.NewReader("{}"))
	r.Header.Set("Origin", "http://evil.example")
	new(llama.Node).Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "evil.example") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func prefillGone(t *testing.T, p *pair.Pair) {
	body := map[string]any{"prompt": words(700, "harbour"), "max_tokens": 4, "logprobs": 0}
	done := make(chan answer)
	// Its llama-server stands still, so that the prefill is not over before the node is
	// killed.
	if err := syscall.Kill(childOf(t, p.Prefill), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	go func() { done <- mustAsk(t, p.Decode, false, body) }()
	eventually(t, func() string {
		if series(t, p.Prefill, `meridian_llama_prefills_total{by="served"}`) == 0 || series(t, p.Prefill, `meridian_llama_slots{state="busy"}`) == 0 {
			return "the prefill node does not prefill"
		}
		return ""
	})
	p.Prefill.Kill()
	a := <-done
	if a.node.Prefill != pair.Decode || a.node.Computed == 0 || a.text == "" {
		t.Errorf("%+v; want the decode node to have prefilled", a)
	}
	if n := series(t, p.Decode, `meridian_llama_prefills_total{by="fallback"}`); n == 0 {
		t.Error("no fallback is counted")
	}
	eventually(t, func() string { return idle(t, p.Decode) })
}
