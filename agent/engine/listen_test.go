package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
)

func TestSocketFile(t *testing.T) {
	n := startNode(t, nil)
	st, err := os.Stat(n.path)
	if err != nil || st.Mode().Perm() != 0o600 || st.Mode().Type() != os.ModeSocket {
		t.Errorf("mode %v (%v), want a socket of 0600", st.Mode(), err)
	}
	_, err = engine.Listen(n.cfg)
	var used *engine.InUseError
	if !errors.As(err, &used) {
		t.Errorf("a second daemon got %v", err)
	}
	n.open(t) // the first is not disturbed
	n.srv.Close()
	if _, err := os.Lstat(n.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket file is still there after Close (%v)", err)
	}
}

func TestStaleSocketIsReplacedAndAFileIsNot(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd) // as a daemon dies: the file stays
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Path = path })
	n.open(t)

	cfg := n.cfg
	cfg.Path = filepath.Join(dir, "file")
	if err := os.WriteFile(cfg.Path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = engine.Listen(cfg)
	is(t, err, wire.CodeConfig)
	if b, _ := os.ReadFile(cfg.Path); string(b) != "precious" {
		t.Error("a file that is no socket was touched")
	}
	cfg.Path = filepath.Join(dir, strings.Repeat("x", 120))
	_, err = engine.Listen(cfg)
	is(t, err, wire.CodeConfig)
}

func TestUsersThatAreNotListedAreRefused(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.UIDs = []uint32{uint32(os.Geteuid()) + 1} })
	_, err := client.DialEngine(ctx, n.path, client.Options{})
	is(t, err, wire.CodeAuth)
}

func TestSessionsAreBounded(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Sessions = 2 })
	a, _ := n.open(t)
	n.open(t)
	_, err := client.DialEngine(ctx, n.path, client.Options{})
	is(t, err, wire.CodeTooMany)
	a.Close()
	n.wait(1)
	for { // the session is taken out right after its last line
		e, err := client.DialEngine(ctx, n.path, client.Options{})
		if err == nil {
			e.Close()
			break
		}
		is(t, err, wire.CodeTooMany)
	}
}

func TestStagingMemoryIsBounded(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.StagingBytes = 1 << 20 })
	first, ns := n.open(t)
	put(t, first, client.Block{NS: ns, Key: keyOf("a"), Body: []byte{1}})
	e, ns := n.open(t)
	refusedRing(t, e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("b"), Body: []byte{1}}})[0], "quota.staging_share")
}
