package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/internal/invariants/leak"
	"meridian/internal/realpart/etcdnode"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience bounds what a test waits for on a busy machine.
const patience = time.Minute

func open(t *testing.T, endpoints ...string) *Client {
	t.Helper()
	c, err := Open(Config{Endpoints: endpoints, Call: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAChangeIsMadeOnlyIfNobodyWasFaster(t *testing.T) {
	ctx := t.Context()
	c := open(t, etcdnode.Start(t).Endpoint)
	none, err := c.Get(ctx, "k")
	if err != nil || none.There() || none.Key != "k" {
		t.Fatalf("%+v, %v", none, err)
	}
	first, err := c.Put(ctx, none, []byte("1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, none, []byte("2"), nil); !errors.Is(err, ErrChanged) {
		t.Error("put as if it were absent:", err)
	}
	second, err := c.Put(ctx, first, []byte("2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, first); !errors.Is(err, ErrChanged) {
		t.Error("deleted by who saw an earlier value:", err)
	}
	if v, err := c.Get(ctx, "k"); err != nil || string(v.B) != "2" || v.Rev != second.Rev {
		t.Errorf("%+v, %v", v, err)
	}
	if err := c.Delete(ctx, second); err != nil {
		t.Error(err)
	}
}

func TestAListIsReadInPartsAndHasALimit(t *testing.T) {
	ctx := t.Context()
	c := open(t, etcdnode.Start(t).Endpoint)
	for i := range listPart*2 + 1 {
		if _, err := c.Put(ctx, Value{Key: fmt.Sprintf("a/%03d", i)}, []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	all, _, err := c.List(ctx, "a/", listPart*2+1)
	if err != nil || len(all) != listPart*2+1 || all[listPart].Key != fmt.Sprintf("a/%03d", listPart) {
		t.Errorf("%d keys, %v", len(all), err)
	}
	if _, _, err := c.List(ctx, "a/", listPart*2); !errors.Is(err, ErrTooLarge) {
		t.Error("more keys than are wanted:", err)
	}
}

func TestTheKeysOfALeaseEndWithIt(t *testing.T) {
	ctx := t.Context()
	c := open(t, etcdnode.Start(t).Endpoint)
	l, err := c.Lease(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, Value{Key: "k"}, []byte("1"), l); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(ctx, "k"); err != nil || v.There() {
		t.Errorf("%+v, %v", v, err)
	}
	select {
	case <-l.Lost():
	default:
		t.Error("a closed lease is not lost")
	}
}

// heard is a watcher that keeps what it is told.
type heard struct {
	mu    sync.Mutex
	has   map[string]string
	lists int
	fails int
	moved chan struct{}
}

func newHeard() *heard { return &heard{has: map[string]string{}, moved: make(chan struct{}, 1)} }

func (h *heard) tell(f func()) {
	h.mu.Lock()
	f()
	h.mu.Unlock()
	select {
	case h.moved <- struct{}{}:
	default:
	}
}

func (h *heard) All(values []Value) {
	h.tell(func() {
		clear(h.has)
		h.lists++
		for _, v := range values {
			h.has[v.Key] = string(v.B)
		}
	})
}

func (h *heard) Changed(v Value) {
	h.tell(func() {
		if delete(h.has, v.Key); v.There() {
			h.has[v.Key] = string(v.B)
		}
	})
}

func (h *heard) Failed(error) { h.tell(func() { h.fails++ }) }

// until waits for what is heard to be as wanted.
func (h *heard) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	end := time.After(patience)
	for {
		h.mu.Lock()
		ok := done()
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-h.moved:
		case <-end:
			t.Fatalf("%s did not come to pass: %+v", what, h.has)
		}
	}
}

func TestAWatchMissesNothingThroughARestartAndACompaction(t *testing.T) {
	n := etcdnode.Start(t)
	c := open(t, n.Endpoint)
	put := func(key, b string) Value {
		t.Helper()
		v, err := c.Get(t.Context(), key)
		if err == nil {
			v, err = c.Put(t.Context(), v, []byte(b), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	put("w/a", "1")
	h := newHeard()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { c.Watch(ctx, "w/", 100, h) })
	defer done.Wait()
	defer cancel()
	h.until(t, "the list", func() bool { return h.has["w/a"] == "1" })
	put("w/b", "2")
	put("other", "3")
	h.until(t, "a change", func() bool { return h.has["w/b"] == "2" && len(h.has) == 2 })
	n.Stop()
	if !n.Run() {
		t.Fatal("etcd does not come back")
	}
	put("w/c", "4")
	h.until(t, "a change after a restart", func() bool { return h.has["w/c"] == "4" })
	// A watch from a revision that is forgotten begins again with a list.
	v := put("w/a", "5")
	if _, err := c.c.Compact(t.Context(), v.Rev); err != nil {
		t.Fatal(err)
	}
	if err := c.follow(t.Context(), "w/", 2, h); err != nil {
		t.Error("a watch of what is compacted:", err)
	}
}

func TestAServerThatNeverAnswersEndsACallInTime(t *testing.T) {
	n := etcdnode.Start(t)
	c, err := Open(Config{Endpoints: []string{n.Endpoint}, Call: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	n.Pause()
	defer n.Resume()
	if _, err := c.Get(t.Context(), "k"); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
}

func TestTheNextEndpointIsAskedWhereOneIsDead(t *testing.T) {
	c := open(t, "127.0.0.1:1", etcdnode.Start(t).Endpoint)
	if _, err := c.Put(t.Context(), Value{Key: "k"}, []byte("1"), nil); err != nil {
		t.Error(err)
	}
}

func TestAWrongPasswordIsDenied(t *testing.T) {
	n := etcdnode.Start(t)
	c := open(t, n.Endpoint)
	ctx := t.Context()
	_, err := c.c.UserAdd(ctx, "root", "right")
	if err == nil {
		_, err = c.c.RoleAdd(ctx, "root")
	}
	if err == nil {
		_, err = c.c.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = c.c.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "k"); !errors.Is(err, ErrDenied) {
		t.Error("without a user:", err)
	}
	_, err = Open(Config{Endpoints: []string{n.Endpoint}, User: "root", Password: "wrong", Call: patience})
	if !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "wrong") {
		t.Error("a wrong password:", err)
	}
	right, err := Open(Config{Endpoints: []string{n.Endpoint}, User: "root", Password: "right", Call: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = right.Close() }()
	if _, err := right.Get(ctx, "k"); err != nil {
		t.Error("the right password:", err)
	}
}

func TestAConfigurationIsCheckedBeforeItIsUsed(t *testing.T) {
	for _, c := range []Config{{}, {Endpoints: []string{"h:1"}, User: "u"}, {Endpoints: []string{"h:1"}, Password: "p"}} {
		if _, err := Open(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c.Endpoints, err)
		}
	}
}
