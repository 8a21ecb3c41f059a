package metadata_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/adapters/mooncake/internal/fakeplane"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

// clock is the waits of a publisher: it goes on when the test says so.
type clock struct {
	asked chan time.Duration
	ring  chan time.Time
}

func (c *clock) after(d time.Duration) <-chan time.Time {
	c.asked <- d
	return c.ring
}

func ourNode() metadata.Node {
	return metadata.Node{At: metadata.Endpoint{Host: "127.0.0.1", Port: 9, Epoch: 5}, Segment: segment.Descriptor{Name: "house", DataHost: "127.0.0.1", DataPort: 8}}
}

// A metadata server that is down, that has forgotten us, or that gave our name to
// somebody else is asked again and again, never more often than the pauses allow; the
// finding says each time what is wrong.
func TestWhatIsPublishedComesBack(t *testing.T) {
	const firstRetry, publishEvery = 250 * time.Millisecond, 10 * time.Second // as docs/mooncake.md says
	plane := &fakeplane.Plane{Nodes: map[string]metadata.Node{}, Err: wire.CodeUnreachable}
	c := &clock{asked: make(chan time.Duration), ring: make(chan time.Time)}
	node := ourNode()
	var mu sync.Mutex
	p := metadata.Keep(t.Context(), plane, slog.New(slog.DiscardHandler), c.after, func() metadata.Node {
		mu.Lock()
		defer mu.Unlock()
		return node
	})
	step := func(want time.Duration, bad string) {
		t.Helper()
		if got := <-c.asked; got != want {
			t.Errorf("it waits %v, want %v", got, want)
		}
		if f := p.Finding(); f.Bad != (bad != "") || !strings.Contains(f.Reason+f.Fix, bad) {
			t.Errorf("finding %+v, want %q", f, bad)
		}
	}
	for wait := firstRetry; wait < publishEvery; wait *= 2 {
		step(wait, "UNREACHABLE")
		c.ring <- time.Time{}
	}
	step(publishEvery, "UNREACHABLE")
	plane.Set(func() { plane.Err = nil })
	c.ring <- time.Time{}
	step(publishEvery, "")
	c.ring <- time.Time{} // nothing has changed
	step(publishEvery, "")
	if n := plane.Count(); n != 1 {
		t.Errorf("published %d times, want once", n)
	}
	plane.Set(func() { clear(plane.Nodes) })
	c.ring <- time.Time{}
	step(publishEvery, "")
	mu.Lock()
	node.Segment.Buffers = []segment.Buffer{{Name: "house", Addr: 4096, Len: 1}}
	mu.Unlock()
	p.Again()
	step(publishEvery, "")
	if n := plane.Count(); n != 3 {
		t.Errorf("published %d times, want 3: at first, when it was forgotten, and when it changed", n)
	}
	other := ourNode()
	other.At.Port = 10
	plane.Set(func() { plane.Nodes["house"] = other })
	c.ring <- time.Time{}
	step(firstRetry, "give this daemon another name")
	plane.Set(func() { clear(plane.Nodes) })
	c.ring <- time.Time{}
	step(publishEvery, "")
	p.Close()
	p.Close()
	plane.Set(func() {
		if len(plane.Nodes) != 0 || plane.Removed != 1 {
			t.Errorf("after the end: %v, removed %d times", plane.Nodes, plane.Removed)
		}
	})
}
