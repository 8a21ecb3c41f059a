package nixl

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/adapters/nixl/internal/wheel"
	"meridian/adapters/nixl/plane"
	"meridian/fabric"
	"meridian/fabric/lent/notice"
	"meridian/internal/testbed"
	"meridian/wire"
)

// item is a block that a test pushes.
func item(t *testing.T, key uint64, n int) fabric.Item {
	it := fabric.Item{NS: wire.Namespace{1}, M: fabric.Mem{B: payload(t, n, key)}}
	binary.LittleEndian.PutUint64(it.Key[:], key)
	return it
}

// A peer that dies is seen, and its blocks are not found; the agent that comes in its
// place is another one.
func TestAPeerThatDiesIsSeen(t *testing.T) {
	app := wheel.Listen(t, "app", 1<<20)
	n := newNode(t, config(t, PeerConfig{"app", app.Listen}))
	from := ""
	testbed.Until(t, "the application is told of its window", func() bool {
		for _, told := range app.Notifs() {
			from = told[0]
		}
		return from != ""
	})
	app.Notify(from, fmt.Sprintf("mrdn lend %d %d", app.Addr, 1<<20))
	lends(t, n, "app")
	list := []fabric.Item{item(t, 1, 1000)}
	if n.Push(t.Context(), list); list[0].Err != nil {
		t.Fatal(list[0].Err)
	}
	h := list[0].H
	app.Kill()
	testbed.Until(t, "the death is seen", func() bool { return n.Usable(wire.Namespace{}) != nil && !n.Keeps(h) })
	list[0].M.B = make([]byte, 2000)
	if n.Pull(t.Context(), list); !errors.Is(list[0].Err, wire.CodeUnreachable) {
		t.Errorf("a pull from a dead peer: %v", list[0].Err)
	}
	testbed.Until(t, "the peer is told as connecting, with the reason", func() bool {
		p := n.Peers()[0]
		return p.State == fabric.PeerConnecting && strings.Contains(p.Text, "refused")
	})
}

// Memory that an application registers when it is connected already can be lent too.
func TestMemoryThatIsRegisteredLaterIsLent(t *testing.T) {
	app := wheel.Listen(t, "app", 1<<16)
	n := newNode(t, config(t, PeerConfig{"app", app.Listen}))
	from, done := "", ""
	hear := func() {
		for _, told := range app.Notifs() {
			if from = told[0]; strings.HasPrefix(told[1], "mrdn lend-done") {
				done = told[1]
			}
		}
	}
	testbed.Until(t, "the application is told of its window", func() bool { hear(); return from != "" })
	text := fmt.Sprintf("%d %d", app.More(1<<20), 1<<20)
	app.Notify(from, "mrdn lend "+text)
	testbed.Until(t, "it is told that its memory is in use", func() bool { hear(); return done != "" })
	if done != "mrdn lend-done "+text {
		t.Errorf("%q, want %q", done, text)
	}
	list := []fabric.Item{item(t, 1, 100_000)}
	if n.Push(t.Context(), list); list[0].Err != nil {
		t.Fatal(list[0].Err)
	}
	want := list[0].M.B
	list[0].M.B = make([]byte, len(want))
	if n.Pull(t.Context(), list); list[0].Err != nil || !bytes.Equal(list[0].M.B, want) {
		t.Errorf("other bytes, or %v", list[0].Err)
	}
}

// stop stops a process, and waits until each of its threads has stopped.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "the process is stopped", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, path := range stats {
			if b, e := os.ReadFile(path); e != nil || !bytes.Contains(b, []byte(") T ")) {
				return false
			}
		}
		return err == nil && len(stats) > 0
	})
}

// A peer that is stopped takes the time of its callers and no more.
func TestAPeerThatIsStoppedCostsADeadline(t *testing.T) {
	far := newLender(t, "far", 1<<20)
	cfg := config(t, PeerConfig{"far", far.addr})
	cfg.Helper.Environment = []string{"UCX_TLS=tcp"} // by cma a stopped process is read and written
	n := newNode(t, cfg)
	lends(t, n, "far")
	list := []fabric.Item{item(t, 1, 100_000)}
	if n.Push(t.Context(), list); list[0].Err != nil {
		t.Fatal(list[0].Err)
	}
	stop(t, far.Pid())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	list[0].M.B = make([]byte, 200_000)
	if n.Pull(ctx, list); !errors.Is(list[0].Err, wire.CodeDeadline) || list[0].Loose {
		t.Errorf("%v, loose %v", list[0].Err, list[0].Loose)
	}
	s := helperOf(t, n)
	s.stage.mu.Lock()
	lost := s.stage.lost
	s.stage.mu.Unlock()
	if lost == 0 {
		t.Error("its staging can be used again, and its transfer has not ended")
	}
	if err := syscall.Kill(far.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "the transfer ends, and its staging is free", func() bool {
		s.stage.mu.Lock()
		defer s.stage.mu.Unlock()
		return s.stage.lost == 0 && s.stage.space.Used == 0
	})
}

func TestASpoiltStagingIsANewHelper(t *testing.T) {
	far := newLender(t, "far", 1<<20)
	n := newNode(t, config(t, PeerConfig{"far", far.addr}))
	s := helperOf(t, n)
	for _, n := range []uint64{MinStaging / 2, 64} {
		at, ok := s.stage.try(&peer{}, n)
		if !ok {
			t.Fatalf("%d bytes of staging are not free", n)
		}
		s.stage.lose(at)
	}
	<-s.quit
	if err := s.err(); !strings.Contains(err.Error(), "more than half of the staging") {
		t.Error(err)
	}
	testbed.Until(t, "another helper serves", func() bool { return helperOf(t, n) != s })
}

// Two peers whose agents have one name are not mixed up: the second one is refused.
func TestTwoPeersOfOneName(t *testing.T) {
	one := newLender(t, "twin", 1<<20)
	n := newNode(t, config(t, PeerConfig{"a", one.addr}, PeerConfig{"b", one.addr}))
	testbed.Until(t, "one is ready and one is refused", func() bool {
		p := n.Peers()
		if p[0].State == fabric.PeerReady {
			p[0], p[1] = p[1], p[0]
		}
		return p[1].State == fabric.PeerReady && p[0].State == fabric.PeerRefused && p[0].Code == wire.CodeConfig && strings.Contains(p[0].Text, `"twin"`)
	})
}

// A listener may say anything.
func TestAListenerThatLies(t *testing.T) {
	frame := func(n uint64, b string) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), b...) }
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"too much":          {frame(1<<40, ""), wire.CodeInvalid},
		"too little":        {frame(3, "abc"), wire.CodeInvalid},
		"no metadata":       {frame(20, strings.Repeat("x", 20)), wire.CodeInvalid},
		"a cut answer":      {frame(1000, string(plane.Load)+"abc"), wire.CodeUnreachable},
		"nothing":           {nil, wire.CodeUnreachable},
		"half of a length":  {[]byte{1, 2}, wire.CodeUnreachable},
		"metadata of zeros": {frame(uint64(len(plane.Load)+5), string(plane.Load)+"\x00\x00\x00\x00\x00"), wire.CodeInvalid},
	} {
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c1, err := ln.Accept(); err == nil {
				_, _ = c1.Write(c.b)
				_ = c1.Close()
			}
		}()
		l, err := dialListener(t.Context(), ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		blob, err := l.metadata(t.Context())
		if err == nil {
			_, err = plane.ParseMetadata(blob)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		l.close()
		_ = ln.Close()
	}
}

func TestWhatAPeerMaySay(t *testing.T) {
	ns, key := wire.Namespace{1}, wire.Key{2}
	for _, m := range []message{{verb: verbLend, addr: 5, n: 7}, {verbPut, ns, key, 8, 100}, {verbGet, ns, key, 9, 100}} {
		if got, err := parseMessages(m.String()); err != nil || len(got) != 1 || got[0] != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	put := message{verbPut, ns, key, 8, 100}.String()
	for text, want := range map[string]error{
		"": wire.CodeInvalid, "mrdn": wire.CodeInvalid, "hello there": wire.CodeInvalid, "mrdn stored 1 2": wire.CodeUnsupported,
		put + " ": wire.CodeInvalid, put + " 1": wire.CodeInvalid, strings.Replace(put, " 100", " 31", 1): wire.CodeInvalid,
		strings.Replace(put, " 8 ", " -8 ", 1): wire.CodeInvalid, "mrdn lend 1": wire.CodeInvalid, "mrdn lend 18446744073709551615 2": wire.CodeInvalid,
		"mrdn put x y 1 100": wire.CodeInvalid, strings.Repeat("x", notice.MaxText+1): wire.CodeTooLarge,
	} {
		if m, err := parseMessages(text); !errors.Is(err, want) {
			t.Errorf("%.60q: %+v, %v, want %v", text, m, err, want)
		}
	}
}

// The helper's environment is ours: nothing of the daemon's own says how NIXL behaves.
func TestTheHelpersEnvironment(t *testing.T) {
	c := HelperConfig{Devices: "eth7", Environment: []string{"UCX_TLS=tcp"}}
	daemon := map[string]string{"HOME": "/home/me", "PATH": "/bin", "UCX_TLS": "all", "NIXL_LOG_LEVEL": "TRACE", "LD_PRELOAD": "x.so"}
	got := "\n" + strings.Join(c.environment(func(name string) string { return daemon[name] }), "\n") + "\n"
	for _, want := range []string{"HOME=/", "MERIDIAN_USER_HOME=/home/me", "UCX_NET_DEVICES=eth7", "UCX_DEBUG_SIGNO=0", "UCX_PROTO_EMULATION_ENABLE=y", "UCX_PROTO_INFO=y", "PATH=/bin", "UCX_TLS=tcp"} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
	for _, never := range []string{"UCX_TLS=all", "NIXL_LOG_LEVEL", "LD_PRELOAD"} {
		if strings.Contains(got, never) {
			t.Errorf("%s is in %s", never, got)
		}
	}
}
