package metadata

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"meridian/adapters/mooncake/segment"
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

// A segment is replaced in place, whatever its node is called: between a removal and
// the next value nobody would find the node.
func TestASegmentIsNeverRemovedToBeReplaced(t *testing.T) {
	var mu sync.Mutex
	values, removed := map[string]string{}, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.URL.Query().Get("key")
		switch r.Method {
		case http.MethodPut:
			b, _ := io.ReadAll(r.Body)
			values[key] = string(b)
		case http.MethodDelete:
			removed++
			delete(values, key)
		default:
			if _, ok := values[key]; !ok {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = io.WriteString(w, values[key])
		}
	}))
	defer s.Close()
	p, err := Open(Config{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	n := Node{At: Endpoint{Host: "h", Port: 1}, Segment: segment.Descriptor{Name: "rack/rpc_meta/node", Protocols: []string{segment.TCP}, DataHost: "h"}}
	for port := range uint16(2) {
		n.Segment.DataPort = port + 1
		if err := p.Publish(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if d, _, err := p.Get(t.Context(), n.Name()); err != nil || d.DataPort != port+1 {
			t.Errorf("port %d, %v", d.DataPort, err)
		}
	}
	if removed != 0 {
		t.Errorf("%d values were removed", removed)
	}
}
