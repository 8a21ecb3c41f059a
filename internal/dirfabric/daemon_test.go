package dirfabric

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"meridian/agent"
	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/conformance/chaos"
	"meridian/internal/testbed"
	"meridian/wire"
)

// daemonArgument makes the test binary a daemon that has this fabric: CONFIG and
// PORTSFILE follow.
const daemonArgument = "dirfabric-test-daemon"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == daemonArgument {
		if err := daemon(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// daemon is all that a program needs to bring a fabric of its own.
func daemon(path, ports string) error {
	own := Opener()
	cfg, _, err := openers.Load(config.Options{Path: path}, own)
	if err != nil {
		return err
	}
	return agent.Run(context.Background(), cfg, agent.Options{Openers: []openers.Opener{own}}, ports)
}

var until = testbed.Until

// house is a configuration with two directories: attic takes small blocks, and
// cellar the others; with through before a store is acknowledged.
type house struct{ dir string }

func newHouse(t *testing.T, through bool) house {
	t.Helper()
	dir := testbed.ShortDir(t)
	h := house{dir}
	text := fmt.Sprintf(`[agent]
name = "house"
state_dir = "state"
[engine]
socket = %q
staging_bytes = "4MiB"
[admin]
socket = %q
[security]
tenants = ["acme"]
[kv_memory]
capacity_bytes = "16MiB"
[disagg]
enabled = true
fabric = "cellar"
write_through = %v
[[route]]
max_bytes = "16KiB"
fabric = "attic"
[[route]]
fabric = "cellar"
[fabric.attic]
kind = "dir"
path = "attic"
[fabric.cellar]
kind = "dir"
path = "cellar"
quota_bytes = "4MiB"
`, h.at("e"), h.at("a"), through)
	if err := os.WriteFile(h.at("m.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h house) at(name string) string { return filepath.Join(h.dir, name) }

// start runs the daemon in a process of its own; http is its page.
func (h house) start(t *testing.T) (stop func(), page string) {
	t.Helper()
	_ = os.Remove(h.at("ports"))
	cmd := exec.Command(os.Args[0], daemonArgument, h.at("m.toml"), h.at("ports"))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(stop)
	var ports map[string][]string
	until(t, "the daemon listens", func() bool {
		b, err := os.ReadFile(h.at("ports"))
		return err == nil && json.Unmarshal(b, &ports) == nil
	})
	until(t, "the daemon is ready", func() bool {
		res, err := http.Get(ports["http"][0] + "/readyz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return stop, ports["http"][0]
}

func (h house) engine(t *testing.T) (*client.Engine, client.NS) {
	t.Helper()
	e, err := client.DialEngine(t.Context(), h.at("e"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	ns, err := e.Open(t.Context(), manifest)
	if err != nil {
		t.Fatal(err)
	}
	return e, ns
}

var manifest = wire.Manifest{
	Tenant: "acme", Model: "qwen3-8b", Revision: "r1", Role: "kv", Dtype: "bf16", Layout: "nhd", BlockTokens: 16, BlockBytes: 64 << 10,
	KVHeads: 8, HeadSize: 128, LayerLast: 27, TPSize: 1, PPSize: 1, DCPSize: 1, HashScheme: "test",
}

func keysOf(name string, n int) []wire.Key {
	keys := make([]wire.Key, n)
	for i := range keys {
		keys[i] = wire.KeyOf(manifest.Namespace(), fmt.Appendf(nil, "%s %d", name, i))
	}
	return keys
}

func put(t *testing.T, e *client.Engine, ns client.NS, keys []wire.Key, size int, tier wire.Tier, request uint32) {
	t.Helper()
	list := make([]client.Block, len(keys))
	for i, k := range keys {
		list[i] = client.Block{NS: ns, Key: k, Tier: tier, Req: request, Body: make([]byte, size)}
		chaos.Body(list[i].Body, k)
	}
	for i, err := range e.Put(t.Context(), list) {
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
	}
}

// think runs a request that stops thinking, so that its blocks are off-loaded.
func think(t *testing.T, e *client.Engine, ns client.NS, keys []wire.Key, size int) {
	t.Helper()
	const start, end, eos, word = 151667, 151668, 151645, 1000
	req, err := e.Begin(t.Context(), client.Begin{ID: "r", Model: "qwen3-8b", Prompt: []int32{word, start}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if err := e.Tokens([]uint32{req}, []uint8{2}, []int32{word, word}); err != nil {
			t.Fatal(err)
		}
		put(t, e, ns, keys[i:i+1], size, wire.ThinkActive, req)
	}
	if err := e.Tokens([]uint32{req}, []uint8{3}, []int32{end, word, eos}); err != nil {
		t.Fatal(err)
	}
	if err := e.Finish(t.Context(), req, false); err != nil {
		t.Fatal(err)
	}
}

// fetch loads blocks from wherever they are, and checks what is served.
func fetch(t *testing.T, e *client.Engine, ns client.NS, keys []wire.Key) []error {
	t.Helper()
	errs := make([]error, len(keys))
	l, err := e.Acquire(t.Context(), ns, keys, client.AcquireOptions{Fetch: true})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer l.Release()
	for i, b := range l.Blocks {
		if errs[i] = b.Err; b.Err == nil {
			if err := chaos.CheckBody(b.Body, keys[i]); err != nil || len(b.Body) == 0 {
				t.Errorf("block %d: wrong bytes were served: %v", i, err)
			}
		}
	}
	return errs
}

func mustFetch(t *testing.T, e *client.Engine, ns client.NS, keys []wire.Key) {
	t.Helper()
	for i, err := range fetch(t, e, ns, keys) {
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
	}
}

// series is the value of a sample of /metrics.
func series(t *testing.T, page, sample string) string {
	t.Helper()
	res, err := http.Get(page + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, sample+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func blockFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+fileSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A daemon whose program is not ours off-loads and loads through a fabric
// that none of its packages knows, in two directories under two names, and finds the
// blocks again after it was killed.
func TestADaemonMovesBlocksThroughAFabricFromOutside(t *testing.T) {
	h := newHouse(t, false)
	stop, page := h.start(t)
	e, ns := h.engine(t)
	small, large := keysOf("small", 4), keysOf("large", 8)
	think(t, e, ns, small, 8<<10)
	think(t, e, ns, large, 64<<10)
	until(t, "each block has left for the fabric of its route", func() bool {
		return len(blockFiles(t, h.at("attic"))) == len(small) && len(blockFiles(t, h.at("cellar"))) == len(large)
	})
	until(t, "they are counted under the name of the fabric", func() bool {
		return series(t, page, `meridian_disagg_blocks_offloaded_total{fabric="attic"}`) == "4" &&
			series(t, page, `meridian_disagg_blocks_offloaded_total{fabric="cellar"}`) == "8"
	})

	stop()
	_, page = h.start(t)
	e, ns = h.engine(t)
	mustFetch(t, e, ns, small)
	mustFetch(t, e, ns, large)
	for name, want := range map[string]string{"attic": "4", "cellar": "8"} {
		sample := fmt.Sprintf(`meridian_transfer_blocks_total{class="urgent",direction="in",fabric=%q,operation="pull",outcome="ok"}`, name)
		if got := series(t, page, sample); got != want {
			t.Errorf("%s is %q, want %s", sample, got, want)
		}
	}
	h.listed(t)
}

// listed: each fabric has its line of mrdn fabric list, and its findings.
func (h house) listed(t *testing.T) {
	t.Helper()
	a, err := client.DialAdmin(t.Context(), h.at("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	r, err := a.ListFabrics(t.Context(), &adminpb.ListFabricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range r.Fabrics {
		if f.Persistent {
			lines = append(lines, fmt.Sprintln(f.Label, f.Via, f.Verified, f.Probes, f.MaxBatch))
		}
	}
	if want := []string{"attic [file] true true 1024\n", "cellar [file] true true 1024\n"}; !slices.Equal(lines, want) {
		t.Errorf("listed %q, want %q", lines, want)
	}
	doctor, err := a.Doctor(t.Context(), &adminpb.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, f := range doctor.Findings {
		if strings.HasPrefix(f.Id, "attic.") {
			ids = append(ids, f.Id+" "+f.Severity.String())
		}
	}
	if want := []string{"attic.damaged SEVERITY_OK", "attic.ignored SEVERITY_OK", "attic.directory SEVERITY_OK"}; !slices.Equal(ids, want) {
		t.Errorf("findings %q, want %q", ids, want)
	}
}
