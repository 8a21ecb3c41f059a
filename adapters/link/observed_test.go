package link

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// heard is an observer that keeps what it was told of transfers.
type heard struct {
	nobody
	mu   sync.Mutex
	told []Transfer
}

func (h *heard) Transfer(t Transfer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, t)
}

// take takes the only transfer that there was.
func (h *heard) take(t *testing.T) (x Transfer) {
	t.Helper()
	until(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.told) > 0
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.told) != 1 {
		t.Errorf("told %d times: %+v", len(h.told), h.told)
	}
	x, h.told = h.told[0], nil
	if x.Took < 0 || x.Took > time.Hour {
		t.Errorf("it took %v", x.Took)
	}
	x.Took = 0
	return x
}

// Both sides tell of each transfer: what it brought, and of what was not given.
func TestBothSidesTellOfATransfer(t *testing.T) {
	noLeaks(t)
	var asks, serves heard
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Observer, c.Peers = &serves, []PeerConfig{{Name: "agent1", Tenants: []string{"t"}}}
	})
	a := start(t, 1, 10, "", func(c *Config) { c.Observer, c.Peers = &asks, []PeerConfig{{Name: "b", Addr: b.addr}} })
	p := a.Peer("b")
	ready(t, p)
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ns.Add(testManifest("t")); err != nil {
		t.Fatal(err)
	}
	ctx := fabric.WithClass(context.Background(), fabric.ClassNormal)
	push := make([]fabric.Item, 3)
	for i := range push {
		push[i] = fabric.Item{NS: ns, Key: key(ns, i), Tier: wire.OutputCritical, M: payload(t, wire.OutputCritical, randomBody(1000))}
	}
	p.Push(ctx, push)
	want := Transfer{Peer: "b", Class: 2, Via: "tcp", Items: 3, Bytes: 3000}
	if got := asks.take(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("PUSH: %+v, want %+v", got, want)
	}
	want.Peer, want.In, want.Served = "agent1", true, true
	if got := serves.take(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("PUSH served: %+v, want %+v", got, want)
	}
	pull := make([]fabric.Item, 4)
	for i := range pull {
		pull[i] = fabric.Item{NS: ns, Key: key(ns, i), M: fabric.Mem{B: make([]byte, 1032)}}
	}
	p.Pull(ctx, pull)
	want = Transfer{Peer: "b", In: true, Class: 2, Via: "tcp", Items: 3, Bytes: 3000}
	if got := asks.take(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("PULL: %+v, want %+v", got, want)
	}
	want.Peer, want.In, want.Served, want.Refused = "agent1", false, true, []wire.Code{wire.CodeAbsent}
	if got := serves.take(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("PULL served: %+v, want %+v", got, want)
	}
}
