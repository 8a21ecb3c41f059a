package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/segment"
	"meridian/internal/testbed"
	"meridian/wire"
)

// ports are some side by side that were free a moment ago, below those that the kernel
// gives to others meanwhile.
func ports(t *testing.T, n int) Ports {
	t.Helper()
	for range 100 {
		at := 20_000 + rand.IntN(10_000)
		var open []net.Listener
		for i := range n {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", at+i)); err == nil {
				open = append(open, l)
			}
		}
		for _, l := range open {
			_ = l.Close()
		}
		if len(open) == n {
			return Ports{"127.0.0.1", uint16(at), uint16(at + n - 1)}
		}
	}
	t.Fatal("no ports side by side are free")
	return Ports{}
}

// A target that comes back is another life: its memory is reached by who reads the
// descriptor anew, and by nobody else.
func TestAnAddressOfBeforeARestartReachesNoNewMemory(t *testing.T) {
	for name, c := range map[string]struct {
		data bool // at the same data port
		base uint64
	}{
		"another port and other memory":        {false, base + 4096},
		"another port and the same addresses":  {false, base},
		"the same port and other memory":       {true, base + 1<<30},
		"the same port, memory that laps over": {true, base + 32},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, "", "", base, 64)
			r := start(t, Config{Target: e.name, Data: ports(t, 2)})
			old := open(t, r)
			if err := do(t, old, true, base, bytes.Repeat([]byte("old"), 20)); err != nil {
				t.Fatal(err)
			}
			d, _ := old.Descriptor()
			c2, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", d.DataPort))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c2.Close() }()
			send(t, c2, head(0x80, base, 1))
			receive(t, c2, 9)

			e.stop()
			data := ""
			if c.data {
				data = e.data.String()
			}
			e2 := newEngine(t, e.name, data, c.base, 64)
			// What a source does that has kept its descriptor, and its connection.
			_, _ = c2.Write(append(head(0x81, c.base, 4), "evil"...))
			if got, _ := io.ReadAll(c2); len(got) != 0 && string(got) != rejected {
				t.Errorf("on the old connection: % x", got)
			}
			testbed.Until(t, "the relay notices", func() bool {
				_, err := r.look(t.Context())
				return err == nil && r.target.count() == 2
			})
			if c3, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", d.DataPort)); err == nil {
				t.Error("the port of before is open")
				_ = c3.Close()
			}
			if got := e2.has(0, 64); got != string(make([]byte, 64)) {
				t.Errorf("%q was written to the new memory", got)
			}
			now := open(t, r)
			if d2, _ := now.Descriptor(); d2.DataPort == d.DataPort {
				t.Error("both lives have one data port")
			}
			if err := do(t, now, true, c.base, []byte("new")); err != nil || e2.has(0, 3) != "new" {
				t.Errorf("%v, %q", err, e2.has(0, 3))
			}
		})
	}
}

// logged keeps what a relay logs.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

// The log says that a target went, and that it came back, also where nothing else shows
// that it was away.
func TestTheLogSaysThatATargetIsReachedAgain(t *testing.T) {
	var log logged
	e := newEngine(t, "", "", base, 64)
	r := start(t, Config{Target: e.name, Data: ports(t, 2), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := r.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.stop()
	if _, err := r.look(t.Context()); err == nil || !log.has("cannot be reached") {
		t.Error("without its target:", err)
	}
	newEngine(t, e.name, e.data.String(), base, 64)
	if _, err := r.look(t.Context()); err != nil || !log.has("reached again") || r.target.count() != 1 {
		t.Error("with it:", err, r.target.count())
	}
}

// Memory that is registered or given up makes no other life: a source that has the
// descriptor of before reaches what is registered now.
func TestMemoryThatIsRegisteredLaterIsReached(t *testing.T) {
	e := newEngine(t, "", "", base, 64)
	all := e.buffers
	e.buffers = []segment.Buffer{{Name: "cpu:0", Addr: base, Len: 32}}
	r := start(t, Config{Target: e.name})
	s := open(t, r)
	if err := do(t, s, true, base+32, []byte("x")); !errors.Is(err, wire.CodeStale) {
		t.Fatal(err)
	}
	e.mu.Lock()
	e.buffers = append(e.buffers, all...)
	e.mu.Unlock()
	testbed.Until(t, "the relay looks again", func() bool { return do(t, s, true, base+32, []byte("x")) == nil })
	e.mu.Lock()
	e.buffers = nil
	e.mu.Unlock()
	if now, err := r.look(t.Context()); err != nil || len(now.desc.Load().Buffers) != 0 || r.target.count() != 1 {
		t.Errorf("no buffer any more is another life: %v", err)
	}
	if err := do(t, s, true, base, []byte("x")); !errors.Is(err, wire.CodeStale) {
		t.Error("what is registered no more is reached:", err)
	}
	// A process that came back at the same port is seen before it has registered memory.
	e.mu.Lock()
	e.buffers = []segment.Buffer{{Name: "cpu:0", Addr: base + 16, Len: 32}}
	e.mu.Unlock()
	if _, err := r.look(t.Context()); err != nil || r.target.count() != 2 {
		t.Errorf("other memory behind none is the same life: %v", err)
	}
}

// With one port there is one life, and the finding says so.
func TestWhenNoDataPortIsLeftNothingIsCarried(t *testing.T) {
	e := newEngine(t, "", "", base, 64)
	r := start(t, Config{Target: e.name, Data: ports(t, 1)})
	open(t, r)
	e.stop()
	newEngine(t, e.name, "", base, 64)
	_, err := r.look(t.Context())
	if !errors.Is(err, wire.CodeTooMany) || !strings.Contains(err.Error(), "each of the 1 data ports") {
		t.Error(err)
	}
	if _, _, err := (&handshake.Client{}).Get(t.Context(), r.Name()); err == nil {
		t.Error("sources are told of a target that cannot be reached")
	}
	f := r.Findings()
	if f[0].ID != "target" || !f[0].Bad || !strings.Contains(f[0].Reason, "data ports") || !strings.Contains(f[0].Fix, "restart this daemon") {
		t.Errorf("%+v", f[0])
	}
}

// A descriptor that leads to where the target may not be is no life: however often it is
// shown, a port is left for the target.
func TestATargetElsewhereTakesNoDataPort(t *testing.T) {
	e := newEngine(t, "", "", base, 64)
	r := start(t, Config{Target: e.name, Data: ports(t, 2)})
	open(t, r)
	for i := range 4 {
		e.says(fmt.Sprintf("127.0.0.%d", 2+i))
		_, err := r.look(t.Context())
		if !errors.Is(err, wire.CodeDenied) || !strings.Contains(err.Error(), "in none of the ranges of reach") {
			t.Error(err)
		}
	}
	if f := r.Findings(); !f[0].Bad || !strings.Contains(f[0].Reason, "in none of the ranges of reach") {
		t.Errorf("%+v", f[0])
	}
	e.says("")
	if _, err := r.look(t.Context()); err != nil || r.target.count() != 1 {
		t.Errorf("back at its place: %v, life %d", err, r.target.count())
	}
}

// The port of a life follows from the target's address, so that sources find a relay
// that was restarted.
func TestARelayThatIsRestartedHasThePortThatSourcesKnow(t *testing.T) {
	e := newEngine(t, "", "", base, 64)
	p := ports(t, 8)
	var had uint16
	for i := range 2 {
		r := start(t, Config{Target: e.name, Data: p})
		l, err := r.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && l.at.Port() != had {
			t.Errorf("port %d, then %d", had, l.at.Port())
		}
		had = l.at.Port()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
