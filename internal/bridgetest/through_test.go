package bridgetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/conformance/chaos"
	"meridian/internal/testbed"
	"meridian/wire"
)

// large is a namespace of blocks that go on while they come.
var large = wire.Manifest{Tenant: "acme", Model: "m", Role: "large", BlockTokens: 16, BlockBytes: 4 << 20}

func largeKey(name string) wire.Key { return wire.KeyOf(large.Namespace(), []byte(name)) }

const roomy = "[gateway]\nqueue_bytes = \"64MiB\"\n"

// bare has nothing reserved but for pushes that run.
const bare = "[quota]\npeer_standing_bytes = 0\n"

// through is a counter of the blocks that went on while they came.
func through(outcome string, n int) string {
	return fmt.Sprintf(`meridian_gateway_cut_through_total{from="link",outcome=%q,to="link"} %d`, outcome, n)
}

// A large block goes from one daemon through another to a third while it comes, with the
// same header and body, and is shown as such.
func TestABlockGoesOnWhileItComes(t *testing.T) {
	far := startSized(t, "far", "64MiB", "16MiB", large, listens("house"))
	h := startSized(t, "house", "64MiB", "16MiB", large, dials(far)+"[[link.peer]]\nname = \"edge\"\ntenants = [\"acme\"]\n"+roomy+
		"[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = \"far\"\n")
	edge := startSized(t, "edge", "64MiB", "16MiB", large, dials(h)+writesThrough)
	edge.meets("house")
	h.meets("far")
	for i := range 3 {
		key, body := largeKey(fmt.Sprint("b", i)), testbed.Content(4<<20-i, uint64(i))
		edge.store(key, body)
		same(t, "link to link", payloadOf(t, wire.OutputCritical, body), far.holds(key))
	}
	h.shows(through("forwarded", 3))
	h.shows(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="link"} 3`)
	h.showsTransfer("link", "out", "cut-through")
}

// between stands between a daemon that dials and one that listens, and does what its plan
// says.
func between(t *testing.T, h *house, plan ...chaos.Action) *chaos.Proxy {
	t.Helper()
	p, err := chaos.NewProxy(chaos.ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: h.ports["link"][0], Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// dialsAt is dials of one daemon, at an address.
func dialsAt(name, addr string) string {
	return "[link]\n" + psk + "listen = [\"tcp://127.0.0.1:0\"]\n" + peerAt(name, addr)
}

func peerAt(name, addr string) string {
	return fmt.Sprintf("[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"acme\"]\n", name, addr)
}

// mayStore is store of a block that may not get to where it is copied.
func (h *house) mayStore(key wire.Key, body []byte) {
	h.t.Helper()
	h.t.Log("PUT:", h.engine.Put(h.t.Context(), []client.Block{{NS: h.ns, Key: key, Tier: wire.OutputCritical, Body: body}})[0])
}

// idle waits until a daemon moves nothing and holds nothing for it: no transfer, no room in
// the queue, no reservation and no lease.
func (h *house) idle() {
	h.t.Helper()
	testbed.Until(h.t, h.name+" is idle", func() bool {
		used, _ := h.waiting()
		return used == 0 && h.metric("meridian_gateway_waiting_blocks") == "0" && h.metric("meridian_reservations") == "0" && h.metric(`meridian_leases{kind="timed"}`) == "0"
	})
}

// A body that is changed on its way, and one whose source is cut off in the middle of it, do
// not become blocks, neither here nor at the next daemon, which is never told to publish
// them. The next block goes through.
func TestABodyThatIsNoneDoesNotGoOn(t *testing.T) {
	for name, fault := range map[string]chaos.Action{
		"changed": {Kind: chaos.Flip, Dir: chaos.ToBack, Frame: 9, Repeat: true},
		"cut off": {Kind: chaos.Reset, Dir: chaos.ToBack, Frame: 9},
	} {
		t.Run(name, func(t *testing.T) {
			far := startSized(t, "far", "64MiB", "16MiB", large, listens("house")+bare)
			h := startSized(t, "house", "64MiB", "16MiB", large, dials(far)+"[[link.peer]]\nname = \"edge\"\ntenants = [\"acme\"]\n"+roomy+bare+
				"[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = \"far\"\n")
			way := between(t, h, fault)
			edge := startSized(t, "edge", "64MiB", "16MiB", large, dialsAt("house", way.Addr())+writesThrough)
			edge.meets("house")
			h.meets("far")
			edge.mayStore(largeKey("bad"), testbed.Content(4<<20, 1))
			testbed.Until(t, "the block was given up", func() bool { return h.metric(strings.TrimSuffix(through("dropped", 0), " 0")) != "0" })
			h.idle()
			far.idle()
			h.lacks(largeKey("bad"))
			far.lacks(largeKey("bad"))
			wrong := `meridian_checksum_failures_total{where="link"}`
			if v := far.metric(wrong); v != "0" {
				t.Errorf("%s bodies failed their check at the next daemon: it was told to publish them", v)
			}
			if v := h.metric(wrong); (v != "0") != (name == "changed") {
				t.Errorf("%s bodies failed their check here", v)
			}
			if v := h.metric(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="link"}`); v != "0" {
				t.Errorf("%s blocks went on", v)
			}
			if err := way.Arm(); err != nil {
				t.Fatal(err)
			}
			way.CutAll()
			testbed.Until(t, "a block goes on over the next connection", func() bool {
				edge.mayStore(largeKey(fmt.Sprint("good", way.Stats().ToBack)), testbed.Content(4<<20, 2))
				return h.metric(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="link"}`) != "0"
			})
			if v := far.metric(`meridian_transfer_blocks_total{class="normal",direction="in",fabric="link",operation="push",outcome="ok"}`); v == "0" || v == "" {
				t.Errorf("%q blocks came to the next daemon", v)
			}
		})
	}
}

// The next daemon freezes in the middle of a body: the source is acknowledged, and the block
// is at the daemon of the next route a little later, header and body unchanged.
func TestTheNextRouteHasABlockWhoseDestinationFreezes(t *testing.T) {
	far := startSized(t, "far", "64MiB", "16MiB", large, listens("house"))
	other := startSized(t, "other", "64MiB", "16MiB", large, listens("house"))
	way := between(t, far)
	h := startSized(t, "house", "64MiB", "16MiB", large, dials(other)+peerAt("far", way.Addr())+"[[link.peer]]\nname = \"edge\"\ntenants = [\"acme\"]\n"+roomy+
		"[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = \"far\"\n[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = \"other\"\n")
	edge := startSized(t, "edge", "64MiB", "16MiB", large, dials(h)+writesThrough)
	edge.meets("house")
	h.meets("far")
	h.meets("other")
	if err := way.Arm(chaos.Action{Kind: chaos.Delay, Dir: chaos.ToBack, Frame: 5, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	way.CutAll()
	testbed.Until(t, "the house has connected anew", func() bool { return way.Stats().Open > 0 })
	h.meets("far")
	key, body := largeKey("frozen"), testbed.Content(4<<20, 3)
	edge.store(key, body) // returns when the house has the block
	h.holds(key)
	if v := h.metric(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="link"}`); v != "0" {
		t.Error("it has gone on before the destination froze")
	}
	same(t, "by the next route", payloadOf(t, wire.OutputCritical, body), other.holds(key))
	h.shows(through("fell_back", 1))
	h.shows(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="link"} 1`)
	far.lacks(key)
}
