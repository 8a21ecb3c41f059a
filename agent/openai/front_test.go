package openai

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestNewRefusesAConfigThatMakesNoSense(t *testing.T) {
	for _, c := range []Config{
		{}, {Backend: saying(), MaxRequests: -1}, {Backend: saying(), WriteTimeout: -1}, {Backend: saying(), Hosts: []string{""}},
		{Backend: saying(), Origins: []string{"*"}}, {Backend: saying(), Origins: []string{"https://a/b"}}, {Backend: saying(), Origins: []string{"a.example"}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestPathsAndMethods(t *testing.T) {
	f := newFront(t, Config{Backend: saying()})
	for _, c := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/health", 200, "", ""}, {"GET", "/v1/models", 200, "", ""}, {"GET", "/v1/models/m", 200, "", ""}, {"GET", "/v1/models/org/large", 200, "", ""},
		{"GET", "/v1/models/x", 404, "model_not_found", ""}, {"GET", "/v1/models/", 404, "model_not_found", ""},
		{"GET", chatPath, 405, "method_not_allowed", "POST"}, {"DELETE", completionsPath, 405, "method_not_allowed", "POST"},
		{"POST", "/v1/models", 405, "method_not_allowed", "GET"}, {"DELETE", "/v1/models/m", 405, "method_not_allowed", "GET"}, {"OPTIONS", chatPath, 405, "method_not_allowed", "POST"},
		{"GET", "/", 404, "unknown_url", ""}, {"POST", "/v1/embeddings", 404, "unknown_url", ""}, {"POST", "/v1/responses", 404, "unknown_url", ""},
		{"POST", chatPath + "/", 404, "unknown_url", ""}, {"POST", "/chat/completions", 404, "unknown_url", ""},
	} {
		w := ask1(t, f, c.method, c.path, hello+"}")
		if w.Code != c.status || w.Header().Get("Allow") != c.allow || w.Header().Get("X-Request-Id") == "" {
			t.Errorf("%s %s: %d, Allow %q: %s", c.method, c.path, w.Code, w.Header().Get("Allow"), w.Body)
		}
		if c.code != "" {
			if e := errorIn(t, w.Body.Bytes()); e.Code != c.code {
				t.Errorf("%s %s: %+v", c.method, c.path, e)
			}
		}
	}
}

func TestModels(t *testing.T) {
	b := saying()
	f := newFront(t, Config{Backend: b})
	const one = `{"id":"m","object":"model","created":1700000000,"owned_by":"us","max_model_len":4096}`
	if got := strings.TrimSpace(ask1(t, f, "GET", "/v1/models", "").Body.String()); got != `{"object":"list","data":[`+one+`,{"id":"org/large","object":"model","created":0,"owned_by":"us"}]}` {
		t.Error(got)
	}
	if got := strings.TrimSpace(ask1(t, f, "GET", "/v1/models/m", "").Body.String()); got != one {
		t.Error(got)
	}
	w := post(t, f, chatPath, `{"model":"gpt-4","messages":[{"role":"user","content":"hi"}]}`)
	if e := errorIn(t, w.Body.Bytes()); w.Code != 404 || e.Code != "model_not_found" || e.Param != "model" || !strings.Contains(e.Message, "gpt-4") {
		t.Errorf("%d %+v", w.Code, e)
	}
	if b.asked() != nil {
		t.Error("an unknown model reached the backend")
	}
	b.models = func() ([]Model, error) { return nil, nil }
	if w := ask1(t, f, "GET", "/health", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("health without a model: %d", w.Code)
	}
	b.models = func() ([]Model, error) { return nil, &Error{Status: 503, Code: "engine_down", Message: "starting"} }
	for _, path := range []string{"/health", "/v1/models", "/v1/models/m"} {
		if w := ask1(t, f, "GET", path, ""); w.Code != 503 || errorIn(t, w.Body.Bytes()).Code != "engine_down" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestHostMustBeThisNode(t *testing.T) {
	for _, c := range []struct {
		hosts   []string
		good    []string
		refused []string
	}{
		{nil, []string{"localhost", "localhost:8080", "LOCALHOST.", "127.0.0.1:1", "127.8.8.8", "[::1]:8080", "[::1]", "[::ffff:127.0.0.1]:80"},
			[]string{"", "evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.1", "0.0.0.0:8080", "[::]:80", "127.0.0.1.evil.example", "a:b:c"}},
		{[]string{"node-1:8080", "10.0.0.1:8080", "[2001:db8::1]:80"}, []string{"node-1", "NODE-1:99", "10.0.0.1", "[2001:db8::1]", "localhost"}, []string{"node-2", "10.0.0.2"}},
		{[]string{"0.0.0.0:8080"}, []string{"10.0.0.1:8080", "[2001:db8::1]:80", "localhost"}, []string{"evil.example"}},
		{[]string{":8080"}, []string{"192.168.1.1"}, []string{"evil.example"}},
	} {
		f := newFront(t, Config{Backend: saying(), Hosts: c.hosts})
		for _, h := range c.good {
			if w := post(t, f, chatPath, hello+"}", "Host", h); w.Code != 200 {
				t.Errorf("hosts %q: %q is refused: %s", c.hosts, h, w.Body)
			}
		}
		for _, h := range c.refused {
			for _, path := range []string{chatPath, "/health", "/nowhere"} {
				if w := post(t, f, path, hello+"}", "Host", h); w.Code != 403 || errorIn(t, w.Body.Bytes()).Code != "host_not_allowed" {
					t.Errorf("hosts %q: %q at %s: %d", c.hosts, h, path, w.Code)
				}
			}
		}
	}
}

func TestWebPagesAreRefused(t *testing.T) {
	b := saying()
	f := newFront(t, Config{Backend: b, Token: "t"})
	for _, o := range []string{"http://evil.example", "null", "http://localhost:8080", ""} {
		w := post(t, f, chatPath, hello+"}", "Origin", o, "Authorization", "Bearer t")
		if w.Code != 403 || errorIn(t, w.Body.Bytes()).Code != "origin_not_allowed" || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: %d %s", o, w.Code, w.Body)
		}
	}
	if b.asked() != nil {
		t.Error("a web page reached the backend")
	}
	f = newFront(t, Config{Backend: b, Token: "t", Origins: []string{"https://ui.example:8443"}})
	w := post(t, f, chatPath, hello+"}", "Origin", "https://ui.example:8443", "Authorization", "Bearer t")
	if w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "https://ui.example:8443" || w.Header().Get("Vary") != "Origin" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	w = ask1(t, f, "OPTIONS", chatPath, "", "Origin", "https://ui.example:8443")
	if w.Code != 204 || !strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("preflight: %d %v", w.Code, w.Header())
	}
	for _, headers := range [][]string{{"Origin", "https://ui.example"}, {"Origin", "https://ui.example:8443", "Origin", "http://evil.example"}} {
		if w := post(t, f, chatPath, hello+"}", append(headers, "Authorization", "Bearer t")...); w.Code != 403 {
			t.Errorf("%q: %d", headers, w.Code)
		}
	}
}

func TestTheToken(t *testing.T) {
	f := newFront(t, Config{Backend: saying(), Token: "sesame"})
	for _, a := range []string{"Bearer sesame", "bearer sesame", "Bearer  sesame"} {
		if w := post(t, f, chatPath, hello+"}", "Authorization", a); w.Code != 200 {
			t.Errorf("%q: %d", a, w.Code)
		}
	}
	for _, a := range []string{"", "Bearer", "Bearer ", "Bearer sesam", "Bearer sesame2", "Basic sesame", "sesame"} {
		for _, path := range []string{chatPath, "/v1/models", "/nowhere"} {
			w := post(t, f, path, hello+"}", "Authorization", a)
			if e := errorIn(t, w.Body.Bytes()); w.Code != 401 || e.Code != "invalid_api_key" || w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%q at %s: %d %+v", a, path, w.Code, e)
			}
		}
	}
	if w := ask1(t, f, "GET", "/health", ""); w.Code != 200 {
		t.Errorf("health: %d", w.Code)
	}
	// Who knows the token is no web page, whatever name it used.
	if w := post(t, f, chatPath, hello+"}", "Authorization", "Bearer sesame", "Host", "node-2.cluster:8080"); w.Code != 200 {
		t.Errorf("another name with the token: %d %s", w.Code, w.Body)
	}
	if w := ask1(t, f, "GET", "/health", "", "Host", "evil.example"); w.Code != 403 {
		t.Errorf("another name without the token: %d", w.Code)
	}
}

func TestStatsAddUp(t *testing.T) {
	f := newFront(t, Config{Backend: failing(1, errors.New("x"))})
	post(t, f, chatPath, streamed+"}")
	post(t, f, chatPath, hello+"}")
	post(t, f, chatPath, "{")
	ask1(t, f, "GET", "/v1/models", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", "http://localhost"+chatPath, strings.NewReader(hello+"}"))
	if err != nil {
		t.Fatal(err)
	}
	f.ServeHTTP(httptest.NewRecorder(), r)
	s := f.Stats()
	sum := s.Cancelled + s.Slow + s.Broken
	for _, n := range s.Status {
		sum += n
	}
	if s.Total != 5 || sum != 5 || s.Active != 0 || s.Cancelled != 1 || s.Broken != 1 || s.Status[500] != 1 || s.Status[400] != 1 || s.Status[200] != 1 {
		t.Errorf("%+v", s)
	}
	s.Status[200] = 99
	if f.Stats().Status[200] == 99 {
		t.Error("Stats shares its map")
	}
}

func TestWriteErrorAndErrorOfAreInverse(t *testing.T) {
	for _, e := range []*Error{
		{Status: 400, Type: "a", Code: "b", Param: "c", Message: "d"}, {Status: 503, Type: "server_error", Message: "\"quoted\" <é>"},
	} {
		w := httptest.NewRecorder()
		WriteError(w, e)
		if got := ErrorOf(w.Code, w.Body.Bytes()); *got != *e {
			t.Errorf("%+v, want %+v", got, e)
		}
	}
	for body, want := range map[string]string{
		`{"error":{"message":"x","code":42,"type":null}}`: "x", `<html>gone</html>`: "<html>gone</html>", ``: "Bad Gateway",
		`{"error":"x"}`: `{"error":"x"}`, "a\n\n b\xff": "a b\uFFFD", strings.Repeat("é", 200): strings.Repeat("é", 100) + "…",
	} {
		if got := ErrorOf(502, []byte(body)); got.Message != want || got.Status != 502 || got.Type == "" {
			t.Errorf("%q: %+v", body, got)
		}
	}
	if got := ErrorOf(500, []byte(`{"error":{"message":"x","code":42}}`)); got.Code != "42" {
		t.Errorf("%+v", got)
	}
	var b json.RawMessage
	w := httptest.NewRecorder()
	WriteError(w, errors.New("secret"))
	if json.Unmarshal(w.Body.Bytes(), &b) != nil || w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestLogProbsAreNumbersOfJSON(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, -1.5: -1.5, 1e-9: 0, -1e300: leastLogProb, math.Inf(-1): leastLogProb, math.Inf(1): 0} {
		if got := finite(x); got != want {
			t.Errorf("%v: %v", x, got)
		}
	}
	if got := finite(math.NaN()); got != leastLogProb {
		t.Errorf("NaN: %v", got)
	}
}
