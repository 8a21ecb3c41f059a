package metadata

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"meridian/wire"
)

func TestAServerThatLiesOrSaysTooMuchIsNamed(t *testing.T) {
	for _, c := range []struct {
		what   string
		status int
		body   string
		want   wire.Code
	}{
		{"a huge entry", 200, strings.Repeat("x", MaxBytes+1), wire.CodeTooLarge},
		{"another node's descriptor", 200, `{"name":"m","protocol":"tcp","tcp_data_port":1}`, wire.CodeInvalid},
		{"no JSON", 200, "<html>", wire.CodeInvalid},
		{"a refusal", 403, "no", wire.CodeDenied},
		{"a failure", 500, strings.Repeat("x", 4096), wire.CodeUnreachable},
		{"a way to elsewhere", 302, "", wire.CodeUnreachable},
		{"nothing", 404, "", wire.CodeAbsent},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		p, err := Open(Config{Server: s.URL + HTTPPath})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = p.Get(t.Context(), "n"); !errors.Is(err, c.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: %.300v, want %v", c.what, err, c.want)
		}
		_ = p.Close()
		s.Close()
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer s.Close()
	defer close(hang)
	p, err := Open(Config{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Get(ctx, "n"); !errors.Is(err, wire.CodeCancelled) {
		t.Error(err)
	}
}

func TestAServerThatCannotBeUsedIsRefusedByName(t *testing.T) {
	for server, want := range map[string]wire.Code{
		"redis://127.0.0.1:6379": wire.CodeUnsupported, "ftp://h": wire.CodeConfig, "http://": wire.CodeConfig, "http://u:p@h/": wire.CodeConfig, "etcd://": wire.CodeConfig, "": wire.CodeConfig,
	} {
		_, err := Open(Config{Server: server})
		if !errors.Is(err, want) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v, want %v", server, err, want)
		}
		if want == wire.CodeUnsupported && !strings.Contains(err.Error(), "redis") {
			t.Error(err)
		}
	}
}
