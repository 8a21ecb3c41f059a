package metaserver

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meridian/adapters/mooncake/metadata"
	"meridian/blocks/quota"
	"meridian/internal/invariants/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// clock stands still until a test moves it.
type clock struct{ ns atomic.Int64 }

func (c *clock) pass(d time.Duration) { c.ns.Add(int64(d)) }
func (c *clock) now() time.Duration   { return time.Duration(c.ns.Load()) }

// rig is a server whose clock is the test's.
type rig struct {
	*Server
	t     *testing.T
	clock clock
	book  *quota.Book
}

func newServer(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, book: &quota.Book{}}
	var err error
	if r.Server, err = Listen(t.Context(), Config{Listen: "127.0.0.1:0", Quota: r.book, Table: "fabric.mooncake", Clock: r.clock.now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) url() string { return "http://" + r.Address() + metadata.HTTPPath }

// do sends a request and returns its answer.
func (r *rig) do(method, key, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url()+"?key="+url.QueryEscape(key), strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}
