package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/fabric"
	"meridian/internal/testlog"
	"meridian/wire"
)

// heldFetch starts a fetch whose pull waits until let is called, however long that
// is: no deadline of a peer ends it.
func heldFetch(t *testing.T) (n *testNode, let func(), fetched chan []error) {
	t.Helper()
	far := waitingHolder(t)
	n = startNode(t, shortDir(t), "decode", "", far)
	e := n.engine(t)
	keys := e.keys("slow", 4)
	far.give(t, e.ns, keys, 64<<10)
	fetched = make(chan []error, 1)
	go func() { fetched <- e.fetch(t, keys) }()
	<-far.pulling
	return n, far.let, fetched
}

// A drain refuses what is new and waits for what runs, which may still pull.
func TestADrainLetsRunningRequestsEnd(t *testing.T) {
	decode, let, fetched := heldFetch(t)
	late := decode.engine(t)
	drained := make(chan error, 1)
	go func() { drained <- decode.Drain(t.Context()) }()
	until(t, "it drains", func() bool { return drainState(decode.drain.Load()) == draining && late.Draining() })
	if _, err := late.Acquire(t.Context(), late.space, late.keys("k", 1), client.AcquireOptions{}); !errors.Is(err, wire.CodeDraining) {
		t.Errorf("a new request: %v, want DRAINING", err)
	}
	if _, err := client.DialEngine(t.Context(), decode.cfg.Engine.Socket, client.Options{}); !errors.Is(err, wire.CodeDraining) {
		t.Errorf("a new engine: %v, want DRAINING", err)
	}
	st, err := decode.adminClient(t).Status(t.Context(), &adminpb.StatusRequest{})
	if err != nil || st.Ready || st.Drain != adminpb.DrainState(draining+1) {
		t.Errorf("status %+v, %v", st, err)
	}
	select {
	case err := <-drained:
		t.Fatalf("the drain did not wait: %v", err)
	default:
	}
	let()
	for i, err := range <-fetched {
		if err != nil {
			t.Errorf("running block %d: %v", i, err)
		}
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	if err := decode.Drain(t.Context()); err != nil {
		t.Errorf("a second drain: %v", err)
	}
}

// The context's end ends a drain whatever still runs.
func TestADrainIsBounded(t *testing.T) {
	decode, _, fetched := heldFetch(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := decode.shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	for i, err := range <-fetched {
		if err == nil {
			t.Errorf("block %d was served by a daemon that is gone", i)
		}
	}
	if !strings.Contains(decode.log.String(), "drain ended early") {
		t.Error("the log does not say that the drain ended early")
	}
}

// SIGTERM drains, a second one ends the drain at once.
func TestASecondSignalEndsTheDrain(t *testing.T) {
	signals := make(chan os.Signal, 2) // else a late signal would end the tests
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	dir, far := shortDir(t), waitingHolder(t)
	cfg := loadConfig(t, dir, "decode", "")
	cfg.Agent.DrainTimeout = time.Hour
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	systemd := systemdSocket(t, filepath.Join(dir, "notify"))
	log, ports := &testlog.Buffer{}, filepath.Join(dir, "ports")
	opt := Options{Log: NewLogger(log, cfg.Agent, new(slog.LevelVar)), Fabrics: map[string]fabric.Fabric{"far": far}}
	ended := make(chan error, 1)
	go func() { ended <- Run(context.Background(), cfg, opt, ports) }()
	if got := hear(t, systemd); got != "READY=1" {
		t.Fatalf("systemd hears %q", got)
	}
	b := (&testNode{Agent: &Agent{cfg: cfg}}).engine(t)
	keys := b.keys("slow", 4)
	far.give(t, b.ns, keys, 64<<10)
	fetched := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), b.space, keys, client.AcquireOptions{Fetch: true, Deadline: 10 * time.Minute})
		fetched <- err
	}()
	<-far.pulling
	term := func() {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	term()
	if got := hear(t, systemd); got != "STOPPING=1" {
		t.Fatalf("systemd hears %q", got)
	}
	term()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	if err := <-fetched; err == nil {
		t.Error("the fetch ended well, which nothing let it do")
	}
	if !strings.Contains(log.String(), "drain ended early") {
		t.Error("the drain was not cut short")
	}
}

// READY=1 is for systemd: the daemon serves. That peers are missing is readyz's.
func TestSystemdIsToldBeforePeersAreReachable(t *testing.T) {
	dir := shortDir(t)
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	systemd := systemdSocket(t, filepath.Join(dir, "notify"))
	cfg := loadConfig(t, dir, "decode", dialler("tcp://127.0.0.1:1", "prefill"))
	ports := filepath.Join(dir, "ports")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, Options{}, ports) }()
	if got := hear(t, systemd); got != "READY=1" {
		t.Errorf("systemd hears %q", got)
	}
	if _, err := os.Stat(ports); err != nil {
		t.Errorf("the ports file comes later: %v", err)
	}
	c, err := client.DialAdmin(t.Context(), cfg.Admin.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if st, err := c.Status(t.Context(), &adminpb.StatusRequest{}); err != nil || st.Ready {
		t.Errorf("ready without the one peer: %+v, %v", st, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := Run(t.Context(), loadConfig(t, dir, "again", ""), Options{}, filepath.Join(dir, "no such folder", "ports")); err == nil {
		t.Error("a ports file that cannot be written stops nothing")
	}
}

// A start that fails at its last step leaves no goroutine and no file.
func TestAStartThatFailsLeavesNoGoroutine(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	dir := shortDir(t)
	cfg := loadConfig(t, dir, "one", listener("tcp://127.0.0.1:0", "decode"))
	cfg.Admin.HTTP = held.Addr().String()
	before := runtime.NumGoroutine()
	for range 3 {
		if _, err := Start(t.Context(), cfg, Options{}); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("start on a port in use: %v", err)
		}
	}
	until(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	left, err := filepath.Glob(filepath.Join(dir, "one.[ea]*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left of a start that failed: %v", left)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(gone, cfg, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a context that ended: %v", err)
	}
}

// The sockets of a daemon that was killed are taken over.
func TestSocketsOfADeadDaemonAreReplaced(t *testing.T) {
	dir := shortDir(t)
	cfg := loadConfig(t, dir, "one", "")
	for _, path := range []string{cfg.Engine.Socket, cfg.Admin.Socket} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	n := startConfig(t, cfg)
	n.engine(t)
	n.adminClient(t)
	st, err := os.Stat(cfg.Admin.Socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the admin socket has mode %v, %v", st.Mode(), err)
	}
	other := loadConfig(t, shortDir(t), "two", "")
	other.Admin.Socket = cfg.Admin.Socket
	if _, err := Start(t.Context(), other, Options{}); !errors.Is(err, wire.CodeConfig) {
		t.Errorf("an admin socket that is served: %v, want CONFIG", err)
	}
	n.adminClient(t) // still the first one's
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other.Admin.Socket = filepath.Join(dir, "file")
	if _, err := Start(t.Context(), other, Options{}); !errors.Is(err, wire.CodeConfig) {
		t.Errorf("a file that is no socket: %v, want CONFIG", err)
	}
}

func TestListBlocksStopsAtItsLimitAndFilters(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	e := n.engine(t)
	e.put(t, e.keys("prompt", 5), 4<<10, wire.OutputCritical, 0)
	e.put(t, e.keys("cold", 3), 4<<10, wire.ThinkComplete, 0)
	c := n.adminClient(t)
	count := func(req *adminpb.ListBlocksRequest) (rows int) {
		t.Helper()
		s, err := c.ListBlocks(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := s.Recv(); errors.Is(err, io.EOF) {
				return rows
			} else if err != nil {
				t.Fatal(err)
			}
			rows++
		}
	}
	ns := e.ns.String()
	for name, x := range map[string]struct {
		req  *adminpb.ListBlocksRequest
		want int
	}{
		"all of the namespace": {&adminpb.ListBlocksRequest{Namespace: ns}, 8},
		"two":                  {&adminpb.ListBlocksRequest{Namespace: ns, Limit: 2}, 2},
		"one tier":             {&adminpb.ListBlocksRequest{Namespace: ns, Tier: adminpb.Tier_TIER_THINK_COMPLETE}, 3},
		"another namespace":    {&adminpb.ListBlocksRequest{Namespace: strings.Repeat("0", 64)}, 0},
	} {
		if got := count(x.req); got != x.want {
			t.Errorf("%s: %d blocks, want %d", name, got, x.want)
		}
	}
}
