// Package realstore runs Mooncake's own master and Store client for tests. It imports
// "testing" and is for test binaries only.
package realstore

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"meridian/bench/harness"
	"meridian/internal/realpart"
)

//go:embed store.py
var script string

// WithChecksum has a real client check what it reads, and leave a checksum of what it
// writes.
var WithChecksum = []string{"MOONCAKE_STORE_CHECKSUM=1"}

// SmallSize is the size of the objects of PutMany, in bytes.
const SmallSize = 100

// answerWait bounds each answer of a real part, on a busy machine.
const answerWait = 60 * time.Second

// Bounded is a context that ends with the test, or with the patience for a real part.
func Bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), answerWait)
	t.Cleanup(cancel)
	return ctx
}

// Master is mooncake_master of the wheel.
type Master struct {
	t       testing.TB
	process *harness.Process
	Address string
	admin   string
	flags   []string
	standby bool // another one leads
}

// StartMaster starts one on ports that were free a moment ago.
func StartMaster(t testing.TB, flags ...string) *Master {
	t.Helper()
	m := &Master{t: t, Address: FreeAddress(t), admin: FreeAddress(t), flags: flags}
	m.Start()
	t.Cleanup(m.Stop)
	return m
}

// StartStandby starts one that another one leads.
func StartStandby(t testing.TB, flags ...string) *Master {
	t.Helper()
	m := &Master{t: t, Address: FreeAddress(t), admin: FreeAddress(t), flags: flags, standby: true}
	m.Start()
	t.Cleanup(m.Stop)
	return m
}

// Start starts it again, on the same ports.
func (m *Master) Start() {
	m.t.Helper()
	cmd := realpart.MooncakeMaster(m.t, m.Address, m.admin, m.flags...)
	p, err := harness.Start("mooncake_master", cmd, harness.Options{Log: harness.LogIn(m.t.TempDir(), "master"), Term: true})
	if err != nil {
		m.t.Fatal(err)
	}
	m.process = p
	if err := harness.Poll(Bounded(m.t), p, m.ready); err != nil {
		m.t.Fatal(err, p.Tail())
	}
}

func (m *Master) ready() error {
	r, err := http.Get("http://" + m.admin + "/health")
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	var health struct {
		Ready  bool   `json:"service_ready"`
		Leader string `json:"leader_address"`
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if string(text) == "OK" { // releases before 0.3.12
		return nil
	}
	if err := json.Unmarshal(text, &health); err != nil {
		return err
	}
	if !health.Ready && (!m.standby || health.Leader == "") {
		return errors.New("it is not ready")
	}
	return nil
}

// Stop kills it, and waits for its end.
func (m *Master) Stop() {
	m.process.Kill()
	<-m.process.Done()
}

// FreeAddress is an address of the loopback network that nobody else draws, so that
// the port, which was free, stays so.
func FreeAddress(t testing.TB) string {
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254))
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Client is the Store client of the wheel.
type Client struct {
	t       testing.TB
	process *harness.Process
	dir     string
	files   int
}

// StartClient starts one that lends so many bytes itself.
func StartClient(t testing.TB, master string, segment int, env ...string) *Client {
	t.Helper()
	packages := realpart.Mooncake(t)
	cmd := exec.Command(realpart.Python(t), "-c", script)
	cmd.Env = append(append(os.Environ(), "PYTHONPATH="+packages+":"+filepath.Join(realpart.Root(t), "conformance", "python"), "PYTHONDONTWRITEBYTECODE=1"), env...)
	dir := t.TempDir()
	p, err := harness.Start("store client", cmd, harness.Options{Log: harness.LogIn(dir, "client"), Talk: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{t: t, process: p, dir: dir}
	t.Cleanup(func() {
		p.Kill()
		<-p.Done()
	})
	if got := Ask[int](c, "setup", map[string]any{"master": master, "segment": segment}); got != 0 {
		t.Fatalf("the real client's setup answers %d%s", got, p.Tail())
	}
	return c
}

// Ask has the real client do one thing.
func Ask[T any](c *Client, do string, args map[string]any) T {
	c.t.Helper()
	order := map[string]any{"do": do}
	for k, v := range args {
		order[k] = v
	}
	var a struct {
		Result T      `json:"result"`
		Error  string `json:"error"`
	}
	if err := c.process.Ask(Bounded(c.t), order, &a); err != nil {
		c.t.Fatal(do, err, c.process.Tail())
	}
	if a.Error != "" {
		c.t.Fatal(do, a.Error)
	}
	return a.Result
}

// Put is its answer to a put.
func (c *Client) Put(key string, body []byte) int {
	c.t.Helper()
	file := c.file()
	if err := os.WriteFile(file, body, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return Ask[int](c, "put", map[string]any{"key": key, "file": file})
}

// Get is what it reads; nothing where there is nothing.
func (c *Client) Get(key string) []byte {
	c.t.Helper()
	file := c.file()
	Ask[int](c, "get", map[string]any{"key": key, "file": file})
	b, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *Client) file() string {
	c.files++
	return filepath.Join(c.dir, strconv.Itoa(c.files))
}

// PutMany puts objects that both sides can make, and returns how many puts succeeded.
func (c *Client) PutMany(prefix string, first, last int) int {
	c.t.Helper()
	return Ask[int](c, "put_many", map[string]any{"prefix": prefix, "first": first, "last": last, "size": SmallSize})
}

// GetMany counts those that are right, missing and wrong.
func (c *Client) GetMany(prefix string, first, last int) [3]int {
	c.t.Helper()
	return Ask[[3]int](c, "get_many", map[string]any{"prefix": prefix, "first": first, "last": last, "size": SmallSize})
}

// Expect is GetMany with what it has to answer.
func (c *Client) Expect(prefix string, first, last int, want [3]int) {
	c.t.Helper()
	if got := c.GetMany(prefix, first, last); got != want {
		c.t.Fatalf("%s%d to %d: %d right, %d missing, %d wrong; want %v", prefix, first, last, got[0], got[1], got[2], want)
	}
}

// ExpectNoneWrong is GetMany where some may be missing.
func (c *Client) ExpectNoneWrong(prefix string, first, last int) {
	c.t.Helper()
	if got := c.GetMany(prefix, first, last); got[2] != 0 {
		c.t.Fatalf("%s%d to %d: %d are wrong", prefix, first, last, got[2])
	}
}
