// Package wheel runs the transfer engine of Mooncake's released wheel for tests: a
// Python process that does what a test says. It imports "testing" and is for test
// binaries only.
package wheel

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/internal/realpart"
)

//go:embed engine.py
var script string

// patience bounds each answer; the library's own time limits are 30 s.
const patience = 90 * time.Second

// Engine is a real transfer engine with some memory, on the loopback.
type Engine struct {
	Name string // of its segment
	Addr uint64 // of its memory, in its process
	Host string

	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	log  lockedBuffer
	once sync.Once
}

// Start starts an engine that has n bytes of memory. It ends with the test. env are
// variables of its process, NAME=VALUE.
func Start(t testing.TB, n int, env ...string) *Engine {
	t.Helper()
	e := run(t, env)
	a := e.Ask(map[string]any{"do": "open", "host": e.Host, "bytes": n})
	e.Name, e.Addr = fmt.Sprintf("%s:%d", e.Host, a.Port), a.Addr
	return e
}

// StartAt starts an engine that has a name on a metadata server.
func StartAt(t testing.TB, n int, name, server string) *Engine {
	t.Helper()
	e := run(t, []string{"MC_TCP_BIND_ADDRESS=127.0.0.1"})
	a := e.Ask(map[string]any{"do": "open", "host": name, "meta": server, "bytes": n})
	e.Name, e.Addr = name, a.Addr
	return e
}

// Joins reports whether an engine gets a name on a metadata server; it ends at once.
func Joins(t testing.TB, name, server string) bool {
	t.Helper()
	e := run(t, []string{"MC_TCP_BIND_ADDRESS=127.0.0.1"})
	defer e.Kill()
	return e.ask(map[string]any{"do": "open", "host": name, "meta": server, "bytes": 4096}).Error == ""
}

func run(t testing.TB, env []string) *Engine {
	t.Helper()
	python, packages := realpart.Python(t), realpart.Mooncake(t)
	e := &Engine{t: t, Host: "127.0.0.1"}
	e.cmd = exec.Command(python, "-c", script)
	e.cmd.Env = append(append(os.Environ(), "PYTHONPATH="+packages), env...)
	e.cmd.Stderr = &e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := e.cmd.StdoutPipe()
	if err == nil {
		e.in, err = e.cmd.StdinPipe()
	}
	if err == nil {
		err = e.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	e.out = bufio.NewReader(out)
	t.Cleanup(e.Kill)
	return e
}

// Kill ends the process at once.
func (e *Engine) Kill() {
	e.once.Do(func() {
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait()
	})
}

// End lets the process say goodbye to whom it published itself, and waits for its end.
func (e *Engine) End() {
	e.once.Do(func() {
		_, err := io.WriteString(e.in, `{"do":"end"}`+"\n")
		timer := time.AfterFunc(patience, func() { _ = e.cmd.Process.Kill() })
		defer timer.Stop()
		if err = errors.Join(err, e.cmd.Wait()); err != nil {
			e.t.Errorf("the engine ended with %v\n%s", err, e.log.String())
		}
	})
}

// Answer is what the process says.
type Answer struct {
	Error    string
	Addr     uint64
	Port     int
	RC       int
	Hex      string
	Notifies [][2]string
}

// Ask has one command done.
func (e *Engine) Ask(m map[string]any) Answer {
	e.t.Helper()
	a := e.ask(m)
	if a.Error != "" {
		e.t.Fatalf("%v: it says: %s\n%s", m["do"], a.Error, e.log.String())
	}
	return a
}

// ask is Ask, and an error is an answer.
func (e *Engine) ask(m map[string]any) Answer {
	e.t.Helper()
	b, err := json.Marshal(m)
	if err == nil {
		_, err = e.in.Write(append(b, '\n'))
	}
	timer := time.AfterFunc(patience, func() { _ = e.cmd.Process.Kill() })
	defer timer.Stop()
	var a Answer
	if err == nil {
		var line []byte
		if line, err = e.out.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &a)
		}
	}
	if err != nil {
		e.t.Fatalf("%v: %v\n%s", m["do"], err, e.log.String())
	}
	return a
}

// Put and Get are its memory from an offset on.
func (e *Engine) Put(at int, b []byte) {
	e.t.Helper()
	e.Ask(map[string]any{"do": "put", "at": at, "hex": hex.EncodeToString(b)})
}

// Get is n bytes of its memory from an offset on.
func (e *Engine) Get(at, n int) []byte {
	e.t.Helper()
	b, err := hex.DecodeString(e.Ask(map[string]any{"do": "get", "at": at, "n": n}).Hex)
	if err != nil {
		e.t.Fatal(err)
	}
	return b
}

// Fill puts Content into its memory.
func (e *Engine) Fill(at, n, seed int) {
	e.t.Helper()
	e.Ask(map[string]any{"do": "fill", "at": at, "n": n, "seed": seed})
}

// Shuffle puts random bytes into its memory.
func (e *Engine) Shuffle(at, n int) {
	e.t.Helper()
	e.Ask(map[string]any{"do": "shuffle", "at": at, "n": n})
}

// Digest is the SHA-256 of a part of its memory, in hexadecimal.
func (e *Engine) Digest(at, n int) string {
	e.t.Helper()
	return e.Ask(map[string]any{"do": "digest", "at": at, "n": n}).Hex
}

// Content is what Fill puts.
func Content(n, seed int) []byte {
	var block []byte
	for i := range min(n, 65536)/32 + 1 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d-%d", seed, i))
		block = append(block, sum[:]...)
	}
	block = block[:min(n, 65536)]
	return bytes.Repeat(block, n/max(len(block), 1)+1)[:n]
}

// Mixed cuts n bytes into parts of many sizes.
func Mixed(n int) (at, sizes []int) {
	for i, off := 0, 0; off < n; i++ {
		size := min([]int{1, 4096, 65536, 3, 1 << 20, 24, 5<<20 + 7, 100_000}[i%8], n-off)
		at, sizes = append(at, off), append(sizes, size)
		off += size
	}
	return at, sizes
}

// Move is a batch between its memory and a peer's, and reports whether all of it went well.
type Move struct {
	Peer  string
	Write bool
	Here  []int // offsets in its memory
	There []uint64
	Sizes []int
	// Notify, where it is not empty, follows the batch, from Sender.
	Sender, Notify string
}

// Move reports whether the engine says that all of a batch went well.
func (e *Engine) Move(m Move) bool {
	e.t.Helper()
	ask := map[string]any{"do": "move", "peer": m.Peer, "write": m.Write, "here": m.Here, "there": m.There, "sizes": m.Sizes}
	if m.Notify != "" {
		ask["sender"], ask["notify"] = m.Sender, m.Notify
	}
	return e.Ask(ask).RC == 0
}

// First is the address of the first buffer of a peer's segment, as the engine sees it.
func (e *Engine) First(peer string) uint64 {
	e.t.Helper()
	return e.Ask(map[string]any{"do": "first", "peer": peer}).Addr
}

// Probe reports whether a peer answers a probe.
func (e *Engine) Probe(peer string) bool {
	e.t.Helper()
	return e.Ask(map[string]any{"do": "probe", "peer": peer}).RC == 0
}

// Notifies are the messages that came since it was asked last: sender, text.
func (e *Engine) Notifies() [][2]string {
	e.t.Helper()
	return e.Ask(map[string]any{"do": "notifies"}).Notifies
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.b.Len() > 64<<10 { // the end is what tells
		b.b.Reset()
	}
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
