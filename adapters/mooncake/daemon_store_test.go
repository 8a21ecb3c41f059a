package mooncake_test

import (
	"fmt"
	"strings"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/realstore"
	"meridian/internal/testbed"
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
	node := func() *daemon {
		d := startAt(t, listen, data, "", fmt.Sprintf("store_node_bytes = \"64MiB\"\nstore_masters = %q", master.Address))
		testbed.Until(t, "the daemon lends its memory", func() bool {
			return strings.Contains(d.page("/metrics"), `meridian_fabric_finding{fabric="mooncake",finding="store_node"} 0`)
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
	d.stop()
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
