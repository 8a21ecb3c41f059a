package nixl

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/adapters/nixl/internal/fake"
	"meridian/blocks"
	"meridian/blocks/window"
	"meridian/internal/child"
	"meridian/internal/testbed"
	"meridian/wire"
)

func fakeConfig(t *testing.T, without ...string) HelperConfig {
	return HelperConfig{Path: built, Library: fake.Library(t, without...), Backend: fake.Backend, Devices: "lo", Log: testLog(t)}
}

// faulty is a helper with the fake library that knows the peers whose names are faults.
type faulty struct {
	*process
	t    *testing.T
	box  chan told
	mem  []byte
	addr uint64
}

func newFaulty(t *testing.T, hang time.Duration, without ...string) *faulty {
	t.Helper()
	c := fakeConfig(t, without...)
	c.hang = hang
	f := &faulty{t: t}
	f.process, f.box = newProcess(t, c, "house")
	table := window.New(nil, func() time.Duration { return 0 }, 0, nil)
	const owner = blocks.Owner(1)
	w, err := table.Open(owner, window.Spec{Bytes: 64 << 10, TTL: window.Forever, Map: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Drop(owner) })
	var leave func()
	if f.mem, leave, err = table.Own(owner, w.Addr, w.Len); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	if f.addr, err = f.mapWindow(t.Context(), 1, w, true); err != nil {
		t.Fatal(err)
	}
	for _, peer := range []string{"fail", "abort", "hang", "never", "late", "breaks", "echo", "good"} {
		m, err := ask[*control.Loaded](t.Context(), f.process, &control.Load{Blob: []byte(peer)}, -1)
		if err != nil || m.Peer != peer {
			t.Fatal(peer, m, err)
		}
	}
	return f
}

// move begins a transfer of 100 bytes from the begin of the window to its middle, and
// tells how it ends.
func (f *faulty) move(peer string) chan control.Message {
	f.t.Helper()
	ended := make(chan control.Message, 1)
	if err := f.begin(f.moveOf(peer), -1, func(m control.Message) { ended <- m }); err != nil {
		f.t.Fatal(err)
	}
	return ended
}

func (f *faulty) moveOf(peer string) *control.Move {
	return &control.Move{Write: true, Window: 1, Peer: peer, Parts: []control.Part{{Addr: f.addr + 1000, Len: 100}}}
}

func failedText(t *testing.T, m control.Message, quiet bool) string {
	t.Helper()
	failed, ok := m.(*control.Failed)
	if !ok || failed.Quiet != quiet {
		t.Fatalf("%#v, want a failure, quiet %v", m, quiet)
	}
	return failed.Text
}

func TestATransferEndsOnceHoweverItEnds(t *testing.T) {
	t.Run("with prepared lists", func(t *testing.T) { transfersEndOnce(t, newFaulty(t, 0), "nixl_capi_prep_xfer_dlist") })
	t.Run("without", func(t *testing.T) {
		transfersEndOnce(t, newFaulty(t, 0, "prep_xfer_dlist"), "nixl_capi_create_xfer_req")
	})
}

func transfersEndOnce(t *testing.T, f *faulty, call string) {
	for round := range uint64(3) {
		copy(f.mem, testbed.Content(100, round))
		if m := <-f.move("good"); !bytes.Equal(f.mem[1000:1100], f.mem[:100]) {
			t.Errorf("%#v, and the bytes are others", m)
		}
	}
	if text := failedText(t, <-f.move("fail"), true); !strings.Contains(text, call+": backend error (-2)") {
		t.Error(text)
	}
	if text := failedText(t, <-f.move("breaks"), false); !strings.Contains(text, "nixl_capi_get_xfer_status") {
		t.Error(text)
	}
	if text := failedText(t, <-f.move("nobody"), true); text == "" {
		t.Error("no reason")
	}
	late, ended := context.WithCancel(t.Context())
	ended()
	if _, err := ask[*control.Done](late, f.process, f.moveOf("late"), -1); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context had ended: %v", err)
	}
	if _, ok := (<-f.move("late")).(*control.Done); !ok {
		t.Error("a late transfer is not done")
	}
	testbed.Until(t, "nothing waits", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.waiting) == 0
	})
}

func TestANotificationComesBack(t *testing.T) {
	f := newFaulty(t, 0)
	for _, text := range []string{"one", "two"} {
		if _, err := ask[*control.Done](t.Context(), f.process, &control.Notify{Peer: "echo", Text: []byte(text)}, -1); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"one", "two"} {
		if got := <-f.box; got.peer != "echo" || string(got.text) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	_, err := ask[*control.Done](t.Context(), f.process, &control.Notify{Peer: "fail", Text: []byte("x")}, -1)
	if !errors.Is(err, wire.CodeUnreachable) {
		t.Error(err)
	}
}

// Whatever ends the helper, transfers under way fail with the reason, and only when it
// is dead.
func TestTransfersOfAHelperThatEndsFailWithTheReason(t *testing.T) {
	for name, c := range map[string]struct {
		hang time.Duration
		end  func(f *faulty)
		want []string
	}{
		"it aborts":           {0, func(f *faulty) { f.move("abort") }, []string{"SIGABRT", "Assertion `endpoint' failed"}},
		"it is killed":        {0, func(f *faulty) { _ = syscall.Kill(f.Pid(), syscall.SIGKILL) }, []string{"SIGKILL"}},
		"it is stopped":       {200 * time.Millisecond, func(f *faulty) { _ = syscall.Kill(f.Pid(), syscall.SIGSTOP) }, []string{"did not answer"}},
		"the library hangs":   {200 * time.Millisecond, func(f *faulty) { f.move("hang") }, []string{"did not answer"}},
		"it breaks the rules": {0, func(f *faulty) { _ = f.begin(&control.Start{Agent: "a", Backend: "b"}, -1, func(control.Message) {}) }, []string{"exit status 1", "a second Start"}},
		"it says nonsense":    {0, func(f *faulty) { go f.end(f.take(&control.Done{Req: 1 << 40})) }, []string{"which nobody made"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, c.hang)
			one, other := f.move("never"), f.move("never")
			if _, err := ask[*control.Done](t.Context(), f.process, &control.Notify{Peer: "good", Text: []byte("x")}, -1); err != nil {
				t.Fatal(err) // the transfers are under way
			}
			c.end(f)
			for _, ended := range []chan control.Message{one, other} {
				text := failedText(t, <-ended, false)
				for _, want := range c.want {
					if !strings.Contains(text, want) {
						t.Errorf("%q lacks %q", text, want)
					}
				}
				if f.Alive() {
					t.Error("it still lives")
				}
			}
			if err := f.begin(&control.Ping{}, -1, func(control.Message) {}); !errors.Is(err, wire.CodeUnreachable) {
				t.Errorf("a request after its end: %v", err)
			}
		})
	}
}

func TestAHelperThatCannotStartSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *HelperConfig)
		stays  bool
		want   []string
	}{
		"no library":          {func(c *HelperConfig) { c.Library = t.TempDir() }, true, []string{"libnixl_capi.so was not found", "pip install"}},
		"no helper":           {func(c *HelperConfig) { c.Path = "/none/" + program }, true, []string{"/none/" + program, "no such file"}},
		"functions missing":   {func(c *HelperConfig) { *c = fakeConfig(t, "gen_notif", "get_notifs") }, true, []string{"lacks nixl_capi_get_notifs, nixl_capi_gen_notif"}},
		"no such plugin":      {func(c *HelperConfig) { c.Backend = "NONE" }, false, []string{"plugin NONE cannot be loaded", "plugins of", "FAKE"}},
		"a backend that says": {func(c *HelperConfig) { c.Params = []string{"fault=backend"} }, false, []string{"backend FAKE", "(-2)"}},
		"one that aborts":     {func(c *HelperConfig) { c.Params = []string{"fault=abort"} }, false, []string{"SIGABRT", "the backend gives up"}},
	} {
		cfg := fakeConfig(t)
		c.change(&cfg)
		p, err := startProcess(t.Context(), &cfg, "house", func(string, []byte) {})
		if err == nil {
			p.end(context.Canceled)
			t.Errorf("%s: it started", name)
			continue
		}
		if errors.Is(err, child.ErrFailed) != c.stays {
			t.Errorf("%s: %v stays: %v, want %v", name, err, !c.stays, c.stays)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", name, err, want)
			}
		}
	}
	cfg := fakeConfig(t)
	cfg.Params = []string{"fault=hang"}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := startProcess(ctx, &cfg, "house", func(string, []byte) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start that hangs: %v", err)
	}
}

// The helper may say anything: a wrong answer ends it, and nobody else.
func FuzzTake(f *testing.F) {
	for _, m := range []control.Message{&control.Done{Req: 1}, &control.Failed{Req: 2, Text: "x"}, &control.Notified{Peer: "p", Text: []byte("t")}, &control.Ping{}, &control.Mapped{Req: 1}} {
		b, err := control.Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := control.Parse(b)
		if err != nil {
			return
		}
		heard := 0
		p := &process{deliver: func(string, []byte) {}, waiting: map[control.Req]func(control.Message){1: func(control.Message) { heard++ }}}
		err = p.take(m)
		if again := p.take(m); again == nil && heard > 0 || heard > 1 {
			t.Errorf("%#v was heard %d times: %v, %v", m, heard, err, again)
		}
	})
}
