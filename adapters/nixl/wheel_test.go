package nixl

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/adapters/nixl/internal/wheel"
	"meridian/blocks"
	"meridian/blocks/window"
	"meridian/internal/invariants/leak"
	"meridian/internal/realpart"
	"meridian/internal/testbed"
)

// built is the helper, which TestMain builds.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		panic(err)
	}
	built = filepath.Join(dir, program)
	if out, err := exec.Command("go", "build", "-o", built, "meridian/cmd/meridian-ffi").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := leak.Run(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func helperConfig(t *testing.T) HelperConfig {
	return HelperConfig{Path: built, Library: realpart.Packages(t, "peers"), Backend: "UCX", Devices: "lo", Log: testLog(t)}
}

type told struct {
	peer string
	text []byte
}

func newProcess(t *testing.T, c HelperConfig, agent string) (*process, chan told) {
	t.Helper()
	box := make(chan told, 100)
	p, err := startProcess(t.Context(), &c, agent, func(peer string, text []byte) {
		select {
		case box <- told{peer, text}:
		default: // whom nobody listens to is not waited for
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(context.Canceled) })
	return p, box
}

// mapped is a window of 1 MiB that the helper has mapped, and its address there.
func mapped(t *testing.T, p *process, number uint32, staging bool) (mem []byte, at uint64) {
	t.Helper()
	table := window.New(nil, func() time.Duration { return 0 }, 0, nil)
	const owner = blocks.Owner(1)
	w, err := table.Open(owner, window.Spec{Bytes: 1 << 20, TTL: window.Forever, Map: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Drop(owner) })
	mem, leave, err := table.Own(owner, w.Addr, w.Len)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	if at, err = p.mapWindow(t.Context(), number, w, staging); err != nil {
		t.Fatal(err)
	}
	return mem, at
}

// A real agent of the wheel writes into a window of ours and reads out of it; we write
// into its memory and read out of that; each is told.
func TestARealAgentAndAWindow(t *testing.T) {
	for _, cgo := range []string{"0", "1"} {
		t.Run("CGO_ENABLED="+cgo, func(t *testing.T) {
			c := helperConfig(t)
			c.Path = builtWith(t, cgo)
			agentAndWindow(t, c)
		})
	}
}

func agentAndWindow(t *testing.T, c HelperConfig) {
	const n = 100_000
	app := wheel.Start(t, "app", 1<<20)
	p, box := newProcess(t, c, "house")
	staging, _ := mapped(t, p, 0, true)
	mine, at := mapped(t, p, 1, false)
	blob, err := ask[*control.Blob](t.Context(), p, &control.Metadata{}, -1)
	if err != nil {
		t.Fatal(err)
	}
	if name := app.Load(blob.Blob); name != "house" {
		t.Fatalf("it loaded %q", name)
	}
	in := testbed.Content(n, 1)
	app.Put(0, in)
	app.Write("house", 0, at+64, n, "it is there")
	if got := <-box; got.peer != "app" || string(got.text) != "it is there" {
		t.Errorf("the notification is %q", got)
	}
	if !bytes.Equal(mine[64:64+n], in) {
		t.Error("it wrote other bytes into the window")
	}
	out := testbed.Content(n, 2)
	copy(mine[200_000:], out)
	app.Read("house", 500_000, at+200_000, n, "I have it")
	if got := <-box; string(got.text) != "I have it" {
		t.Errorf("the notification is %q", got)
	}
	if !bytes.Equal(app.Get(500_000, n), out) {
		t.Error("it read other bytes out of the window")
	}

	loaded, err := ask[*control.Loaded](t.Context(), p, &control.Load{Blob: app.Metadata}, -1)
	if err != nil || loaded.Peer != "app" {
		t.Fatal(loaded, err)
	}
	copy(staging[200_000:], out)
	halves := []control.Part{{Off: 200_000, Addr: app.Addr + 700_000, Len: n / 2}, {Off: 200_000 + n/2, Addr: app.Addr + 700_000 + n/2, Len: n / 2}}
	if _, err := ask[*control.Done](t.Context(), p, &control.Move{Write: true, Peer: "app", Notif: []byte("yours"), Parts: halves}, -1); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "it is told", func() bool {
		list := app.Notifs()
		return len(list) == 1 && list[0] == [2]string{"house", "yours"}
	})
	if !bytes.Equal(app.Get(700_000, n), out) {
		t.Error("other bytes lie in its memory")
	}
	if _, err := ask[*control.Done](t.Context(), p, &control.Move{Peer: "app", Parts: []control.Part{{Off: 400_000, Addr: app.Addr, Len: n}}}, -1); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(staging[400_000:400_000+n], in) {
		t.Error("other bytes were read out of its memory")
	}
}
