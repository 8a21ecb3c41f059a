package bridgetest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"meridian/adapters/mooncake/realengine"
	"meridian/adapters/nixl/realagent"
	"meridian/agent"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/internal/realpart"
	"meridian/internal/testbed"
	"meridian/wire"
)

var helper = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "meridian-ffi")
	out, err := exec.Command("go", "build", "-o", path, "meridian/cmd/meridian-ffi").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := helper(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// house is a daemon as its configuration makes it.
type house struct {
	t      *testing.T
	name   string
	dir    string
	ports  map[string][]string
	stop   func()
	engine *client.Engine
	admin  *client.Admin
	ns     client.NS
}

var manifest = wire.Manifest{Tenant: "acme", Model: "m", Role: "kv", BlockTokens: 16, BlockBytes: 256 << 10}

var space = manifest.Namespace()

// start runs a daemon, and an engine that has the namespace open; text are the tables
// besides those that each daemon has.
func start(t *testing.T, name, text string) *house {
	t.Helper()
	return startSized(t, name, "32MiB", "1MiB", manifest, text)
}

// startSized is start with an arena, a staging ring and a namespace of other sizes.
func startSized(t *testing.T, name, capacity, staging string, manifest wire.Manifest, text string) *house {
	t.Helper()
	h := startAlone(t, name, capacity, staging, text)
	var err error
	if h.engine, err = client.DialEngine(t.Context(), h.at("e"), client.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.engine.Close() })
	if h.ns, err = h.engine.Open(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
	return h
}

// startAlone runs a daemon without an engine.
func startAlone(t *testing.T, name, capacity, staging, text string) *house {
	t.Helper()
	h := &house{t: t, name: name, dir: testbed.ShortDir(t)}
	text = fmt.Sprintf(`[agent]
name = %q
state_dir = "state"
[engine]
socket = %q
staging_bytes = %q
[admin]
socket = %q
[security]
tenants = ["acme"]
[kv_memory]
capacity_bytes = %q
`, name, h.at("e"), staging, h.at("a"), capacity) + text
	if err := os.WriteFile(h.at("m.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := openers.Load(config.Options{Path: h.at("m.toml")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, cfg, agent.Options{
			Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Reload: func() (*config.Config, []config.Warning, error) {
				return openers.Load(config.Options{Path: h.at("m.toml")})
			},
		}, h.at("ports"))
	}()
	h.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(h.stop)
	testbed.Until(t, "the daemon listens", func() bool {
		b, err := os.ReadFile(h.at("ports"))
		return err == nil && json.Unmarshal(b, &h.ports) == nil
	})
	if h.admin, err = client.DialAdmin(t.Context(), h.ports["admin"][0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.admin.Close() })
	return h
}

func (h *house) at(name string) string { return filepath.Join(h.dir, name) }

// mooncake is the name of its segment.
func (h *house) mooncake() string { return strings.TrimPrefix(h.ports["mooncake"][0], "mooncake://") }

// page is what its HTTP listener answers.
func (h *house) page(path string) string {
	res, err := http.Get(h.ports["http"][0] + path)
	if err != nil {
		return ""
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	return string(b)
}

// shows waits until /metrics has a line.
func (h *house) shows(line string) {
	h.t.Helper()
	testbed.Until(h.t, h.name+": /metrics has "+line, func() bool {
		for _, l := range strings.Split(h.page("/metrics"), "\n") {
			if l == line {
				return true
			}
		}
		return false
	})
}

// metric is the value of a series, as its line has it; "" where it is not there.
func (h *house) metric(series string) string {
	for _, l := range strings.Split(h.page("/metrics"), "\n") {
		if v, ok := strings.CutPrefix(l, series+" "); ok {
			return v
		}
	}
	return ""
}

// nixlApp is a real NIXL agent, and what it was told.
type nixlApp struct {
	*realagent.Agent
	t      *testing.T
	house  string // our agent, as it knows it
	window uint64
	told   [][2]string
}

// newNIXLApp starts an agent; joins is its entry in peers.
func newNIXLApp(t *testing.T, name string) *nixlApp {
	return &nixlApp{Agent: realagent.Listen(t, name, 8<<20), t: t}
}

// nixlTable is the table of a fabric whose peers are agents.
func nixlTable(t *testing.T, apps ...*nixlApp) string {
	t.Helper()
	path, err := helper()
	if err != nil {
		t.Fatal(err)
	}
	var peers []string
	for _, a := range apps {
		peers = append(peers, fmt.Sprintf("%q", a.Name+"="+a.Listen))
	}
	return fmt.Sprintf("[fabric.nixl]\npeers = [%s]\nwindow_bytes = \"1MiB\"\nstaging_bytes = \"16MiB\"\ntenants = [\"acme\"]\nnotify = true\nlibrary = %q\nhelper = %q\n",
		strings.Join(peers, ", "), realpart.Packages(t, "peers"), path)
}

// meet waits for the daemon, and lends it memory.
func (a *nixlApp) meet() {
	a.t.Helper()
	var n int
	from, text := a.hear("mrdn window ")
	a.house = from
	testbed.Scan(a.t, text, &a.window, &n)
	a.Notify(from, fmt.Sprintf("mrdn lend %d %d", a.Addr, 4<<20))
	a.hear("mrdn lend-done ")
}

// hear waits for a notification, takes it, and returns who sent it and what follows.
func (a *nixlApp) hear(begin string) (from, rest string) {
	a.t.Helper()
	testbed.Until(a.t, "the NIXL application is told "+begin, func() bool {
		a.told = append(a.told, lines(a.Notifs())...)
		i := slices.IndexFunc(a.told, func(n [2]string) bool { return strings.HasPrefix(n[1], begin) })
		if i < 0 {
			return false
		}
		from, rest = a.told[i][0], strings.TrimPrefix(a.told[i][1], begin)
		a.told = slices.Delete(a.told, i, i+1)
		return true
	})
	return from, rest
}

// takes waits until a block lies in its memory, and returns the payload.
func (a *nixlApp) takes(key wire.Key) []byte {
	a.t.Helper()
	_, text := a.hear(fmt.Sprintf("mrdn stored %v %v ", space, key))
	var addr uint64
	var n int
	testbed.Scan(a.t, text, &addr, &n)
	return a.Get(int(addr-a.Addr), n)
}

// brings writes a payload into its window, and names it.
func (a *nixlApp) brings(key wire.Key, payload []byte) {
	a.t.Helper()
	a.Put(4<<20, payload)
	a.Write(a.house, 4<<20, a.window, len(payload), fmt.Sprintf("mrdn put %v %v %d %d", space, key, a.window, len(payload)))
	a.hear(fmt.Sprintf("mrdn put-done %v %v ", space, key))
}

// asks asks for a block, and returns the payload.
func (a *nixlApp) asks(key wire.Key, n int) []byte {
	a.t.Helper()
	a.Notify(a.house, fmt.Sprintf("mrdn get %v %v %d %d", space, key, a.Addr+(6<<20), n))
	a.hear(fmt.Sprintf("mrdn get-done %v %v ", space, key))
	return a.Get(6<<20, n)
}

// lines are notifications, each line with its sender.
func lines(told [][2]string) (out [][2]string) {
	for _, n := range told {
		for line := range strings.SplitSeq(n[1], "\n") {
			out = append(out, [2]string{n[0], line})
		}
	}
	return out
}

// mooncakeTable is the table of a fabric whose peers are engines.
func mooncakeTable(engines ...*realengine.Engine) string {
	var peers []string
	for i, e := range engines {
		peers = append(peers, fmt.Sprintf("\"app%d=%s\"", i, e.Name))
	}
	return fmt.Sprintf("[fabric.mooncake]\nlisten = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\npeers = [%s]\nmemory_bytes = \"4MiB\"\ntenants = [\"acme\"]\nnotify = true\n", strings.Join(peers, ", "))
}

// mooncakeApp is a real engine of Mooncake, and what it was told.
type mooncakeApp struct {
	*realengine.Engine
	t    *testing.T
	told [][2]string
}

func (a *mooncakeApp) hear(begin string) (rest string) {
	a.t.Helper()
	testbed.Until(a.t, "the Mooncake application is told "+begin, func() bool {
		a.told = append(a.told, lines(a.Notifies())...)
		i := slices.IndexFunc(a.told, func(n [2]string) bool { return strings.HasPrefix(n[1], begin) })
		if i < 0 {
			return false
		}
		rest = strings.TrimPrefix(a.told[i][1], begin)
		a.told = slices.Delete(a.told, i, i+1)
		return true
	})
	return rest
}

func (a *mooncakeApp) takes(key wire.Key) []byte {
	a.t.Helper()
	var addr uint64
	var n int
	testbed.Scan(a.t, a.hear(fmt.Sprintf("mrdn stored %v %v ", space, key)), &addr, &n)
	return a.Get(int(addr-a.Addr), n)
}

// makes makes a payload in its memory, by the writer of conformance/python.
func (a *mooncakeApp) makes(body []byte, tier wire.Tier) (head []byte) {
	a.t.Helper()
	writer := filepath.Join(realpart.Root(a.t), "conformance", "python")
	got := a.Ask(map[string]any{"do": "make", "writer": writer, "at": 4 << 20, "hex": hex.EncodeToString(body), "tier": tier})
	head, err := hex.DecodeString(got.Hex)
	if err != nil {
		a.t.Fatal(err)
	}
	return head
}

// brings writes the payload that it has made into the daemon's window, and names it.
func (a *mooncakeApp) brings(h *house, key wire.Key, n int) {
	a.t.Helper()
	window := a.First(h.mooncake())
	a.Move(realengine.Move{Peer: h.mooncake(), Write: true, Here: []int{4 << 20}, There: []uint64{window}, Sizes: []int{n}, Sender: "app",
		Notify: fmt.Sprintf("mrdn put %v %v %d %d", space, key, window, n)})
}

// gives is brings of a payload that the test has made.
func (a *mooncakeApp) gives(h *house, key wire.Key, payload []byte) {
	a.t.Helper()
	a.Put(4<<20, payload)
	a.brings(h, key, len(payload))
}

func (a *mooncakeApp) asks(h *house, key wire.Key, n int) []byte {
	a.t.Helper()
	a.Move(realengine.Move{Peer: h.mooncake(), Write: true, Here: []int{7 << 20}, There: []uint64{a.First(h.mooncake())}, Sizes: []int{64}, Sender: "app",
		Notify: fmt.Sprintf("mrdn get %v %v %d %d", space, key, a.Addr+(6<<20), n)})
	a.hear(fmt.Sprintf("mrdn get-done %v %v ", space, key))
	return a.Get(6<<20, n)
}

func keyOf(name string) wire.Key { return wire.KeyOf(space, []byte(name)) }

func payloadOf(t *testing.T, tier wire.Tier, body []byte) []byte {
	t.Helper()
	p, err := wire.AppendPayload(nil, tier, body)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// same demands that a payload arrived as it left, and prints both headers.
func same(t *testing.T, what string, left, arrived []byte) {
	t.Helper()
	t.Logf("%s: header at its maker %x", what, left[:wire.HeaderLen])
	t.Logf("%s: header that arrived %x", what, arrived[:wire.HeaderLen])
	if !bytes.Equal(left, arrived) {
		t.Errorf("%s: other bytes arrived", what)
	}
}
