// Package wheel runs an agent of NIXL's released wheel for tests: a Python process that
// does what a test says. It imports "testing" and is for test binaries only.
package wheel

import (
	"bufio"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/internal/realpart"
	"meridian/internal/testbed"
	"meridian/internal/testlog"
)

//go:embed agent.py
var script string

// Agent is a real NIXL agent with some registered memory, on the loopback.
type Agent struct {
	Name     string
	Addr     uint64 // of its memory, in its process
	Metadata []byte
	Listen   string // HOST:PORT where its metadata is asked for; "": nowhere

	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	log  testlog.Buffer
	once sync.Once
}

// Start starts an agent that has n bytes of memory, with variables NAME=VALUE. It ends
// with the test.
func Start(t testing.TB, name string, n int, env ...string) *Agent {
	return start(t, name, n, false, env)
}

// Listen starts one that tells its metadata, and takes others', by its own listener.
func Listen(t testing.TB, name string, n int) *Agent { return start(t, name, n, true, nil) }

var listening = regexp.MustCompile(`listening on port (\d+)`)

func start(t testing.TB, name string, n int, listen bool, env []string) *Agent {
	t.Helper()
	python, packages := realpart.Python(t), realpart.Packages(t, "peers")
	a := &Agent{Name: name, t: t}
	a.cmd = exec.Command(python, "-c", script)
	a.cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "UCX_NET_DEVICES=lo", "UCX_PROTO_EMULATION_ENABLE=y", "UCX_WARN_UNUSED_ENV_VARS=n", "NIXL_LOG_LEVEL=INFO")
	a.cmd.Env = append(a.cmd.Env, env...)
	a.cmd.Stderr = &a.log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := a.cmd.StdoutPipe()
	if err == nil {
		a.in, err = a.cmd.StdinPipe()
	}
	if err == nil {
		err = a.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	a.out = bufio.NewReader(out)
	t.Cleanup(a.Kill)
	opened := a.ask(map[string]any{"do": "open", "name": name, "bytes": n, "listen": listen})
	a.Addr, a.Metadata = opened.Addr, a.bytes(opened.Hex)
	if listen {
		testbed.Until(t, "the agent listens", func() bool {
			m := listening.FindStringSubmatch(a.log.String())
			if m != nil {
				a.Listen = "127.0.0.1:" + m[1]
			}
			return m != nil
		})
	}
	return a
}

// Kill ends the process at once.
func (a *Agent) Kill() {
	a.once.Do(func() {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
	})
}

// Signal sends the process a signal.
func (a *Agent) Signal(s syscall.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		a.t.Fatal(err)
	}
}

type answer struct {
	Error, Name, Hex string
	Addr             uint64
	Notifs           [][2]string
}

// ask has one command done.
func (a *Agent) ask(m map[string]any) (got answer) {
	a.t.Helper()
	b, err := json.Marshal(m)
	if err == nil {
		_, err = a.in.Write(append(b, '\n'))
	}
	timer := time.AfterFunc(2*testbed.Patience, func() { _ = a.cmd.Process.Kill() })
	defer timer.Stop()
	if err == nil {
		var line []byte
		if line, err = a.out.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &got)
		}
	}
	if err != nil || got.Error != "" {
		a.t.Fatalf("%v: %v, it says: %s\n%s", m["do"], err, got.Error, a.log.String())
	}
	return got
}

func (a *Agent) bytes(text string) []byte {
	a.t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return b
}

// Load makes another agent known to it, and returns that one's name.
func (a *Agent) Load(metadata []byte) string {
	a.t.Helper()
	return a.ask(map[string]any{"do": "load", "hex": hex.EncodeToString(metadata)}).Name
}

// Send sends its metadata to a listener at HOST:PORT; "": to the store that its
// environment names.
func (a *Agent) Send(to string) { a.exchange("send", to, "") }

// Fetch asks for the metadata of another one there. Knows says when they have come.
func (a *Agent) Fetch(name, from string) { a.exchange("fetch", from, name) }

// Withdraw takes its metadata out there.
func (a *Agent) Withdraw(from string) { a.exchange("withdraw", from, "") }

func (a *Agent) exchange(do, at, name string) {
	a.t.Helper()
	m := map[string]any{"do": do}
	if name != "" {
		m["peer"] = name
	}
	if at != "" {
		p := netip.MustParseAddrPort(at)
		m["ip"], m["port"] = p.Addr().String(), p.Port()
	}
	a.ask(m)
}

// Knows reports whether it has the metadata of another one.
func (a *Agent) Knows(name string) bool {
	a.t.Helper()
	return a.ask(map[string]any{"do": "knows", "peer": name}).Name != ""
}

// Log is what its library has said.
func (a *Agent) Log() string { return a.log.String() }

// More registers n bytes more, and returns their address.
func (a *Agent) More(n int) uint64 {
	a.t.Helper()
	return a.ask(map[string]any{"do": "more", "bytes": n}).Addr
}

// Put writes its memory, from at on.
func (a *Agent) Put(at int, b []byte) {
	a.t.Helper()
	a.ask(map[string]any{"do": "put", "at": at, "hex": hex.EncodeToString(b)})
}

// Get reads it.
func (a *Agent) Get(at, n int) []byte {
	a.t.Helper()
	return a.bytes(a.ask(map[string]any{"do": "get", "at": at, "n": n}).Hex)
}

// Write writes n bytes of its memory, from here on, to there in a peer's. The peer gets
// notif behind them.
func (a *Agent) Write(peer string, here int, there uint64, n int, notif string) {
	a.t.Helper()
	a.move("WRITE", peer, here, there, n, notif)
}

// Read reads a peer's memory into its own.
func (a *Agent) Read(peer string, here int, there uint64, n int, notif string) {
	a.t.Helper()
	a.move("READ", peer, here, there, n, notif)
}

func (a *Agent) move(op, peer string, here int, there uint64, n int, notif string) {
	a.t.Helper()
	if state := a.ask(map[string]any{"do": "move", "op": op, "peer": peer, "here": here, "there": there, "n": n, "notif": notif}).Name; state != "DONE" {
		a.t.Fatalf("%s of %d bytes ended as %s\n%s", op, n, state, a.log.String())
	}
}

// Notify sends a notification.
func (a *Agent) Notify(peer, text string) {
	a.t.Helper()
	a.ask(map[string]any{"do": "notify", "peer": peer, "text": text})
}

// Notifs are those that have come since, each with its sender's name.
func (a *Agent) Notifs() [][2]string {
	a.t.Helper()
	return a.ask(map[string]any{"do": "notifs"}).Notifs
}
