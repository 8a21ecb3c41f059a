package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"meridian/adapters/link"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/conformance/chaos"
	"meridian/internal/invariants/leak"
	"meridian/wire"
)

// daemonArgument makes the test binary a daemon: CONFIG PORTSFILE follow.
const daemonArgument = "agent-test-daemon"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == daemonArgument {
		cfg, _, err := openers.Load(config.Options{Path: os.Args[2]})
		if err == nil {
			err = Run(context.Background(), cfg, Options{}, os.Args[3])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

// child starts a daemon in a process of its own and returns where it listens.
func child(t *testing.T, dir, name, text string) (*exec.Cmd, map[string][]string) {
	t.Helper()
	loadConfig(t, dir, name, text) // writes the file, and checks it
	ports := filepath.Join(dir, name+".ports")
	_ = os.Remove(ports)
	cmd := exec.Command(os.Args[0], daemonArgument, filepath.Join(dir, name+".toml"), ports)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var at map[string][]string
	until(t, "the child listens", func() bool {
		b, err := os.ReadFile(ports)
		return err == nil && json.Unmarshal(b, &at) == nil
	})
	return cmd, at
}

// A peer is killed with -9 in the middle of a pull and started again on the same
// sockets and, for who dials it, at the same address: nothing of its old life is served, its engine's
// sockets are taken over, and new blocks come.
func TestKillNineOfAPeerInTheMiddleOfAPull(t *testing.T) {
	dir := shortDir(t)
	first, at := child(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	proxy, err := chaos.NewProxy(chaos.ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: at["link"][0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	decode := startNode(t, dir, "decode", dialler(proxy.Addr(), "prefill"))
	decode.ready(t)
	remote := &testNode{Agent: &Agent{cfg: loadConfig(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))}}
	a, b := remote.engine(t), decode.engine(t)
	keys := a.keys("before", 32)
	a.put(t, keys, 200<<10, wire.OutputCritical, 0)
	proxy.Stall(true) // the pull begins, and its data hangs in the middle
	fetched := make(chan []error, 1)
	go func() { fetched <- b.fetch(t, keys) }()
	until(t, "the pull is under way", func() bool { return decode.node.Stats().Calls > 0 })
	old := decode.node.Peers()[0].Inc
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	proxy.CutAll()
	proxy.Stall(false)
	for i, err := range <-fetched {
		if err == nil {
			t.Errorf("block %d of a peer that was killed before it sent it", i)
		}
	}
	if err := a.Ping(t.Context()); err == nil {
		t.Error("the engine of a killed daemon is still answered")
	}
	_, at = child(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	if err := proxy.Retarget(at["link"][0]); err != nil {
		t.Fatal(err)
	}
	until(t, "the new incarnation is ready", func() bool {
		p := decode.node.Peers()[0]
		return p.State == link.StateReady && p.Inc != old
	})
	if errs := b.fetch(t, keys[:1]); !errors.Is(errs[0], wire.CodeAbsent) {
		t.Errorf("a block of the old incarnation: %v", errs[0])
	}
	a = remote.engine(t)
	fresh := a.keys("after", 8)
	a.put(t, fresh, 200<<10, wire.OutputCritical, 0)
	b.mustFetch(t, fresh)
	decode.quietNow(t)
}

// An engine killed while it holds leases and puts: everything returns.
func TestAnEngineThatGoesReturnsEverything(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	e := n.engine(t)
	keys := e.keys("k", 8)
	e.put(t, keys, 64<<10, wire.OutputCritical, 0)
	for range 3 {
		if _, err := e.Acquire(t.Context(), e.space, keys, client.AcquireOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if st := n.store.Stats(); st.Leases != 3 {
		t.Fatalf("%d leases, want 3", st.Leases)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	n.quietNow(t)
}
