package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"meridian/adapters/link"
	"meridian/agent/client"
	"meridian/conformance/chaos"
	"meridian/wire"
)

func TestWhatOneNodeStoresAnotherGivesBack(t *testing.T) {
	prefill, decode := pair(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("prompt", 20)
	a.put(t, keys, 100<<10, wire.OutputCritical, 0)
	b.mustFetch(t, keys)
	b.mustFetch(t, keys) // from the arena now
	if got := decode.moved.list(); len(got) == 0 || got[0].Transport != "tcp" {
		t.Errorf("moved %+v, want tcp", got)
	}
	prefill.quietNow(t)
	decode.quietNow(t)
	if errs := b.fetch(t, b.keys("nobody has it", 3)); !errors.Is(errs[0], wire.CodeAbsent) {
		t.Errorf("a block that nobody has: %v", errs[0])
	}
}

func TestTheSameOverAUnixSocket(t *testing.T) {
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("unix://"+dir+"/link", "decode"))
	decode := startNode(t, dir, "decode", dialler("unix://"+dir+"/link", "prefill"))
	decode.ready(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("prompt", 3)
	a.put(t, keys, 200<<10, wire.OutputCritical, 0)
	b.mustFetch(t, keys)
	if p := decode.node.Peers(); len(p) != 1 || p[0].Transport != "unix" {
		t.Errorf("peers %+v, want one over unix", p)
	}
}

// Many engines ask for the same blocks at once: they travel once. One that gives
// up does not fail the others.
func TestTheSameKeysAreLoadedOnce(t *testing.T) {
	prefill, decode := pair(t)
	a := prefill.engine(t)
	keys := a.keys("shared", 16)
	a.put(t, keys, 128<<10, wire.OutputCritical, 0)
	var wg sync.WaitGroup
	engines := make([]*testEngine, 6)
	for i := range engines {
		engines[i] = decode.engine(t)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for i, e := range engines {
		wg.Go(func() {
			if i%3 == 2 {
				_, _ = e.Acquire(cancelled, e.space, keys, client.AcquireOptions{Fetch: true})
				return
			}
			for k, err := range e.fetch(t, keys) {
				if err != nil {
					t.Errorf("engine %d, block %d: %v", i, k, err)
				}
			}
		})
	}
	wg.Wait()
	var blocks uint64
	for _, m := range decode.moved.list() {
		if m.Direction == "in" && m.Fabric == linkFabric {
			blocks += m.Bytes / (128 << 10)
		}
	}
	// The peers' self-tests move 1 MiB each way beside them.
	if blocks > uint64(len(keys))+8 {
		t.Errorf("%d blocks came in for %d keys", blocks, len(keys))
	}
	decode.quietNow(t)
}

// proxied is a pair with a proxy between.
func proxied(t *testing.T, plan ...chaos.Action) (prefill, decode *testNode, proxy *chaos.Proxy) {
	dir := shortDir(t)
	prefill = startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	proxy, err := chaos.NewProxy(chaos.ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: prefill.Ports()["link"][0], Seed: 1, Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	decode = startNode(t, dir, "decode", dialler(proxy.Addr(), "prefill"))
	decode.ready(t)
	return prefill, decode, proxy
}

// selfTestFrames is more DATA frames than the self-test of a path sends on one
// connection: 1 MiB in frames of 256 KiB, each way.
const selfTestFrames = 12

func TestChecksumFailureOnTheWayIsCaughtCountedLoggedAndHealed(t *testing.T) {
	prefill, decode, proxy := proxied(t, chaos.Action{Kind: chaos.Flip, Dir: chaos.ToFront, Frame: selfTestFrames, Body: -1})
	a, b := prefill.engine(t), decode.engine(t)
	for round := 0; len(proxy.Flips()) == 0; round++ {
		keys := a.keys("round "+string(rune('a'+round)), 16)
		a.put(t, keys, 200<<10, wire.OutputCritical, 0)
		b.mustFetch(t, keys) // healed by pulling again
		if round > 20 {
			t.Fatal("the proxy flips nothing")
		}
	}
	until(t, "the failure is counted", func() bool { return decode.checksums.Load() == 1 })
	if v, _ := decode.series(t, `meridian_checksum_failures_total{where="link"}`); v != "1" {
		t.Errorf("meridian_checksum_failures_total is %q, want 1", v)
	}
	if v, _ := decode.series(t, `meridian_failures_total{reason="CHECKSUM"}`); v != "1" {
		t.Errorf("meridian_failures_total is %q, want 1", v)
	}
	for _, want := range []string{"checksum failure", "code=CHECKSUM", "number=104", "key="} {
		if !strings.Contains(decode.log.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

// A path that corrupts everything serves nothing: the engine is told CHECKSUM.
func TestChecksumFailureThatPersistsIsNeverServed(t *testing.T) {
	prefill := startNode(t, shortDir(t), "prefill", listener("tcp://127.0.0.1:0", "decode"))
	a := prefill.engine(t)
	keys := a.keys("doomed", 1)
	a.put(t, keys, 64<<10, wire.OutputCritical, 0)
	bad, err := chaos.NewProxy(chaos.ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: prefill.Ports()["link"][0], Seed: 1,
		Plan: []chaos.Action{{Kind: chaos.Flip, Dir: chaos.ToFront, Every: 8 << 10, Repeat: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bad.Close() })
	decode := startNode(t, shortDir(t), "decode", dialler(bad.Addr(), "prefill"))
	b := decode.engine(t)
	for range 5 {
		// Framing may be hit as well as bodies: whatever the error, no body comes.
		if errs := b.fetch(t, keys); errs[0] == nil {
			t.Fatal("a block came through a path that corrupts every 8 KiB")
		}
	}
	decode.quietNow(t)
}

func TestVerifyBlockTakesAChecksumFailureOutOfService(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	e := n.engine(t)
	keys := e.keys("stored", 2)
	e.put(t, keys, 4<<10, wire.OutputCritical, 0)
	n.damage(t, e.ns, keys[0])
	res, err := n.adminClient(t).VerifyBlock(t.Context(), verifyRequest(keys[0]))
	if err != nil || res.Ok || res.Want == res.Got {
		t.Fatalf("verify: %+v, %v", res, err)
	}
	if errs := e.fetch(t, keys); !errors.Is(errs[0], wire.CodeAbsent) || errs[1] != nil {
		t.Errorf("after the failure: %v", errs)
	}
	if v, _ := n.series(t, `meridian_checksum_failures_total{where="arena"}`); v != "1" {
		t.Errorf("counter is %q", v)
	}
	if !strings.Contains(n.log.String(), "code=CHECKSUM") {
		t.Error("the log lacks the failure")
	}
}

// A peer that dies in the middle of a pull and comes back at the same address
// is another incarnation: nothing of the old one is served, the new one works.
func TestRestartOfAPeerInTheMiddleOfAPull(t *testing.T) {
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	proxy, err := chaos.NewProxy(chaos.ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: prefill.Ports()["link"][0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	decode := startNode(t, dir, "decode", dialler(proxy.Addr(), "prefill"))
	decode.ready(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("before", 32)
	a.put(t, keys, 128<<10, wire.OutputCritical, 0)
	old := decode.node.Peers()[0].Inc
	proxy.Stall(true)
	fetched := make(chan []error, 1)
	go func() { fetched <- b.fetch(t, keys) }()
	until(t, "the pull is under way", func() bool { return decode.node.Stats().Calls > 0 })
	if err := prefill.Close(); err != nil {
		t.Fatal(err)
	}
	proxy.Stall(false)
	proxy.CutAll()
	for i, err := range <-fetched {
		if err == nil {
			t.Errorf("block %d of a peer that died before it sent it", i)
		}
	}
	again := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	if err := proxy.Retarget(again.Ports()["link"][0]); err != nil {
		t.Fatal(err)
	}
	until(t, "the new incarnation is ready", func() bool {
		p := decode.node.Peers()[0]
		return p.State == link.StateReady && p.Inc != old
	})
	if errs := b.fetch(t, keys[:1]); !errors.Is(errs[0], wire.CodeAbsent) {
		t.Errorf("a block of the old incarnation: %v", errs[0])
	}
	a = again.engine(t)
	fresh := a.keys("after", 4)
	a.put(t, fresh, 128<<10, wire.OutputCritical, 0)
	b.mustFetch(t, fresh)
	decode.quietNow(t)
	if v, ok := decode.series(t, `meridian_peer_incarnation_changes_total{peer="prefill"}`); !ok || v == "0" {
		t.Errorf("incarnation changes: %q", v)
	}
}

func TestAnArenaThatIsFullRefusesWithNeedAndFree(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	e := n.engine(t)
	keys := e.keys("held", 200)
	var held []*client.Lease
	for i := range keys {
		body := make([]byte, 256<<10)
		err := e.Put(t.Context(), []client.Block{{NS: e.space, Key: keys[i], Tier: wire.OutputCritical, Body: body}})[0]
		if errors.Is(err, wire.CodeFull) {
			if !strings.Contains(err.Error(), "arena full: need 2") {
				t.Errorf("it does not say what was needed: %v", err)
			}
			for _, l := range held {
				l.Release()
			}
			if err := e.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.put(t, keys[i:i+1], 256<<10, wire.OutputCritical, 0)
			n.quietNow(t)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Acquire(t.Context(), e.space, keys[i:i+1], client.AcquireOptions{})
		if err != nil || l.Blocks[0].Err != nil {
			t.Fatalf("acquire: %v %v", err, l.Blocks[0].Err)
		}
		held = append(held, l)
	}
	t.Fatal("200 held blocks of 256 KiB fit into 16 MiB")
}

// A block that nobody has who could be asked: the engine hears ABSENT, and who could not be.
func TestAnEngineHearsWhichPeersCouldNotBeAsked(t *testing.T) {
	n := startNode(t, shortDir(t), "decode", dialler("tcp://127.0.0.1:1", "gone"))
	e := n.engine(t)
	l, err := e.Acquire(t.Context(), e.space, e.keys("k", 2), client.AcquireOptions{Fetch: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if !errors.Is(l.Blocks[0].Err, wire.CodeAbsent) || !strings.Contains(l.Why, "could not be asked: link/gone") {
		t.Errorf("%v, %q", l.Blocks[0].Err, l.Why)
	}
}
