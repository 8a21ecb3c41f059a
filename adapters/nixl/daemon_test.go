package nixl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/adapters/nixl/internal/wheel"
	"meridian/agent"
	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/fabric/lent/notice"
	"meridian/internal/realpart"
	"meridian/internal/testbed"
	"meridian/wire"
)

// house is a daemon as its configuration makes it.
type house struct {
	t      *testing.T
	ports  map[string][]string
	admin  *client.Admin
	engine *client.Engine
	ns     client.NS
	space  wire.Namespace
}

// topologyFile is the variable by which a test gives a daemon a topology file.
const topologyFile = "MERIDIAN_AGENT_TOPOLOGY_FILE"

// newHouse starts a daemon with a fabric of NIXL, whose table has these lines.
func newHouse(t *testing.T, table string) *house {
	t.Helper()
	dir := testbed.ShortDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	text := fmt.Sprintf(`[agent]
name = "house"
state_dir = "state"
[engine]
socket = %q
staging_bytes = "1MiB"
[admin]
socket = %q
[security]
tenants = ["acme"]
[kv_memory]
capacity_bytes = "16MiB"
[disagg]
enabled = true
fabric = "nixl"
write_through = true
[fabric.nixl]
window_bytes = "1MiB"
staging_bytes = "16MiB"
tenants = ["acme"]
notify = true
`, at("e"), at("a")) + table
	if err := os.WriteFile(at("m.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Options{Path: at("m.toml"), Env: []string{topologyFile + "=" + os.Getenv(topologyFile)}, Kinds: openers.Kinds()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, cfg, agent.Options{Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, at("ports"))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var ports map[string][]string
	testbed.Until(t, "the daemon listens", func() bool {
		b, err := os.ReadFile(at("ports"))
		return err == nil && json.Unmarshal(b, &ports) == nil
	})
	h := &house{t: t, ports: ports}
	if h.engine, err = client.DialEngine(t.Context(), at("e"), client.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.engine.Close() })
	if h.admin, err = client.DialAdmin(t.Context(), ports["admin"][0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.admin.Close() })
	m := wire.Manifest{Tenant: "acme", Model: "m", Role: "kv", BlockTokens: 16, BlockBytes: 64 << 10}
	if h.ns, err = h.engine.Open(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	h.space = m.Namespace()
	return h
}

// body is what the engine reads of a block.
func (h *house) body(key wire.Key) []byte {
	h.t.Helper()
	lease, err := h.engine.Acquire(h.t.Context(), h.ns, []wire.Key{key}, client.AcquireOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer lease.Release()
	if b := lease.Blocks[0]; b.Err != nil {
		h.t.Error(b.Err)
	}
	return bytes.Clone(lease.Blocks[0].Body)
}

// think runs a request that puts a block while it thinks, and then stops thinking.
func (h *house) think(key wire.Key, body []byte) {
	t, e := h.t, h.engine
	t.Helper()
	const start, end, eos, word = 151667, 151668, 151645, 1000
	req, err := e.Begin(t.Context(), client.Begin{ID: "r", Model: "qwen3-8b", Prompt: []int32{word, start}})
	if err == nil {
		err = e.Tokens([]uint32{req}, []uint8{2}, []int32{word, word})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Put(t.Context(), []client.Block{{NS: h.ns, Key: key, Tier: wire.ThinkActive, Body: body, Req: req}})[0]; err != nil {
		t.Fatal(err)
	}
	if err := e.Tokens([]uint32{req}, []uint8{3}, []int32{end, word, eos}); err != nil {
		t.Fatal(err)
	}
	if err := e.Finish(t.Context(), req, false); err != nil {
		t.Fatal(err)
	}
}

// app is a real agent, and what it was told.
type app struct {
	*wheel.Agent
	t    *testing.T
	told [][2]string
}

// hear waits for a notification, takes it, and returns who sent it and what follows.
func (a *app) hear(begin string) (from, rest string) {
	a.t.Helper()
	testbed.Until(a.t, "the application is told "+begin, func() bool {
		a.told = append(a.told, a.Notifs()...)
		for i, n := range a.told {
			if text, ours := strings.CutPrefix(n[1], begin); ours {
				from, rest = n[0], text
				a.told = append(a.told[:i], a.told[i+1:]...)
				return true
			}
		}
		return false
	})
	return from, rest
}

func helperPath(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meridian-ffi")
	if out, err := exec.Command("go", "build", "-o", path, "meridian/cmd/meridian-ffi").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// A daemon as its configuration makes it, an engine of Meridian, and an unmodified NIXL
// agent: a stored block goes out to the application, one of the application comes in and
// is read by the engine, and the application asks for one.
func TestADaemonSharesBlocksWithARealAgent(t *testing.T) {
	a := &app{Agent: wheel.Listen(t, "app", 8<<20), t: t}
	h := newHouse(t, nixlTable(t, "app="+a.Listen))
	sharesBlocks(t, a, h, func(string) {})
}

// nixlTable is a table with the real library, one peer, and more lines.
func nixlTable(t *testing.T, peer string, lines ...string) string {
	return fmt.Sprintf("peers = [%q]\nlibrary = %q\nhelper = %q\n", peer, realpart.Packages(t, "peers"), helperPath(t)) + strings.Join(lines, "\n") + "\n"
}

// sharesBlocks is what an application with 8 MiB and a daemon do for each other. meet is
// how the application gets the metadata of the daemon's agent, where it does not have
// them yet.
func sharesBlocks(t *testing.T, a *app, h *house, meet func(from string)) {
	t.Helper()
	from, text := a.hear("mrdn window ")
	meet(from)
	testbed.Until(t, "the application knows the daemon's agent", func() bool { return a.Knows(from) })
	var window uint64
	var n int
	testbed.Scan(t, text, &window, &n)
	if n != 1<<20 {
		t.Errorf("the window has %d bytes", n)
	}
	a.Notify(from, fmt.Sprintf("mrdn lend %d %d", a.Addr, 4<<20))
	a.hear("mrdn lend-done ")

	out, in := wire.KeyOf(h.space, []byte("out")), wire.KeyOf(h.space, []byte("in"))
	body := testbed.Content(50_000, 1)
	h.think(out, body)
	_, text = a.hear(fmt.Sprintf("mrdn stored %v %v ", h.space, out))
	var addr uint64
	testbed.Scan(t, text, &addr, &n)
	want, err := wire.AppendPayload(nil, wire.ThinkActive, body) // the tier that it was put with
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Get(int(addr-a.Addr), n); !bytes.Equal(got, want) {
		t.Error("other bytes lie in the application's memory")
	}

	payload, err := wire.AppendPayload(nil, wire.ThinkActive, testbed.Content(60_000, 2))
	if err != nil {
		t.Fatal(err)
	}
	a.Put(4<<20, payload)
	a.Write(from, 4<<20, window+100, len(payload), fmt.Sprintf("mrdn put %v %v %d %d", h.space, in, window+100, len(payload)))
	a.hear(fmt.Sprintf("mrdn put-done %v %v ", h.space, in))
	if !bytes.Equal(h.body(in), payload[wire.HeaderLen:]) {
		t.Error("the engine reads other bytes than the application brought")
	}
	a.Notify(from, fmt.Sprintf("mrdn get %v %v %d %d", h.space, in, a.Addr+(9<<20), 1<<20))
	a.hear(fmt.Sprintf("mrdn get-refused %v %v ", h.space, in)) // the address is beyond its memory
	a.Notify(from, fmt.Sprintf("mrdn get %v %v %d %d", h.space, in, a.Addr+(5<<20), 1<<20))
	a.hear(fmt.Sprintf("mrdn get-done %v %v ", h.space, in))
	if got := a.Get(5<<20, len(payload)); !bytes.Equal(got, payload) {
		t.Errorf("the application got other bytes: header %x, want %x", got[:wire.HeaderLen], payload[:wire.HeaderLen])
	}
	for name, c := range map[string]struct{ ask, code string }{
		"a namespace that nobody opened": {fmt.Sprintf("put %v %v %d %d", wire.Namespace{1}, in, window, len(payload)), "NS_UNKNOWN"},
		"a place beyond the window":      {fmt.Sprintf("put %v %v %d %d", h.space, in, window+1<<20-10, len(payload)), "INVALID"},
		"bytes that are no payload":      {fmt.Sprintf("put %v %v %d %d", h.space, in, window+200, len(payload)), "MAGIC"},
		"a block that is not here":       {fmt.Sprintf("get %v %v %d %d", h.space, wire.Key{1}, a.Addr, 1<<20), "ABSENT"},
	} {
		a.Notify(from, "mrdn "+c.ask)
		verb := c.ask[:3]
		if _, rest := a.hear("mrdn " + verb + "-refused "); !strings.HasSuffix(rest, " "+c.code) {
			t.Errorf("%s: %s, want %s", name, rest, c.code)
		}
	}
}

// Without NIXL the daemon starts, says why that is absent, and does everything else.
func TestADaemonWithoutNIXLStartsAndSaysWhy(t *testing.T) {
	empty := t.TempDir()
	h := newHouse(t, fmt.Sprintf("peers = [\"app=127.0.0.1:1\"]\nlibrary = %q\nhelper = %q\n", empty, helperPath(t)))
	testbed.Until(t, "the list of fabrics says what is missing", func() bool {
		list, err := h.admin.ListFabrics(t.Context(), &adminpb.ListFabricsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list.GetFabrics() {
			if f.GetLabel() == "nixl" && !f.GetEnabled() {
				return strings.Contains(f.GetReason(), "libnixl_capi.so was not found") && strings.Contains(f.GetReason(), empty) && strings.Contains(f.GetReason(), "pip install --no-deps nixl-cu12")
			}
		}
		return false
	})
	key := wire.KeyOf(h.space, []byte("here"))
	body := testbed.Content(1000, 3)
	if err := h.engine.Put(t.Context(), []client.Block{{NS: h.ns, Key: key, Tier: wire.ThinkActive, Body: body}})[0]; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(h.body(key), body) {
		t.Error("the engine reads other bytes than it put")
	}
}

// The self-test moves a block over each path once its peer has lent memory; one that fails
// is named where the daemon says why it is not ready.
func TestReadinessNamesAPathOfNIXLThatFails(t *testing.T) {
	a := &app{Agent: wheel.Listen(t, "app", 1<<20), t: t}
	h := newHouse(t, fmt.Sprintf("peers = [\"app=%s\"]\nlibrary = %q\nhelper = %q\nenvironment = [\"UCX_TLS=tcp,self\"]\nemulation = \"refuse\"\n", a.Listen, realpart.Packages(t, "peers"), helperPath(t)))
	from, _ := a.hear("mrdn window ")
	status := func() *adminpb.StatusResponse {
		st, err := h.admin.Status(t.Context(), &adminpb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	testbed.Until(t, "the daemon is ready: its peer is there, and has no memory to test with", func() bool { return status().GetReady() })
	a.Notify(from, fmt.Sprintf("mrdn lend %d %d", a.Addr, 1<<20))
	testbed.Until(t, "the daemon says why the path fails", func() bool {
		for _, r := range status().GetReasons() {
			if r.GetId() == "selftest.nixl" && strings.HasPrefix(r.GetText(), "app: ") && strings.Contains(r.GetText(), `UCX has no transport for reads of peer app without emulation, which emulation = "refuse" forbids`) {
				return true
			}
		}
		return false
	})
}

// A payload of which a part is missing in the window is refused by its checksum, and is no
// block; a notification that is lost can be sent again, and one that comes twice is as good.
func TestAPutThatIsHalfWrittenOrHalfTold(t *testing.T) {
	a := &app{Agent: wheel.Listen(t, "app", 1<<20), t: t}
	h := newHouse(t, fmt.Sprintf("peers = [\"app=%s\"]\nlibrary = %q\nhelper = %q\n", a.Listen, realpart.Packages(t, "peers"), helperPath(t)))
	from, text := a.hear("mrdn window ")
	var window uint64
	var n int
	testbed.Scan(t, text, &window, &n)
	key := wire.KeyOf(h.space, []byte("half"))
	payload, err := wire.AppendPayload(nil, wire.ThinkActive, testbed.Content(60_000, 4))
	if err != nil {
		t.Fatal(err)
	}
	a.Put(0, payload)
	what := fmt.Sprintf("%v %v %d %d", h.space, key, window, len(payload))
	a.Write(from, 0, window, len(payload)/2, "mrdn put "+what)
	if _, rest := a.hear("mrdn put-refused "); rest != what+" CHECKSUM" {
		t.Errorf("half of a payload: %s", rest)
	}
	absent := func(when string) {
		t.Helper()
		lease, err := h.engine.Acquire(t.Context(), h.ns, []wire.Key{key}, client.AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release()
		if lease.Blocks[0].Err == nil {
			t.Errorf("%s it is a block", when)
		}
	}
	absent("half of it written,")
	a.Write(from, 0, window, len(payload), "")
	absent("without a notification")
	for range 2 {
		a.Notify(from, "mrdn put "+what)
		a.hear("mrdn put-done " + what)
	}
	if !bytes.Equal(h.body(key), payload[wire.HeaderLen:]) {
		t.Error("the engine reads other bytes than the application brought")
	}
}

// One notification of a real agent names several blocks, and one of ours says what became
// of each. Of one with a line that may not be asked for nothing is done.
func TestOneNotificationPutsSeveralBlocks(t *testing.T) {
	a := &app{Agent: wheel.Listen(t, "app", 1<<20), t: t}
	h := newHouse(t, fmt.Sprintf("peers = [\"app=%s\"]\nlibrary = %q\nhelper = %q\n", a.Listen, realpart.Packages(t, "peers"), helperPath(t)))
	from, text := a.hear("mrdn window ")
	var window uint64
	var n int
	testbed.Scan(t, text, &window, &n)
	const count, bad, each, body = notice.MaxLines, 7, 4096, 3000
	var asked, told []string
	var bodies [][]byte
	var keys []wire.Key
	for i := range count {
		payload, err := wire.AppendPayload(nil, wire.ThinkActive, testbed.Content(body, uint64(100+i)))
		if err != nil {
			t.Fatal(err)
		}
		bodies, keys = append(bodies, bytes.Clone(payload[wire.HeaderLen:])), append(keys, wire.KeyOf(h.space, fmt.Append(nil, i)))
		m := notice.Notice{Verb: notice.Put, NS: h.space, Key: keys[i], Addr: window + uint64(i)*each, Len: uint64(len(payload))}
		code := wire.CodeOK
		if i == bad {
			payload[len(payload)-1] ^= 1
			code = wire.CodeChecksum
		}
		a.Put(i*each, payload)
		asked, told = append(asked, m.String()), append(told, m.Answer(code))
	}
	a.Write(from, 0, window, count*each, strings.Join(append(slices.Clone(asked[1:]), "mrdn lend 5 7"), "\n"))
	a.Notify(from, strings.Join(asked, "\n"))
	if _, rest := a.hear("mrdn put-"); "mrdn put-"+rest != strings.Join(told, "\n") {
		t.Errorf("it is told %q, want %q", rest, told)
	}
	lease, err := h.engine.Acquire(t.Context(), h.ns, keys, client.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	for i, b := range lease.Blocks[:bad] {
		if b.Err != nil || !bytes.Equal(b.Body, bodies[i]) {
			t.Errorf("block %d: %v, %d bytes", i, b.Err, len(b.Body))
		}
	}
	for i := range keys[bad+1:] {
		if i += bad + 1; !bytes.Equal(h.body(keys[i]), bodies[i]) {
			t.Errorf("the engine reads other bytes of block %d than the application brought", i)
		}
	}
	if lease.Blocks[bad].Err == nil {
		t.Error("a damaged payload is a block")
	}
}

// A helper that cannot serve is named with the library's own reason, and the daemon goes on.
func TestADaemonNamesWhyNIXLCannotServe(t *testing.T) {
	for name, c := range map[string]struct {
		table string
		want  []string
	}{
		"a plugin that does not load":    {"backend = \"GDS\"\n", []string{"plugin GDS cannot be loaded", "plugins of"}},
		"a plugin that is not there":     {"backend = \"NONE\"\n", []string{"plugin NONE cannot be loaded", "UCX"}},
		"UCX without a usable transport": {"environment = [\"UCX_TLS=nothing\"]\n", []string{"backend UCX", "UCX said: no usable transports/devices (asked nothing on network:lo"}},
		"a device that is not there":     {"devices = \"none0\"\ninsecure = true\n", []string{"backend UCX", "UCX said: no active messages transport"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, fmt.Sprintf("peers = [\"app=127.0.0.1:1\"]\nlibrary = %q\nhelper = %q\n", realpart.Packages(t, "peers"), helperPath(t))+c.table)
			testbed.Until(t, "the list of fabrics says why", func() bool {
				list, err := h.admin.ListFabrics(t.Context(), &adminpb.ListFabricsRequest{})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range list.GetFabrics() {
					if f.GetLabel() == "nixl" && !f.GetEnabled() {
						return !slices.ContainsFunc(c.want, func(want string) bool { return !strings.Contains(f.GetReason(), want) })
					}
				}
				return false
			})
			key := wire.KeyOf(h.space, []byte(name))
			if err := h.engine.Put(t.Context(), []client.Block{{NS: h.ns, Key: key, Tier: wire.ThinkActive, Body: testbed.Content(1000, 3)}})[0]; err != nil {
				t.Fatal(err)
			}
		})
	}
}
