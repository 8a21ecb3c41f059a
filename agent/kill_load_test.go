package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"meridian/agent/client"
	"meridian/conformance/chaos"
	"meridian/wire"
)

// childNode is a daemon in a process of its own.
type childNode struct {
	*testNode // for its sockets only
	name      string
	dir, text string
	cmd       *exec.Cmd
	http      string
}

func (c *childNode) start(t *testing.T) map[string][]string {
	t.Helper()
	cmd, at := child(t, c.dir, c.name, c.text)
	c.cmd, c.http = cmd, at["http"][0]
	return at
}

func (c *childNode) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
}

// varz is false while the daemon does not answer.
func (c *childNode) varz() (v Varz, ok bool) {
	res, err := http.Get(c.http + "/varz")
	if err != nil {
		return v, false
	}
	defer func() { _ = res.Body.Close() }()
	return v, json.NewDecoder(res.Body).Decode(&v) == nil
}

// quiet waits until nothing is leased or on its way and, with slots, until nothing
// is reserved either: homes that stand ready for small pushes end when they were
// not used for a while.
func (c *childNode) quiet(t *testing.T, slots bool) {
	t.Helper()
	var v Varz
	defer func() {
		if t.Failed() {
			t.Logf("%s: %+v", c.name, v)
		}
	}()
	until(t, "nothing is left at "+c.name, func() (ok bool) {
		v, ok = c.varz()
		b, l := &v.Blocks, v.Fabrics[linkFabric]
		return ok && (b.Reserved == 0 || !slots) && b.Leases == 0 && b.Quarantined == 0 && b.Transient == 0 && b.Leaked == 0 &&
			v.TransfersIn == 0 && v.TransfersOut == 0 && l.Calls == 0 && l.Waiting == 0 && l.Served == 0 && l.Refs == 0
	})
}

// killRig is a daemon that loads over four lanes each from two holders. Its lanes
// are slow enough for a load to have a middle.
type killRig struct {
	holders [2]*childNode
	proxies [2]*chaos.Proxy
	decode  *childNode
}

func newKillRig(t *testing.T) *killRig {
	t.Helper()
	const arena = "[kv_memory]\ncapacity_bytes = \"64MiB\"\n"
	lanes := func(text string) string { return strings.Replace(text, "lanes = 2", "lanes = 4", 1) + arena }
	r, dir := &killRig{}, shortDir(t)
	node := func(name, text string) *childNode {
		return &childNode{testNode: &testNode{Agent: &Agent{cfg: loadConfig(t, dir, name, text)}}, name: name, dir: dir, text: text}
	}
	text := linkTable
	for i := range r.holders {
		name := fmt.Sprint("holder", i)
		h := node(name, lanes(listener("tcp://127.0.0.1:0", "decode")))
		addr := h.start(t)["link"][0]
		var err error
		r.proxies[i], err = chaos.NewProxy(chaos.ProxyOptions{
			Listen: "tcp://127.0.0.1:0", Target: addr,
			Plan: []chaos.Action{{Kind: chaos.Throttle, Dir: chaos.ToFront, Rate: 32 << 20}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.proxies[i].Close() })
		text += fmt.Sprintf("[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"acme\"]\n", name, r.proxies[i].Addr())
		r.holders[i] = h
	}
	r.decode = node("decode", lanes(text))
	r.decode.start(t)
	return r
}

// restart starts a daemon that was killed. A holder has another port then, which
// the one that loads from it does not see.
func (r *killRig) restart(t *testing.T, victim *childNode) {
	t.Helper()
	at := victim.start(t)
	for i, h := range r.holders {
		if h == victim {
			if err := r.proxies[i].Retarget(at["link"][0]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// ready waits until the daemon has all lanes to both holders.
func (r *killRig) ready(t *testing.T) {
	t.Helper()
	var v Varz
	var ok bool
	defer func() {
		if t.Failed() {
			t.Logf("decode: ready %v %v, link %+v", v.Ready, v.Reasons, v.Fabrics)
		}
	}()
	until(t, "both holders are connected over all lanes", func() bool {
		v, ok = r.decode.varz()
		l := v.Fabrics[linkFabric]
		return ok && v.Ready && l.Sessions == 2 && l.Lanes == 2*(1+4)
	})
}

// A holder, or the daemon that loads, is killed with -9 in the middle of a large
// load over four lanes each from two holders. The load completes from the other
// holder, or fails with its daemon and succeeds at the next one; no wrong byte is
// served, and no slot, lease or call stays anywhere.
func TestKillNineInTheMiddleOfALargeLoad(t *testing.T) {
	const blocks, size = 96, 256 << 10
	rounds := 6
	if os.Getenv("MERIDIAN_TEST_FULL") != "" {
		rounds = 50
	}
	rng := rand.New(rand.NewPCG(7, 7))
	r := newKillRig(t)
	middles := 0
	for round := range rounds {
		r.ready(t)
		var keys []wire.Key
		for _, h := range r.holders {
			e := h.engine(t)
			keys = e.keys(fmt.Sprint("round ", round), blocks)
			e.put(t, keys, size, wire.ThinkComplete, 0) // the next round's may evict them
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
		e := r.decode.engine(t)
		victim, died := r.holders[rng.IntN(2)], rng.IntN(2) == 0
		if died {
			victim = r.decode
		}
		at := r.sent() + uint64(rng.IntN(blocks*size*3/4))
		loaded := make(chan error, 1)
		go func() { loaded <- loadAll(t, e, keys) }()
		until(t, "the load is in its middle", func() bool { return r.sent() >= at || len(loaded) > 0 })
		victim.kill(t)
		if r.sent() < at+blocks*size/4 {
			middles++
		}
		err := <-loaded
		if !died && err != nil {
			t.Errorf("round %d: %s was killed, and the load failed: %v", round, victim.name, err)
		}
		_ = e.Close()
		r.restart(t, victim)
		r.ready(t)
		e = r.decode.engine(t)
		if err := loadAll(t, e, keys); err != nil {
			t.Errorf("round %d: the load after %s came back: %v", round, victim.name, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		for _, n := range []*childNode{r.decode, r.holders[0], r.holders[1]} {
			n.quiet(t, round == rounds-1)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d kills met a load in its middle", middles, rounds)
}

// sent is how many bytes both holders' lanes have brought.
func (r *killRig) sent() uint64 { return r.proxies[0].Stats().ToFront + r.proxies[1].Stats().ToFront }

// loadAll fetches blocks and says why one is missing. A wrong byte fails the test.
func loadAll(t *testing.T, e *testEngine, keys []wire.Key) error {
	l, err := e.Acquire(t.Context(), e.space, keys, client.AcquireOptions{Fetch: true})
	if err != nil {
		return err
	}
	defer l.Release()
	for i := range l.Blocks {
		if l.Blocks[i].Err != nil {
			return fmt.Errorf("block %d: %w", i, l.Blocks[i].Err)
		}
		if err := chaos.CheckBody(l.Blocks[i].Body, keys[i]); err != nil || len(l.Blocks[i].Body) == 0 {
			t.Errorf("wrong bytes were served for block %d: %v", i, err)
		}
	}
	return nil
}
