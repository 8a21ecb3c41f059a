package nixl_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"meridian/adapters/nixl/internal/wheel"
	"meridian/agent"
	"meridian/agent/adminpb"
	"meridian/internal/realpart/etcdnode"
	"meridian/internal/testbed"
	"meridian/wire"
)

// at is the address of a kind that the daemon says it listens at.
func (h *house) at(fabric, scheme string) string {
	h.t.Helper()
	for _, a := range h.ports[fabric] {
		if addr, ok := strings.CutPrefix(a, scheme); ok {
			return addr
		}
	}
	h.t.Fatalf("no %s of %s in %v", scheme, fabric, h.ports)
	return ""
}

// An unmodified agent sends its metadata to the daemon's own listener. One that has a
// listener itself gets the daemon's by the same connection; it may fetch them too.
func TestADaemonSharesBlocksWithAnAgentThatSendsItsMetadata(t *testing.T) {
	a := &app{Agent: wheel.Listen(t, "app", 8<<20), t: t}
	h := newHouse(t, nixlTable(t, "app=listener://app", `listen = "127.0.0.1:0"`))
	at := h.at("nixl", "nixl://")
	a.Send(at)
	guest := wheel.Listen(t, "guest", 1<<16)
	sharesBlocks(t, a, h, func(from string) {
		a.Fetch(from, at)
		guest.Fetch(from, at)
		testbed.Until(t, "an agent that only asks is answered", func() bool { return guest.Knows(from) })
	})
	guest.Send(at) // nobody has listed it
	peer := func() *adminpb.Peer {
		t.Helper()
		list, err := h.admin.ListPeers(t.Context(), &adminpb.ListPeersRequest{})
		if err != nil || len(list.GetPeers()) != 1 {
			t.Fatal(list.GetPeers(), err)
		}
		return list.GetPeers()[0]
	}
	if p := peer(); p.GetState() != adminpb.PeerState_PEER_STATE_READY || p.GetAddress() != "listener://app" {
		t.Error(p)
	}
	a.Kill()
	testbed.Until(t, "the agent's end is seen", func() bool { return peer().GetState() == adminpb.PeerState_PEER_STATE_CONNECTING })
	b := &app{Agent: wheel.Listen(t, "app", 8<<20), t: t}
	b.Send(at)
	testbed.Until(t, "the next one of its name is connected", func() bool { return peer().GetState() == adminpb.PeerState_PEER_STATE_READY })
	movesAfterARestart(t, b, h, at)
}

// movesAfterARestart has an agent that came back under its name bring a block and take
// one: what is left of the process before it, endpoints and prepared lists, is in
// nobody's way.
func movesAfterARestart(t *testing.T, b *app, h *house, at string) {
	t.Helper()
	from, text := b.hear("mrdn window ")
	b.Fetch(from, at)
	testbed.Until(t, "the next one knows the daemon's agent", func() bool { return b.Knows(from) })
	var window uint64
	var n int
	testbed.Scan(t, text, &window, &n)
	b.Notify(from, fmt.Sprintf("mrdn lend %d %d", b.Addr, 4<<20))
	b.hear("mrdn lend-done ")
	key := wire.KeyOf(h.space, []byte("after the restart"))
	payload, err := wire.AppendPayload(nil, wire.ThinkActive, testbed.Content(60_000, 3))
	if err != nil {
		t.Fatal(err)
	}
	b.Put(4<<20, payload)
	b.Write(from, 4<<20, window, len(payload), fmt.Sprintf("mrdn put %v %v %d %d", h.space, key, window, len(payload)))
	b.hear(fmt.Sprintf("mrdn put-done %v %v ", h.space, key))
	if !bytes.Equal(h.body(key), payload[wire.HeaderLen:]) {
		t.Error("the engine reads other bytes than the next one brought")
	}
	b.Notify(from, fmt.Sprintf("mrdn get %v %v %d %d", h.space, key, b.Addr+(5<<20), 1<<20))
	b.hear(fmt.Sprintf("mrdn get-done %v %v ", h.space, key))
	if got := b.Get(5<<20, len(payload)); !bytes.Equal(got, payload) {
		t.Error("the next one got other bytes")
	}
}

// An unmodified agent and the daemon find each other by name, on a hub that is another
// fabric of the daemon: no listener of either, and neither knows where the other is.
func TestADaemonSharesBlocksWithAnAgentOfTheHub(t *testing.T) {
	at := freePort(t)
	h := newHouse(t, nixlTable(t, "app=tcpstore://app", fmt.Sprintf("tcpstore = %q", at), "[fabric.hub]", `kind = "nixl-hub"`, fmt.Sprintf("listen = %q", at)))
	a := &app{Agent: wheel.Start(t, "app", 8<<20, "NIXL_TCPSTORE_ENDPOINT="+at), t: t}
	a.Send("")
	sharesBlocks(t, a, h, func(from string) { a.Fetch(from, "") })
	res, err := http.Get(h.at("http", "") + "/varz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var varz agent.Varz
	if err := json.NewDecoder(res.Body).Decode(&varz); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range varz.Metadata["hub"].Entries {
		names[strings.TrimRight(e.Name, "0123456789abcdef")] = e.Alive && e.Label == "metadata" && e.PID != 0 && e.Bytes > 0 && strings.HasPrefix(e.From, "127.0.0.1:")
	}
	if len(names) != 2 || !names["app"] || !names["meridian-house-"] {
		t.Errorf("/varz says that the hub has %+v", varz.Metadata)
	}
	list, err := h.admin.ListMetadata(t.Context(), &adminpb.ListMetadataRequest{Fabric: "hub"})
	if err != nil || list.GetCount() != 2 || len(list.GetEntries()) != 2 || list.GetEntries()[0].GetName() != "app" || !list.GetEntries()[0].GetAlive() {
		t.Error(list, err)
	}
	if list, err := h.admin.ListMetadata(t.Context(), &adminpb.ListMetadataRequest{Fabric: "nixl"}); adminpb.Detail(err).GetName() != wire.CodeAbsent.String() {
		t.Error("a fabric that keeps none:", list, err)
	}
	if got := h.at("hub", "tcpstore://"); got != at {
		t.Errorf("the hub says that it is at %s, and is at %s", got, at)
	}
}

// freePort is an address at which nobody listens now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// The same by a real etcd: what the daemon puts there ends with it, and what it reads is
// where the released wheel puts it.
func TestADaemonSharesBlocksWithAnAgentOfEtcd(t *testing.T) {
	for name, namespace := range map[string]string{"NIXL's own namespace": "", "another one": "/cluster-7"} {
		t.Run(name, func(t *testing.T) {
			n := etcdnode.Start(t)
			lines, env := []string{fmt.Sprintf("etcd = [%q]", n.Endpoint)}, []string{"NIXL_ETCD_ENDPOINTS=http://" + n.Endpoint}
			if namespace != "" {
				lines, env = append(lines, fmt.Sprintf("etcd_namespace = %q", namespace)), append(env, "NIXL_ETCD_NAMESPACE="+namespace)
			}
			a := &app{Agent: wheel.Start(t, "app", 8<<20, env...), t: t}
			a.Send("")
			h := newHouse(t, nixlTable(t, "app=etcd://app", lines...))
			sharesBlocks(t, a, h, func(from string) { a.Fetch(from, "") })
		})
	}
}
