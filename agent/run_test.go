package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/internal/testlog"
	"meridian/wire"
)

func TestRunWritesPortsTellsSystemdReloadsAndDrains(t *testing.T) {
	dir := shortDir(t)
	cfg := loadConfig(t, dir, "one", "")
	sock, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sock.Close() }()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	heard := func() string {
		b := make([]byte, 256)
		_ = sock.SetReadDeadline(time.Now().Add(patience))
		n, err := sock.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	log, level := &testlog.Buffer{}, new(slog.LevelVar)
	next := loadConfig(t, dir, "one", "")
	next.Agent.LogLevel, next.Agent.ReadyMinPeers = slog.LevelDebug, 3
	reloadErr := errors.New("a wrong file")
	reloads := 0
	opt := Options{Log: NewLogger(log, cfg.Agent, level), Level: level, Version: "test", Reload: func() (*config.Config, []config.Warning, error) {
		if reloads++; reloads == 1 {
			return nil, nil, reloadErr
		}
		return next, []config.Warning{{Key: "link.listen", Text: "reaches other hosts"}}, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ports := filepath.Join(dir, "ports")
	go func() { ended <- Run(ctx, cfg, opt, ports) }()
	if got := heard(); got != "READY=1" {
		t.Fatalf("systemd hears %q", got)
	}
	b, err := os.ReadFile(ports)
	if err != nil {
		t.Fatal(err)
	}
	var at map[string][]string
	if err := json.Unmarshal(b, &at); err != nil || len(at["http"]) != 1 || len(at["admin"]) != 1 || len(at["engine"]) != 1 {
		t.Fatalf("ports %s, %v", b, err)
	}
	ready := func() int {
		res, err := http.Get(at["http"][0] + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	until(t, "it is ready", func() bool { return ready() == http.StatusOK })

	hup := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	hup()
	until(t, "a wrong configuration is refused", func() bool { return strings.Contains(log.String(), reloadErr.Error()) })
	if level.Level() != cfg.Agent.LogLevel || ready() != http.StatusOK {
		t.Error("a wrong configuration changed something")
	}
	hup()
	until(t, "the level is taken over", func() bool { return level.Level() == slog.LevelDebug })
	until(t, "the warnings of the new configuration are in the log", func() bool { return strings.Contains(log.String(), "link.listen: reaches other hosts") })
	until(t, "three peers are wanted", func() bool { return ready() == http.StatusServiceUnavailable })
	stop()
	if got := heard(); got != "STOPPING=1" {
		t.Errorf("systemd hears %q", got)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{cfg.Engine.Socket, cfg.Admin.Socket} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

func TestADrainingDaemonRefusesNewRequests(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	e := n.engine(t)
	if err := n.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := e.Acquire(t.Context(), e.space, e.keys("k", 1), client.AcquireOptions{})
	if !errors.Is(err, wire.CodeDraining) {
		t.Errorf("a request after the drain began: %v", err)
	}
	if code, body := n.getCode(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "draining") {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if code, body := n.getCode(t, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
}

func TestASocketInUseStopsTheStartAndLeavesNothing(t *testing.T) {
	dir := shortDir(t)
	n := startNode(t, dir, "one", "")
	if _, err := Start(t.Context(), loadConfig(t, dir, "one", ""), Options{}); err == nil || !strings.Contains(err.Error(), ".e") {
		t.Errorf("a second daemon on the same sockets: %v", err)
	}
	n.engine(t) // the first one is untouched
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	cfg := loadConfig(t, dir, "two", "")
	cfg.Admin.HTTP = held.Addr().String()
	var log strings.Builder // the start has ended, and all that writes with it
	if _, err := Start(t.Context(), cfg, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log tells of a second error, and there is one:\n%s", log.String())
	}
	for _, path := range []string{cfg.Engine.Socket, cfg.Admin.Socket} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left of a start that failed: %v", path, err)
		}
	}
}

func TestTheIdentitySurvivesARestartAndTheIncarnationDoesNot(t *testing.T) {
	dir := shortDir(t)
	first := startNode(t, dir, "one", "")
	_, id, inc := first.Identity()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	_, again, next := startNode(t, dir, "one", "").Identity()
	if id != again || inc == next {
		t.Errorf("id %x then %x, incarnation %d then %d", id, again, inc, next)
	}
	if err := os.WriteFile(filepath.Join(dir, "one.state", "agent-id"), []byte("not an id"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newIdentity(config.Agent{StateDir: filepath.Join(dir, "one.state")}, time.Now()); err == nil || !strings.Contains(err.Error(), "not an id") {
		t.Errorf("a damaged identity: %v", err)
	}
}

func TestVarzIsJSONWithTheRoomsNumbers(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	n.ready(t)
	var v Varz
	if err := json.Unmarshal([]byte(n.get(t, "/varz")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Name != "one" || !v.Ready || v.Blocks.Capacity == 0 || len(v.Ports["engine"]) != 1 {
		t.Errorf("%+v", v)
	}
}
