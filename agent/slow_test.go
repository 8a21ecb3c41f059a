package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/conformance/chaos"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
	proto "meridian/wire/link"
)

// heldUp is a fabric in memory with a label of its own, some of whose calls a test
// replaces.
type heldUp struct {
	*synthetic.Fabric
	label            string
	find, pull, push func(ctx context.Context, it []fabric.Item)
	probe            func(ctx context.Context) error
}

// holderNamed is an endpoint of a new world; alike joins another's.
func holderNamed(t *testing.T, label string, alike *heldUp) *heldUp {
	t.Helper()
	h := &heldUp{label: label}
	if alike == nil {
		h.Fabric = synthetic.New(synthetic.Options{Name: label})
	} else {
		f, err := alike.Join(label, 1)
		if err != nil {
			t.Fatal(err)
		}
		h.Fabric = f
	}
	h.find, h.pull, h.push = h.Fabric.Find, h.Fabric.Pull, h.Fabric.Push
	return h
}

func (h *heldUp) Label() string                              { return h.label }
func (h *heldUp) Find(ctx context.Context, it []fabric.Item) { h.find(ctx, it) }
func (h *heldUp) Pull(ctx context.Context, it []fabric.Item) { h.pull(ctx, it) }
func (h *heldUp) Push(ctx context.Context, it []fabric.Item) { h.push(ctx, it) }
func (h *heldUp) Probe(ctx context.Context, peer string) (string, float64, error) {
	if h.probe != nil {
		if err := h.probe(ctx); err != nil {
			return "", 0, err
		}
	}
	return h.Fabric.Probe(ctx, peer)
}

// give puts blocks into a fabric, as another node would.
func (h *heldUp) give(t *testing.T, ns wire.Namespace, keys []wire.Key, size int) {
	t.Helper()
	for _, k := range keys {
		body := make([]byte, size)
		chaos.Body(body, k)
		p, err := wire.AppendPayload(nil, wire.OutputCritical, body)
		if err != nil {
			t.Fatal(err)
		}
		it := []fabric.Item{{NS: ns, Key: k, Tier: wire.OutputCritical, M: fabric.Mem{B: p}}}
		if h.Fabric.Push(t.Context(), it); it[0].Err != nil {
			t.Fatal(it[0].Err)
		}
	}
}

// waiting is a holder whose pulls wait until let is called.
type waiting struct {
	*heldUp
	pulling chan struct{} // closed by the first pull
	let     func()
}

func waitingHolder(t *testing.T) *waiting {
	t.Helper()
	h := &waiting{heldUp: holderNamed(t, "far", nil), pulling: make(chan struct{})}
	first := sync.OnceFunc(func() { close(h.pulling) })
	open := make(chan struct{})
	h.let = sync.OnceFunc(func() { close(open) })
	h.pull = func(ctx context.Context, it []fabric.Item) {
		first()
		select {
		case <-open:
			h.Fabric.Pull(ctx, it)
		case <-ctx.Done():
			for i := range it {
				it[i].Err = fabric.ContextError(ctx, "far")
			}
		}
	}
	return h
}

// holds starts a daemon with this fabric and others, and an engine of it whose next
// blocks this fabric has.
func (h *heldUp) holds(t *testing.T, blocks, size int, others ...fabric.Fabric) (*testNode, *testEngine, []wire.Key) {
	t.Helper()
	n := startNode(t, shortDir(t), "one", "", append([]fabric.Fabric{h}, others...)...)
	n.ready(t)
	e := n.engine(t)
	keys := e.keys("k", blocks)
	h.give(t, e.ns, keys, size)
	return n, e, keys
}

// within is e.fetch with a deadline, for loads that must not hang.
func (e *testEngine) within(t *testing.T, d time.Duration, keys []wire.Key) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	l, err := e.Acquire(ctx, e.space, keys, client.AcquireOptions{Fetch: true})
	if err != nil {
		t.Fatalf("the load: %v", err)
	}
	defer l.Release()
	for i := range l.Blocks {
		if err := errors.Join(l.Blocks[i].Err, chaos.CheckBody(l.Blocks[i].Body, keys[i])); err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
	}
}

// meeting makes n calls wait for each other: each goes on once all are there, and
// fails where its context ends before.
func meeting(n int32) func(ctx context.Context) error {
	var here atomic.Int32
	all := make(chan struct{})
	return func(ctx context.Context) error {
		if here.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return fabric.ContextError(ctx, "meeting")
		}
	}
}

// One holder of three does not answer. A load of what the others have is served
// while it still does not.
func TestAFrozenHolderDoesNotDelayALoad(t *testing.T) {
	a := holderNamed(t, "a", nil)
	b, c := holderNamed(t, "b", a), holderNamed(t, "c", a)
	var late atomic.Bool
	b.find = func(ctx context.Context, it []fabric.Item) {
		<-ctx.Done()
		late.Store(ctx.Err() == context.DeadlineExceeded)
		for i := range it {
			it[i].Err = fabric.ContextError(ctx, "b")
		}
	}
	n, e, keys := a.holds(t, 8, 64<<10, b, c)
	e.within(t, patience, keys)
	if late.Load() {
		t.Error("the load waited until the frozen holder had no time left")
	}
	n.quietNow(t)
}

// A load of several batches is pulled from two holders at the same time.
func TestALargeLoadUsesTwoHoldersAtOnce(t *testing.T) {
	a := holderNamed(t, "a", nil)
	b := holderNamed(t, "b", a)
	both := meeting(2)
	for _, h := range []*heldUp{a, b} {
		var once sync.Once
		h.pull = func(ctx context.Context, it []fabric.Item) {
			once.Do(func() { _ = both(ctx) })
			h.Fabric.Pull(ctx, it)
		}
	}
	n, e, keys := a.holds(t, 64, 64<<10, b)
	e.within(t, patience, keys)
	n.quietNow(t)
}

// At one holder, too, more than one batch is under way.
func TestALargeLoadHasSeveralPullsUnderWay(t *testing.T) {
	a := holderNamed(t, "a", nil)
	both := meeting(2)
	var calls atomic.Int32
	a.pull = func(ctx context.Context, it []fabric.Item) {
		if calls.Add(1) <= 2 {
			_ = both(ctx)
		}
		a.Fabric.Pull(ctx, it)
	}
	n, e, keys := a.holds(t, 64, 64<<10)
	e.within(t, patience, keys)
	n.quietNow(t)
}

// A pull that gets nothing is not asked for again at the same holder: the load
// takes what the page says, not three times as long.
func TestNoProgressEndsALoadAtTheFirstTry(t *testing.T) {
	h := &heldUp{label: "a", Fabric: synthetic.New(synthetic.Options{Timeout: time.Millisecond})}
	h.find, h.pull, h.push = h.Fabric.Find, h.Fabric.Pull, h.Fabric.Push
	n, e, keys := h.holds(t, 4, 4<<10)
	h.Inject(synthetic.Fault{Kind: synthetic.Drop, Op: synthetic.OpPull})
	for i, err := range e.fetch(t, keys) {
		if !errors.Is(err, wire.CodeNoProgress) {
			t.Errorf("block %d: %v, want NO_PROGRESS", i, err)
		}
	}
	if hits := h.Stats().Hits["drop"]; hits != uint64(len(keys)) {
		t.Errorf("%d blocks were asked for %d times, want once each", len(keys), hits)
	}
	n.quietNow(t)
}

// raw is a fabric that hashes nothing: it hands on what it has.
func raw(t *testing.T, label string, bit byte) *heldUp {
	h := holderNamed(t, label, nil)
	h.pull = func(ctx context.Context, it []fabric.Item) {
		for i := range it {
			body := make([]byte, 4<<10)
			chaos.Body(body, it[i].Key)
			p, err := wire.AppendPayload(nil, wire.OutputCritical, body)
			if err != nil {
				t.Error(err)
			}
			it[i].Head, it[i].Err = wire.Header{BodyLen: 4 << 10, Tier: wire.OutputCritical, Sum: wire.SumOf(body)}, nil
			p[len(p)-1] ^= bit
			copy(it[i].M.B, p)
		}
	}
	return h
}

// What a fabric brings without having hashed it is hashed here: other bytes are
// refused, and right ones are attested by this daemon and by nobody else.
func TestAFabricThatHashesNothingIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		bit  byte
		code wire.Code
	}{"other bytes": {1, wire.CodeChecksum}, "the right bytes": {0, wire.CodeOK}} {
		t.Run(name, func(t *testing.T) {
			h := raw(t, "a", c.bit)
			n, e, keys := h.holds(t, 1, 4<<10)
			if err := e.fetch(t, keys)[0]; wire.CodeOf(err) != c.code {
				t.Errorf("the load: %v, want %v", err, c.code)
			}
			if v, err := n.store.Stat(keys[0]); c.code == wire.CodeOK && v.Att != wire.AttestIngest {
				t.Errorf("attested by %v (%v), want ingest", v.Att, err)
			}
		})
	}
}

// A block that was ingested, not produced, stays so from hop to hop.
func TestAttestationIsNotRaisedOnTheWay(t *testing.T) {
	dir := shortDir(t)
	h := raw(t, "a", 0)
	first := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"), h)
	second := startNode(t, dir, "decode", dialler(first.Ports()["link"][0], "prefill"))
	second.ready(t)
	first.ready(t)
	a, b := first.engine(t), second.engine(t)
	keys := a.keys("k", 1)
	h.give(t, a.ns, keys, 4<<10)
	a.mustFetch(t, keys)
	b.mustFetch(t, keys)
	v, err := second.store.Stat(keys[0])
	if err != nil || v.Att != wire.AttestIngest {
		t.Errorf("at the second node it is attested by %v (%v), want ingest", v.Att, err)
	}
}

// One offload destination hangs: what goes to the other arrives.
func TestASlowOffloadDestinationHoldsUpNoOther(t *testing.T) {
	stuck := &heldUp{label: "nixl-synth", Fabric: synthetic.New(synthetic.Options{})}
	stuck.find, stuck.pull = stuck.Fabric.Find, stuck.Fabric.Pull
	release, reached := make(chan struct{}), make(chan struct{}, 100)
	stuck.push = func(_ context.Context, it []fabric.Item) {
		reached <- struct{}{}
		<-release
		for i := range it {
			it[i].Err = wire.CodeUnreachable
		}
	}
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	decode := startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill")+
		"[[route]]\nfabric = \"link\"\nmax_bytes = \"32KiB\"\n"+offloads+"fabric = \"nixl-synth\"\n", stuck)
	t.Cleanup(func() { close(release) }) // before the daemon is closed
	decode.ready(t)
	e := decode.engine(t)
	think(t, e, 4) // 64 KiB each
	<-reached
	small := e.keys("small", 4)
	thinkOf(t, e, small, 16<<10)
	until(t, "the blocks of the other destination are there", func() bool {
		for _, k := range small {
			if v, err := prefill.store.Stat(k); err != nil || v.Seg == 0 {
				return false
			}
		}
		return true
	})
}

// thinkOf is think with given keys and size.
func thinkOf(t *testing.T, e *testEngine, keys []wire.Key, size int) {
	t.Helper()
	req, err := e.Begin(t.Context(), client.Begin{ID: "r", Model: "qwen3-8b", Prompt: []int32{1000, 151667}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if err := e.Tokens([]uint32{req}, []uint8{2}, []int32{1000, 1000}); err != nil {
			t.Fatal(err)
		}
		e.put(t, keys[i:i+1], size, wire.ThinkActive, req)
	}
	if err := e.Tokens([]uint32{req}, []uint8{3}, []int32{151668, 1000, 151645}); err != nil {
		t.Fatal(err)
	}
	if err := e.Finish(t.Context(), req, false); err != nil {
		t.Fatal(err)
	}
}

// Two paths are tested at the same time: each test waits here for the other's.
func TestSelfTestsRunSideBySide(t *testing.T) {
	a, b := holderNamed(t, "a", nil), holderNamed(t, "b", nil)
	var alone atomic.Int32
	both := meeting(2)
	for _, h := range []*heldUp{a, b} {
		h.probe = func(ctx context.Context) error {
			err := both(ctx)
			if err != nil {
				alone.Add(1)
			}
			return err
		}
	}
	n := startNode(t, shortDir(t), "one", "", a, b)
	n.ready(t)
	if alone.Load() != 0 {
		t.Error("a path was tested only after another's test had ended")
	}
}

// abandonedPush leaves a push half done: the peer that pushed says no more.
func abandonedPush(t *testing.T) (prefill, decode *testNode) {
	t.Helper()
	dir := shortDir(t)
	prefill = startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	proxy, err := chaos.NewProxy(chaos.ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: prefill.Ports()["link"][0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	decode = startNode(t, dir, "decode", dialler(proxy.Addr(), "prefill")+offloads+"fabric = \"link\"\n")
	decode.ready(t)
	// The bodies of pushes wait at the proxy for longer than any of this takes.
	if err := proxy.Arm(chaos.Action{Kind: chaos.Delay, Dir: chaos.ToBack, Frame: 1, Type: proto.TypeData, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	before := proxy.Stats().Conns
	proxy.CutAll()
	until(t, "the lanes are back", func() bool { return proxy.Stats().Conns >= before+3 && decode.node.Stats().Lanes == 3 })
	think(t, decode.engine(t), 4)
	until(t, "the push has begun", func() bool { return prefill.store.Stats().Reserved > 0 })
	return prefill, decode
}

// SIGTERM meets a push whose other end has fallen silent: neither side waits for
// it until its deadline, or for all of agent.drain_timeout.
func TestADrainDoesNotWaitForAPushThatWasAbandoned(t *testing.T) {
	prefill, decode := abandonedPush(t)
	for _, n := range []*testNode{prefill, decode} {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // half of agent.drain_timeout
		err := n.Drain(ctx)
		if ctx.Err() != nil {
			t.Errorf("the drain of %s waited for all of its time", n.id.name)
		}
		cancel()
		if err != nil {
			t.Errorf("drain of %s: %v", n.id.name, err)
		}
	}
}

// Every label value that is known at the start has its series then, at 0.
func TestKnownLabelValuesStartAtZero(t *testing.T) {
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	n := startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill")+
		"[[route]]\nfabric = \"nixl-synth\"\n"+offloads+"fabric = \"link\"\n", synthetic.New(synthetic.Options{}))
	for _, sample := range []string{
		`meridian_failures_total{reason="CHECKSUM"}`,
		`meridian_refusals_total{reason="STALE"}`,
		`meridian_checksum_failures_total{where="arena"}`,
		`meridian_checksum_failures_total{where="link"}`,
		`meridian_peer_incarnation_changes_total{peer="prefill"}`,
		`meridian_fabric_fallbacks_total{used="link",wanted="nixl-synth"}`,
		`meridian_disagg_blocks_offloaded_total{fabric="link"}`,
		`meridian_disagg_bytes_offloaded_total{fabric="nixl-synth"}`,
		`meridian_transfer_bytes_total{direction="in",fabric="link",transport="tls"}`,
		`meridian_transfer_blocks_total{class="urgent",direction="in",fabric="link",operation="pull",outcome="failed"}`,
		`meridian_transfer_blocks_total{class="bulk",direction="in",fabric="link",operation="push",outcome="ok"}`,
		`meridian_transfer_duration_seconds_count{class="bulk",direction="out",fabric="nixl-synth",operation="offload"}`,
	} {
		if v, ok := n.series(t, sample); !ok || v != "0" {
			t.Errorf("%s is %q (there: %v) before anything happened, want 0", sample, v, ok)
		}
	}
}

// Transfers are told apart by what they are for.
func TestTransfersAreCountedByClassAndOperation(t *testing.T) {
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	decode := startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill")+offloads+"fabric = \"link\"\n")
	decode.ready(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("prompt", 2)
	a.put(t, keys, 4<<10, wire.OutputCritical, 0)
	b.mustFetch(t, keys)
	think(t, b, 4)
	counted := func(n *testNode, labels string) func() bool {
		return func() bool {
			v, _ := n.series(t, `meridian_transfer_duration_seconds_count{`+labels+`}`)
			return v != "" && v != "0"
		}
	}
	until(t, "the probe is one", counted(decode, `class="normal",direction="out",fabric="link",operation="probe"`))
	until(t, "the user's pull is one", counted(decode, `class="urgent",direction="in",fabric="link",operation="pull"`))
	until(t, "the offload is one", counted(decode, `class="bulk",direction="out",fabric="link",operation="offload"`))
	until(t, "the holder counts the pull", counted(prefill, `class="urgent",direction="out",fabric="link",operation="pull"`))
	until(t, "the holder counts the push", counted(prefill, `class="bulk",direction="in",fabric="link",operation="push"`))
}

// A pull of a block that is gone is a failure of the one that asks and a refusal
// of the one that is asked.
func TestAHolderCountsWhatItRefuses(t *testing.T) {
	prefill, decode := pair(t)
	a := prefill.engine(t)
	b := decode.engine(t)
	keys := a.keys("k", 1)
	a.put(t, keys, 4<<10, wire.OutputCritical, 0)
	b.mustFetch(t, keys)
	it := []fabric.Item{{NS: b.ns, Key: keys[0]}}
	p := decode.node.Peer("prefill")
	p.Find(t.Context(), it)
	if it[0].Err != nil {
		t.Fatal(it[0].Err)
	}
	prefill.store.Discard(a.ns, keys)
	it[0].M.B = make([]byte, 8<<10)
	p.Pull(t.Context(), it)
	if !errors.Is(it[0].Err, wire.CodeStale) {
		t.Fatalf("a pull by the reference of a block that is gone: %v, want STALE", it[0].Err)
	}
	until(t, "the holder counts it", func() bool {
		v, _ := prefill.series(t, `meridian_refusals_total{reason="STALE"}`)
		return v == "1"
	})
	if strings.Contains(prefill.log.String(), "code=STALE") {
		t.Error("a refused block is worth a counter, not a log line of its own")
	}
}
