package httpguard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// ask sends a request through a guard and returns the answer of what is behind
// it, which is 200.
func ask(t *testing.T, c Config, method, host string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(method, "/varz", nil)
	r.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret")) })).ServeHTTP(w, r)
	return w
}

func TestARebindingNameIsRefused(t *testing.T) {
	c := Config{Hosts: []string{"10.0.0.1:9000", "node-1"}, Table: "admin"}
	for _, host := range []string{"127.0.0.1:9000", "localhost", "LOCALHOST.:1", "[::1]:9000", "[::ffff:127.0.0.1]:80", "10.0.0.1", "node-1:80", "NODE-1."} {
		if w := ask(t, c, "GET", host); w.Code != 200 {
			t.Errorf("%q: %d %s", host, w.Code, w.Body)
		}
	}
	for _, host := range []string{"", "evil.example", "evil.example:9000", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.2", "0.0.0.0:80", "[::]:80", "a:b:c", strings.Repeat("x", 5000)} {
		w := ask(t, c, "GET", host)
		if w.Code != 403 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "admin.hosts") || w.Body.Len() > 600 {
			t.Errorf("%.40q: %d %.200s", host, w.Code, w.Body)
		}
	}
}

func TestAListenerOnEveryAddressTakesEveryLiteralOneAndNoName(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:80", "[::]:80", ":80"} {
		c := Config{Hosts: []string{listen}}
		for _, host := range []string{"10.1.2.3:80", "[2001:db8::1]:80", "localhost"} {
			if w := ask(t, c, "GET", host); w.Code != 200 {
				t.Errorf("%s, %q: %d", listen, host, w.Code)
			}
		}
		if w := ask(t, c, "GET", "evil.example"); w.Code != 403 {
			t.Errorf("%s: a name is taken", listen)
		}
	}
}

func TestAnotherOriginIsRefusedAndAllowedOnesAreTold(t *testing.T) {
	c := Config{Origins: []string{"https://ui.example:8443"}, Table: "llama"}
	for _, o := range [][]string{{"http://evil.example"}, {"null"}, {""}, {"http://localhost:80"}, {"https://ui.example"}, {"https://ui.example:8443", "http://evil.example"}} {
		var headers []string
		for _, v := range o {
			headers = append(headers, "Origin", v)
		}
		w := ask(t, c, "GET", "localhost", headers...)
		if w.Code != 403 || w.Header().Get("Access-Control-Allow-Origin") != "" || !strings.Contains(w.Body.String(), "llama.origins") {
			t.Errorf("%q: %d %s", o, w.Code, w.Body)
		}
	}
	if w := ask(t, c, "GET", "localhost", "Origin", "https://ui.example:8443"); w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "https://ui.example:8443" || w.Header().Get("Vary") != "Origin" {
		t.Errorf("an allowed page: %d %v", w.Code, w.Header())
	}
	if w := ask(t, c, "OPTIONS", "localhost", "Origin", "https://ui.example:8443"); w.Code != 204 || w.Header().Get("Access-Control-Allow-Headers") == "" {
		t.Errorf("its preflight: %d %v", w.Code, w.Header())
	}
}

func TestATokenOpensEveryHostAndIsNeededForEveryCall(t *testing.T) {
	c := Config{Token: "sesame"}
	for _, r := range []struct {
		host, auth string
		status     int
	}{
		{"node-2.cluster", "Bearer sesame", 200}, {"localhost", "bearer  sesame", 200}, {"localhost", "", 401},
		{"localhost", "Bearer sesam", 401}, {"localhost", "Basic sesame", 401}, {"evil.example", "Bearer wrong", 403},
	} {
		if w := ask(t, c, "GET", r.host, "Authorization", r.auth); w.Code != r.status {
			t.Errorf("%q to %s: %d, want %d", r.auth, r.host, w.Code, r.status)
		}
	}
}

func TestEntriesThatAreNoneAreRefusedByName(t *testing.T) {
	for _, c := range []Config{{Hosts: []string{""}}, {Origins: []string{"*"}}, {Origins: []string{"a.example"}}, {Origins: []string{"https://a/b"}}} {
		_, err := New(c)
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field == "" {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
