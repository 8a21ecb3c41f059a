package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"meridian/agent"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/bench/harness"
	"meridian/wire"
)

// Play is a daemon that a run has started: its arguments are its configuration and the
// file for its addresses. It ends at SIGTERM.
func Play(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want CONFIG PORTSFILE, got %q", args)
	}
	cfg, _, err := openers.Load(config.Options{Path: args[0]})
	if err != nil {
		return err
	}
	return agent.Run(ctx, cfg, agent.Options{Version: agent.BuildVersion(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}, args[1])
}

// startWait bounds how long a process may take until it listens, and until its peers are
// there.
const startWait = time.Minute

// The daemons of a row, by their agent.name.
const (
	legName  = "leg"  // has no route for what peers bring
	gateName = "gate" // has one
)

// daemon is a process, and an engine's session with it, which opens the namespace.
type daemon struct {
	*harness.Process
	name   string
	ports  map[string][]string
	set    *set
	engine *client.Engine
	ns     client.NS
}

// tables of a daemon besides those that each has.
type tables struct {
	sources []*app // that bring blocks to it, by NIXL or Mooncake
	sink    *app   // that takes them by NIXL; nil: none
	edge    string // the link of the measuring process; "": it dials, if at all
	links   bool   // the measuring process is a peer of the link
	far     string // the link of its sink, where its source is a peer as well; "": none
	gateway string // more keys of [gateway]
	routes  string
	offload string // fabric; "": none
}

func route(from, to string) string {
	return fmt.Sprintf("[[route]]\nfrom = %q\nfabric = %q\n", from, to)
}

// startDaemon starts one and opens the namespace.
func (r *run) startDaemon(ctx context.Context, name string, s *set, t tables) (_ *daemon, err error) {
	r.started++
	base := filepath.Join(r.dir, fmt.Sprintf("%s-%d", name, r.started))
	text, err := r.configuration(name, base, s, t)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(base+".toml", []byte(text), 0o600); err != nil {
		return nil, err
	}
	d := &daemon{name: name, set: s}
	d.Process, err = harness.Start(filepath.Base(base), harness.Again(r.opt.Self, base+".toml", base+".ports"), harness.Options{Log: base + ".log", Term: true})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w%s", name, err, d.Tail()), d.close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if d.ports, err = d.Ports(ctx, base+".ports"); err != nil {
		return nil, err
	}
	if d.engine, err = client.DialEngine(ctx, strings.TrimPrefix(d.ports["engine"][0], "unix://"), client.Options{}); err != nil {
		return nil, err
	}
	if d.ns, err = d.engine.Open(ctx, manifest(s.size)); err != nil {
		return nil, err
	}
	return d, nil
}

// capacity of an arena: what waits to be sent on, what lies there otherwise, and what size
// classes and the staging ring take.
func (t *tables) capacity(s *set) uint64 {
	const ofPeer = 4 // one peer may have one of so many parts in reservations: quota.peer_arena_share
	room := 2*s.bytes() + ofPeer*2*uint64(s.size) + 256<<20
	if t.routes != "" {
		room += s.queue()
	}
	return room
}

// queue is as many bytes as let one source have all blocks of a measurement in it.
func (s *set) queue() uint64 {
	const ofSource = 4 // a source may have one of so many parts: gateway.queue_bytes
	return ofSource * (s.bytes() + uint64(s.count)*4<<10 + 16<<20)
}

func (r *run) configuration(name, base string, s *set, t tables) (string, error) {
	var b strings.Builder
	peers := 0
	if t.edge != "" || t.far != "" {
		peers = 1
	}
	fmt.Fprintf(&b, `[agent]
name = %q
state_dir = %q
ready_min_peers = %d
[kv_memory]
capacity_bytes = %d
[arena]
ahead_bytes = %d
[engine]
socket = %q
[admin]
socket = %q
[gateway]
queue_bytes = %d
%s[security]
tenants = [%q]
[link]
listen = ["tcp://127.0.0.1:0"]
psk = %q
`, name, base+".state", peers, t.capacity(s), t.capacity(s), base+".engine", base+".admin", s.queue(), t.gateway, tenant, r.psk)
	if t.links {
		fmt.Fprintf(&b, "[[link.peer]]\nname = %q\ntenants = [%q]\n", edge, tenant)
		if t.edge != "" {
			fmt.Fprintf(&b, "address = %q\n", t.edge)
		}
	}
	if t.far != "" {
		fmt.Fprintf(&b, "[[link.peer]]\nname = %q\ntenants = [%q]\naddress = %q\n", far, tenant, t.far)
	}
	if t.offload != "" {
		fmt.Fprintf(&b, "[disagg]\nenabled = true\nfabric = %q\noffload_threshold_blocks = %d\n", t.offload, s.batch())
	}
	var nixl, mooncake []string
	entry := func(a *app) string { return fmt.Sprintf("%q", a.name+"="+a.listen) }
	for _, a := range t.sources {
		if a.listen == "" {
			mooncake = append(mooncake, fmt.Sprintf("%q", "app="+a.name))
		} else {
			nixl = append(nixl, entry(a))
		}
	}
	if t.sink != nil {
		nixl = append(nixl, entry(t.sink))
	}
	if len(mooncake) > 0 {
		fmt.Fprintf(&b, "[fabric.mooncake]\nlisten = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\npeers = [%s]\ntenants = [%q]\nnotify = true\n", strings.Join(mooncake, ", "), tenant)
	}
	if len(nixl) > 0 {
		_, packages, err := r.opt.python()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "[fabric.nixl]\npeers = [%s]\ntenants = [%q]\nnotify = true\nlibrary = %q\nhelper = %q\nenvironment = [%q]\n",
			strings.Join(nixl, ", "), tenant, packages, r.opt.Helper, "UCX_TLS="+r.opt.UCX)
	}
	b.WriteString(t.routes)
	return b.String(), nil
}

// segment is its name for engines of Mooncake.
func (d *daemon) segment() string {
	if a := d.ports["mooncake"]; len(a) > 0 {
		return strings.TrimPrefix(a[0], "mooncake://")
	}
	return ""
}

// get is what it answers at a path.
func (d *daemon) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.ports["http"][0]+path, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", res.Status, b)
	}
	return string(b), err
}

// ready waits until the daemon says that it is.
func (d *daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	err := harness.Poll(ctx, d.Process, func() error {
		_, err := d.get(ctx, "/readyz")
		return err
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w%s", d.name, err, d.Tail())
	}
	return nil
}

// metric is the sum of the series of a name that have all of some labels.
func (d *daemon) metric(ctx context.Context, name string, labels ...string) (sum float64, err error) {
	page, err := d.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
lines:
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %s: %w", d.name, name, err)
		}
		sum += v
	}
	return sum, nil
}

// pushes are the gateway's calls on the sink since the daemon's start, and how long they
// took together.
func (d *daemon) pushes(ctx context.Context) (calls, seconds float64, err error) {
	for _, op := range []string{`operation="forward"`, `operation="cut-through"`} {
		for suffix, sum := range map[string]*float64{"_count": &calls, "_sum": &seconds} {
			v, err := d.metric(ctx, "meridian_transfer_duration_seconds"+suffix, op)
			if err != nil {
				return 0, 0, err
			}
			*sum += v
		}
	}
	return calls, seconds, nil
}

// processor is the time that the daemon has used, user and system, in seconds. A helper's
// is not in it.
func (d *daemon) processor(ctx context.Context) (float64, error) {
	return d.metric(ctx, "process_cpu_seconds_total")
}

const (
	// settleFor is for how long the memory that is ready stays the same before it counts
	// as all that the daemon makes.
	settleFor = 200 * time.Millisecond
	// settleWait bounds the wait for that; a daemon that goes on is measured as it is.
	settleWait = 10 * time.Second
)

// settled waits until the daemon makes no more memory ready ahead of its use.
func (d *daemon) settled(ctx context.Context) error {
	last := -1.0
	for end := time.Now().Add(settleWait); time.Now().Before(end); time.Sleep(settleFor) {
		now, err := d.metric(ctx, "meridian_block_manager_ahead_bytes")
		if err != nil || now == last {
			return err
		}
		last = now
	}
	return nil
}

// refusals are lines of /metrics of blocks that did not go on as they should.
func (d *daemon) refusals(ctx context.Context) error {
	page, err := d.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "meridian_gateway_blocks_total{") || strings.HasSuffix(line, " 0\n") {
			continue
		}
		// exists: a push that failed was tried again, and its blocks were there.
		if !strings.Contains(line, `outcome="forwarded"`) && !strings.Contains(line, `outcome="exists"`) {
			return fmt.Errorf("%s: %s", d.name, strings.TrimSpace(line))
		}
	}
	return nil
}

// The token stream of a request that thinks, for a model that every daemon knows.
const (
	model                   = "qwen3-8b"
	begins, ends, eos, word = 151667, 151668, 151645, 1000
)

// tier of all blocks: what an engine puts while it thinks.
const tier = wire.ThinkActive

// think has an engine put the blocks of a request that thinks. What it returns ends the
// thinking: then they are off-loaded.
func (d *daemon) think(ctx context.Context, keys []wire.Key) (end func() error, err error) {
	req, err := d.engine.Begin(ctx, client.Begin{ID: "bench", Model: model, Prompt: []int32{word, begins}})
	if err == nil {
		err = d.engine.Tokens([]uint32{req}, []uint8{2}, []int32{word, word})
	}
	if err != nil {
		return nil, err
	}
	list := make([]client.Block, len(keys))
	for i, k := range keys {
		list[i] = client.Block{NS: d.ns, Key: k, Tier: tier, Body: d.set.payload(i)[wire.HeaderLen:], Req: req}
	}
	for i, err := range d.engine.Put(ctx, list) {
		if err != nil {
			return nil, fmt.Errorf("PUT of block %d: %w", i, err)
		}
	}
	return func() error {
		err := d.engine.Tokens([]uint32{req}, []uint8{3}, []int32{ends, word, eos})
		return errors.Join(err, d.engine.Finish(ctx, req, false))
	}, nil
}

func (d *daemon) close() error {
	var err error
	if d.engine != nil {
		err = d.engine.Close()
	}
	return errors.Join(err, d.End())
}
