package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/segment"
	"meridian/bench/harness"
	"meridian/internal/realpart"
)

// answerWait bounds each answer of a real part, on a busy machine.
const answerWait = 60 * time.Second

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), answerWait)
	t.Cleanup(cancel)
	return ctx
}

// realMaster is mooncake_master of the wheel.
type realMaster struct {
	t       testing.TB
	process *harness.Process
	address string
	admin   string
	flags   []string
	standby bool // another one leads
}

// startMaster starts one on ports that were free a moment ago.
func startMaster(t testing.TB, flags ...string) *realMaster {
	t.Helper()
	m := &realMaster{t: t, address: freeAddress(t), admin: freeAddress(t), flags: flags}
	m.start()
	t.Cleanup(m.stop)
	return m
}

func (m *realMaster) start() {
	m.t.Helper()
	packages := realpart.Packages(m.t, "peers")
	rpcHost, rpcPort, _ := net.SplitHostPort(m.address)
	adminHost, adminPort, _ := net.SplitHostPort(m.admin)
	cmd := exec.Command(filepath.Join(packages, "mooncake", "mooncake_master"), append([]string{
		"--rpc_address=" + rpcHost, "--rpc_port=" + rpcPort, "--metrics_host=" + adminHost, "--metrics_port=" + adminPort,
		"--rpc_thread_num=2", "--logtostderr=1"}, m.flags...)...)
	p, err := harness.Start("mooncake_master", cmd, harness.Options{Log: harness.LogIn(m.t.TempDir(), "master"), Term: true})
	if err != nil {
		m.t.Fatal(err)
	}
	m.process = p
	if err := harness.Poll(bounded(m.t), p, m.ready); err != nil {
		m.t.Fatal(err, p.Tail())
	}
}

func (m *realMaster) ready() error {
	r, err := http.Get("http://" + m.admin + "/health")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	var health struct {
		Ready  bool   `json:"service_ready"`
		Leader string `json:"leader_address"`
	}
	if err := json.NewDecoder(r.Body).Decode(&health); err != nil {
		return err
	}
	if !health.Ready && (!m.standby || health.Leader == "") {
		return errors.New("it is not ready")
	}
	return nil
}

func (m *realMaster) stop() {
	m.process.Kill()
	<-m.process.Done()
}

func (m *realMaster) masters() Masters {
	v, err := ParseMasters(m.address, "", nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return v
}

// freeAddress is an address of the loopback network that nobody else draws, so that
// the port, which was free, stays so.
func freeAddress(t testing.TB) string {
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254))
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// realClient is the Store client of the wheel.
type realClient struct {
	t       testing.TB
	process *harness.Process
	dir     string
	files   int
}

func startClient(t testing.TB, master string, segment int, env ...string) *realClient {
	t.Helper()
	packages := realpart.Packages(t, "peers")
	cmd := exec.Command(realpart.Python(t), filepath.Join("testdata", "store.py"))
	cmd.Env = append(append(os.Environ(), "PYTHONPATH="+packages+":"+filepath.Join(realpart.Root(t), "conformance", "python"), "PYTHONDONTWRITEBYTECODE=1"), env...)
	dir := t.TempDir()
	p, err := harness.Start("store client", cmd, harness.Options{Log: harness.LogIn(dir, "client"), Talk: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &realClient{t: t, process: p, dir: dir}
	t.Cleanup(func() {
		p.Kill()
		<-p.Done()
	})
	if got := ask[int](c, "setup", map[string]any{"master": master, "segment": segment}); got != 0 {
		t.Fatalf("the real client's setup answers %d%s", got, p.Tail())
	}
	return c
}

func ask[T any](c *realClient, do string, args map[string]any) T {
	c.t.Helper()
	order := map[string]any{"do": do}
	for k, v := range args {
		order[k] = v
	}
	var a struct {
		Result T      `json:"result"`
		Error  string `json:"error"`
	}
	if err := c.process.Ask(bounded(c.t), order, &a); err != nil {
		c.t.Fatal(do, err, c.process.Tail())
	}
	if a.Error != "" {
		c.t.Fatal(do, a.Error)
	}
	return a.Result
}

func (c *realClient) put(key string, body []byte) int {
	c.t.Helper()
	file := c.file()
	if err := os.WriteFile(file, body, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return ask[int](c, "put", map[string]any{"key": key, "file": file})
}

func (c *realClient) get(key string) []byte {
	c.t.Helper()
	file := c.file()
	ask[int](c, "get", map[string]any{"key": key, "file": file})
	b, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *realClient) file() string {
	c.files++
	return filepath.Join(c.dir, strconv.Itoa(c.files))
}

// ourClient is a client of ours, with an initiator of its own.
func ourClient(t testing.TB, m *realMaster) *Client { return ourClientOf(t, m.masters()) }

func ourClientOf(t testing.TB, masters Masters) *Client {
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	c := NewClient(Options{Masters: masters, Engine: Over(in)})
	t.Cleanup(func() {
		in.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// host is what a storage node needs besides itself: ports for handshake and data.
type host struct {
	lent   *Lent
	name   string // of the segment
	target *engine.Target
	server *handshake.Server
}

func newHost(t testing.TB, size uint64) *host {
	t.Helper()
	lent, err := NewLent(size)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{lent: lent}
	everybody := func(a netip.Addr) (string, error) { return a.String(), nil }
	refused := func(peer string, err error) { t.Logf("refused %s: %v", peer, err) }
	h.target = engine.NewTarget(engine.TargetConfig{Memory: lent, Admit: everybody, Refused: refused})
	data, err := h.target.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.server = handshake.NewServer(handshake.Config{Admit: everybody, Refused: refused, Descriptor: func(string) segment.Descriptor {
		d := segment.Descriptor{Name: h.name, Protocols: []string{segment.TCP}, DataHost: "127.0.0.1", DataPort: data.Port(), Proto: 2}
		if base, size := lent.Range(); size > 0 {
			d.Buffers = []segment.Buffer{{Name: h.name, Addr: base, Len: size}}
		}
		return d
	}})
	at, err := h.server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.name = at.String()
	t.Cleanup(func() {
		h.target.Close()
		h.server.Close()
	})
	return h
}

func (h *host) node(t testing.TB, m *realMaster) *Node { return h.nodeOf(t, m.masters()) }

func (h *host) nodeOf(t testing.TB, masters Masters) *Node {
	t.Helper()
	n, err := StartNode(NodeOptions{Masters: masters, Lent: h.lent, Name: "meridian", Segment: h.name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.Wait(bounded(t), serving); err != nil {
		t.Fatal(err)
	}
	return n
}

func ourNode(t testing.TB, m *realMaster, size uint64) *Node { return newHost(t, size).node(t, m) }

func serving(s Status) bool { return s.State == NodeServing }

func randomBody(seed uint64, size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

var withChecksum = []string{"MOONCAKE_STORE_CHECKSUM=1"}

// What one client puts, the other gets, byte for byte and with the checksum on: the
// objects lie on a node of ours, then on one of the wheel.
func TestObjectsArePutByOneClientAndGotByTheOther(t *testing.T) {
	master := startMaster(t)
	ours := ourClient(t, master)
	for _, where := range []string{"our node", "their node"} {
		t.Run(where, func(t *testing.T) {
			segment := 0
			if where == "our node" {
				node := ourNode(t, master, 256<<20)
				defer node.Close()
			} else {
				segment = 256 << 20
			}
			theirs := startClient(t, master.address, segment, withChecksum...)
			for i, size := range []int{1, 63, 4096, 100_001, 1_000_000} {
				exchange(t, ours, theirs, fmt.Sprintf("%s/%d", where, size), randomBody(uint64(i), size))
			}
			if segment != 0 {
				return
			}
			// Their initiator writes so much in two requests.
			body := randomBody(9, 17<<20)
			if got := theirs.put("large", body); got != 0 {
				t.Fatal("put", got)
			}
			if got, o, err := ours.Get(bounded(t), "large", 64<<20); err != nil || !o.Verified || !bytes.Equal(got, body) {
				t.Errorf("%d bytes, %+v, %v", len(got), o, err)
			}
		})
	}
}

func exchange(t *testing.T, ours *Client, theirs *realClient, key string, body []byte) {
	t.Helper()
	ctx := bounded(t)
	if got := theirs.put(key+"/t", body); got != 0 {
		t.Fatalf("the real client's put of %d bytes answers %d", len(body), got)
	}
	if _, err := ours.Put(ctx, key+"/o", body); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{key + "/t", key + "/o"} {
		got, o, err := ours.Get(ctx, k, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, body) || !o.Verified {
			t.Errorf("%s: we got %d bytes, equal %v, verified %v", k, len(got), bytes.Equal(got, body), o.Verified)
		}
		if got := theirs.get(k); !bytes.Equal(got, body) {
			t.Errorf("%s: the real client got %d bytes that are not what was put", k, len(got))
		}
	}
}
