package bridgetest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"meridian/adapters/mooncake/realengine"
	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/internal/testbed"
	"meridian/wire"
)

const psk = "psk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n"

// listens is the link of a daemon that peers dial.
func listens(peers ...string) string {
	text := "[link]\n" + psk + "listen = [\"tcp://127.0.0.1:0\"]\n"
	for _, p := range peers {
		text += fmt.Sprintf("[[link.peer]]\nname = %q\ntenants = [\"acme\"]\n", p)
	}
	return text
}

// dials is the link of a daemon that dials others, by name, and lists those that dial it.
func dials(to ...*house) string {
	text := "[link]\n" + psk + "listen = [\"tcp://127.0.0.1:0\"]\n"
	for _, h := range to {
		text += fmt.Sprintf("[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"acme\"]\n", h.name, h.ports["link"][0])
	}
	return text
}

func route(from, fabric string) string {
	return fmt.Sprintf("[[route]]\nfrom = %q\nfabric = %q\n", from, fabric)
}

const writesThrough = "[disagg]\nenabled = true\nfabric = \"link\"\nwrite_through = true\n"

// store puts a block of a prompt, which is copied to where the routes say before the PUT
// is acknowledged.
func (h *house) store(key wire.Key, body []byte) {
	h.t.Helper()
	if err := h.engine.Put(h.t.Context(), []client.Block{{NS: h.ns, Key: key, Tier: wire.OutputCritical, Body: body}})[0]; err != nil {
		h.t.Fatal(err)
	}
}

// meets waits until a peer of the link is ready.
func (h *house) meets(peer string) {
	h.t.Helper()
	testbed.Until(h.t, h.name+" meets "+peer, func() bool {
		list, err := h.admin.ListPeers(h.t.Context(), &adminpb.ListPeersRequest{Name: peer})
		return err == nil && list.GetPeers()[0].GetState() == adminpb.PeerState_PEER_STATE_READY
	})
}

// holds waits until a block is in its arena, and returns the payload: the header as it is
// there, the body as an engine reads it.
func (h *house) holds(key wire.Key) []byte {
	h.t.Helper()
	var b *adminpb.Block
	testbed.Until(h.t, h.name+" holds the block", func() (ok bool) {
		var err error
		b, err = h.admin.StatBlock(h.t.Context(), &adminpb.StatBlockRequest{Key: key.String()})
		return err == nil && b.GetWhere() == "arena"
	})
	head, err := hex.DecodeString(b.GetHeader())
	if err != nil {
		h.t.Fatal(err)
	}
	return append(head, h.reads(key, false)...)
}

// reads is what an engine reads of a block, loaded from elsewhere where fetch says so.
func (h *house) reads(key wire.Key, fetch bool) []byte {
	h.t.Helper()
	lease, err := h.engine.Acquire(h.t.Context(), h.ns, []wire.Key{key}, client.AcquireOptions{Fetch: fetch})
	if err != nil {
		h.t.Fatal(err)
	}
	defer lease.Release()
	if err := lease.Blocks[0].Err; err != nil {
		h.t.Fatal(h.name, err, lease.Why)
	}
	return bytes.Clone(lease.Blocks[0].Body)
}

// Blocks of a daemon go through another one to a real agent of NIXL, and to a real engine
// of Mooncake, and theirs come to it.
func TestBlocksGoBetweenTheLinkAndEachWorld(t *testing.T) {
	t.Run("NIXL", func(t *testing.T) {
		n := newNIXLApp(t, "decode")
		h := start(t, "house", listens("edge")+nixlTable(t, n)+route("link", "nixl")+route("nixl", "link"))
		edge := start(t, "edge", dials(h)+writesThrough)
		edge.meets("house")
		h.meets("edge")
		n.meet()
		out, in := keyOf("out"), keyOf("in")
		body := testbed.Content(60_000, 3)
		edge.store(out, body)
		same(t, "link to NIXL", payloadOf(t, wire.OutputCritical, body), n.takes(out))
		payload := payloadOf(t, wire.ThinkActive, testbed.Content(50_000, 4))
		n.brings(in, payload)
		same(t, "NIXL to link", payload, edge.holds(in))
		h.shows(`meridian_gateway_attempts_total{from="link",reason="OK",to="nixl"} 1`)
		h.shows(`meridian_gateway_attempts_total{from="nixl",reason="OK",to="link"} 1`)
		h.showsTransfer("nixl", "out", "forward")
	})
	t.Run("Mooncake", func(t *testing.T) {
		m := &mooncakeApp{Engine: realengine.Start(t, 8<<20), t: t}
		h := start(t, "house", listens("edge")+mooncakeTable(m.Engine)+route("link", "mooncake")+route("mooncake", "link"))
		edge := start(t, "edge", dials(h)+writesThrough)
		edge.meets("house")
		h.meets("edge")
		out, in := keyOf("out"), keyOf("in")
		body := testbed.Content(60_000, 5)
		edge.store(out, body)
		same(t, "link to Mooncake", payloadOf(t, wire.OutputCritical, body), m.takes(out))
		body = testbed.Content(30_000, 6)
		head := m.makes(body, wire.ThinkComplete)
		m.brings(h, in, len(head)+len(body))
		same(t, "Mooncake to link", append(head, body...), edge.holds(in))
	})
}

// showsTransfer demands that `mrdn transfer list` shows what goes on.
func (h *house) showsTransfer(fabric, direction, op string) {
	h.t.Helper()
	list, err := h.admin.ListTransfers(h.t.Context(), &adminpb.ListTransfersRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, x := range list.GetTransfers() {
		if x.GetFabric() == fabric && x.GetOp() == op && strings.HasSuffix(strings.ToLower(x.GetDirection().String()), direction) {
			return
		}
	}
	h.t.Errorf("no %s to %s in %v", op, fabric, list)
}

// A block that lies in a synthetic fabric, and in no arena, is had by a real agent of
// NIXL, by a real engine of Mooncake and by an engine of another daemon that ask for it; and
// what they bring goes there.
func TestBlocksGoBetweenASyntheticFabricAndEachWorld(t *testing.T) {
	m := &mooncakeApp{Engine: realengine.Start(t, 8<<20), t: t}
	n := newNIXLApp(t, "decode")
	h := start(t, "house", listens("edge")+mooncakeTable(m.Engine)+nixlTable(t, n)+
		"[fabric.nixl-synth]\n[disagg]\nenabled = true\nfabric = \"nixl-synth\"\n"+
		route("link", "nixl-synth")+route("nixl", "nixl-synth")+route("mooncake", "nixl-synth"))
	edge := start(t, "edge", dials(h)+writesThrough)
	edge.meets("house")
	n.meet()
	for i, asks := range []func(key wire.Key, n int) []byte{
		n.asks,
		func(key wire.Key, n int) []byte { return m.asks(h, key, n) },
		func(key wire.Key, _ int) []byte {
			body := edge.reads(key, true)
			return append(edge.holds(key)[:wire.HeaderLen], body...)
		},
	} {
		key, body := keyOf(fmt.Sprint("asked", i)), testbed.Content(40_000, uint64(10+i))
		h.think(key, body)
		payload := payloadOf(t, wire.ThinkActive, body)
		same(t, fmt.Sprint("synthetic to asker ", i), payload, asks(key, len(payload)))
	}
	n.brings(keyOf("n"), payloadOf(t, wire.ThinkActive, testbed.Content(9_000, 20)))
	body := testbed.Content(8_000, 21)
	m.makes(body, wire.ThinkActive)
	m.brings(h, keyOf("m"), wire.HeaderLen+len(body))
	edge.store(keyOf("e"), testbed.Content(7_000, 22))
	for from, bytes := range map[string]int{"nixl": 9_000, "mooncake": 8_000, "link": 7_000} {
		h.shows(fmt.Sprintf(`meridian_gateway_bytes_total{from=%q,to="nixl-synth"} %d`, from, bytes))
		h.shows(fmt.Sprintf(`meridian_gateway_looks_total{from=%q,reason="OK"} 1`, from))
	}
}

// think runs a request that puts a block while it thinks, and then stops thinking; it waits
// until the block has left the arena.
func (h *house) think(key wire.Key, body []byte) {
	t, e := h.t, h.engine
	t.Helper()
	const begin, end, eos, word = 151667, 151668, 151645, 1000
	req, err := e.Begin(t.Context(), client.Begin{ID: key.String()[:16], Model: "qwen3-8b", Prompt: []int32{word, begin}})
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
	testbed.Until(t, "the block has left the arena", func() bool {
		_, err := h.admin.StatBlock(t.Context(), &adminpb.StatBlockRequest{Key: key.String()})
		return status.Code(err) == codes.NotFound
	})
}

// What one application brings goes to another one of the same fabric, which the route
// names, and not back to it.
func TestABlockGoesFromOneApplicationToAnother(t *testing.T) {
	a, b := newNIXLApp(t, "a"), newNIXLApp(t, "b")
	h := start(t, "house", nixlTable(t, a, b)+"[[route]]\nfrom = \"nixl\"\nfabric = \"nixl\"\npeer = \"b\"\n")
	a.meet()
	b.meet()
	payload := payloadOf(t, wire.ThinkActive, testbed.Content(40_000, 1))
	a.brings(keyOf("one"), payload)
	same(t, "NIXL to NIXL", payload, b.takes(keyOf("one")))
	b.brings(keyOf("two"), payloadOf(t, wire.ThinkActive, testbed.Content(40_000, 2)))
	h.shows(`meridian_gateway_blocks_total{from="nixl",outcome="forwarded",to="nixl"} 1`)
	if v := h.metric(`meridian_gateway_attempts_total{from="nixl",reason="OK",to="nixl"}`); v != "1" {
		t.Errorf("%s pushes", v)
	}
}
