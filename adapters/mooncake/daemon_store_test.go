package mooncake_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/realstore"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/internal/testbed"
	"meridian/internal/testdaemon"
	"meridian/wire"
)

// A daemon is the storage node of a real master, and a real client puts 10,000 objects
// there. In the middle the daemon ends and is started again on the same ports: what lay
// there is missing, an address of before is refused, and nothing is ever read wrongly.
func TestARealStoreClientKeepsObjectsOnADaemonThatIsRestarted(t *testing.T) {
	t.Parallel() // it mostly waits for what others forget
	const all, half = 10_000, 5_000
	master := realstore.StartMaster(t)
	listen, data := realstore.FreeAddress(t), realstore.FreeAddress(t)
	data = listen[:strings.LastIndex(listen, ":")] + data[strings.LastIndex(data, ":"):]
	node := func() *testdaemon.Daemon {
		d := startAt(t, listen, data, "", fmt.Sprintf("store_node_bytes = \"64MiB\"\nstore_masters = %q", master.Address))
		testbed.Until(t, "the daemon lends its memory", func() bool {
			return strings.Contains(d.Page("/metrics"), `meridian_fabric_finding{fabric="mooncake",finding="store_node"} 0`)
		})
		return d
	}
	d := node()
	theirs := realstore.StartClient(t, master.Address, 0, realstore.WithChecksum...)
	if put := theirs.PutMany("a", 0, half); put != half {
		t.Fatalf("%d of %d puts succeeded", put, half)
	}
	theirs.Expect("a", 0, half, [3]int{half, 0, 0})
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	defer in.Close()
	seg, err := in.Open(t.Context(), listen)
	if err != nil {
		t.Fatal(err)
	}
	old, _ := seg.Descriptor()
	if len(old.Buffers) != 1 {
		t.Fatalf("the descriptor has %d buffers, want what is lent", len(old.Buffers))
	}
	d.Stop()
	node()
	theirs.Expect("a", 0, 20, [3]int{0, 20, 0})
	if put := theirs.PutMany("b", half, all); put < 1 {
		t.Fatal("nothing can be put after the restart")
	}
	theirs.ExpectNoneWrong("b", half, all)
	theirs.Expect("a", 0, 20, [3]int{0, 20, 0})
	ops := []engine.Op{{Addr: old.Buffers[0].Addr, B: make([]byte, 100)}}
	if seg.Read(t.Context(), ops); ops[0].Err == nil {
		t.Error("an address of before was read")
	}
}

// What a daemon puts into a Store the real client reads, and a reader made from the page
// of the format alone finds the same header and body. What another client put there by
// the page is found by its key, and goes to an engine.
func TestADaemonsBlocksInAStoreAreMRDNToTheRealClient(t *testing.T) {
	master := realstore.StartMaster(t)
	theirs := realstore.StartClient(t, master.Address, 64<<20, realstore.WithChecksum...)
	d := start(t, `[disagg]
enabled = true
fabric = "attic"
write_through = true
[fabric.attic]
kind = "mooncake-store"
prefix = "house/blocks"
masters = "`+master.Address+`"`, "")
	d.Ready(t)
	e, err := client.DialEngine(t.Context(), d.Engine(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	m := wire.Manifest{Tenant: "acme", Model: "m", Role: "kv", BlockTokens: 16, BlockBytes: 64 << 10}
	ns, err := e.Open(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	out, in := wire.KeyOf(m.Namespace(), []byte("out")), wire.KeyOf(m.Namespace(), []byte("in"))
	object := func(k wire.Key) string { return fmt.Sprintf("house/blocks/%v/%v", m.Namespace(), k) }
	body := wheel.Content(5_000, 1)
	think(t, e, client.Block{NS: ns, Key: out, Tier: wire.ThinkActive, Body: body})
	var got struct {
		Right bool   `json:"right"`
		Tier  int    `json:"tier"`
		Body  string `json:"body"`
	}
	testbed.Until(t, "the object is there", func() bool {
		return realstore.Ask[int](theirs, "exist", map[string]any{"key": object(out)}) == 1
	})
	if err := json.Unmarshal(realstore.Ask[json.RawMessage](theirs, "mrdn", map[string]any{"key": object(out)}), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Right || got.Tier != int(wire.ThinkActive) || got.Body != hex.EncodeToString(body) {
		t.Errorf("the reader sees right %v, tier %d, %d digits", got.Right, got.Tier, len(got.Body))
	}
	want, err := wire.AppendPayload(nil, wire.ThinkActive, body)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(theirs.Get(object(out)), want) {
		t.Error("the object is not the payload")
	}

	theirBody := wheel.Content(60_000, 2)
	payload, err := wire.AppendPayload(nil, wire.ThinkActive, theirBody)
	if err != nil {
		t.Fatal(err)
	}
	if put := theirs.Put(object(in), payload); put != 0 {
		t.Fatal("put:", put)
	}
	lease, err := e.Acquire(t.Context(), ns, []wire.Key{in}, client.AcquireOptions{Fetch: true})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	if b := lease.Blocks[0]; b.Err != nil || !bytes.Equal(b.Body, theirBody) {
		t.Errorf("what the other client put: %d bytes, %v", len(b.Body), b.Err)
	}
}

// An operator reads what the real client has put, through the admin socket of a running
// daemon, in pieces; and not without leave of the table, and no block.
func TestAnOperatorReadsObjectsOfARealClient(t *testing.T) {
	master := realstore.StartMaster(t)
	theirs := realstore.StartClient(t, master.Address, 64<<20)
	body := wheel.Content(1_000_000, 6)
	if rc := theirs.Put("page/7", body); rc != 0 {
		t.Fatal("put:", rc)
	}
	table := func(name, raw string) string {
		return fmt.Sprintf("[fabric.%s]\nkind = \"mooncake-store\"\nmasters = %q\n%s\n", name, master.Address, raw)
	}
	d := start(t, table("attic", "raw = true")+table("cellar", ""), "")
	c, err := client.DialAdmin(t.Context(), d.Admin())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	get := func(fabric, key string) (verification adminpb.Verification, b []byte, err error) {
		s, err := c.ReadObject(t.Context(), &adminpb.ReadObjectRequest{Fabric: fabric, Key: key})
		for err == nil {
			var m *adminpb.ObjectPart
			if m, err = s.Recv(); err == nil {
				verification, b = max(verification, m.GetVerification()), append(b, m.GetData()...)
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return verification, b, err
	}
	if v, b, err := get("attic", "page/7"); err != nil || v != adminpb.Verification_VERIFICATION_UNVERIFIED || !bytes.Equal(b, body) {
		t.Errorf("%v, %d bytes, %v", v, len(b), err)
	}
	for _, c := range []struct{ fabric, key, code, says string }{
		{"attic", "page/8", "ABSENT", "no such object"},
		{"attic", "mrdn/x", "DENIED", "mrdn block get"},
		{"cellar", "page/7", "DENIED", "raw = true in [fabric.cellar]"},
	} {
		if _, b, err := get(c.fabric, c.key); adminpb.Detail(err).GetName() != c.code || !strings.Contains(err.Error(), c.says) || b != nil {
			t.Errorf("%s %s: %d bytes, %v", c.fabric, c.key, len(b), err)
		}
	}
	if !strings.Contains(d.Page("/metrics"), `meridian_fabric_objects_total{fabric="attic",outcome="ok",verification="unverified"} 1`) {
		t.Error("it is not counted")
	}
}
