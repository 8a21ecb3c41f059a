package mooncake

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"meridian/adapters/mooncake/internal/fakeplane"
	"meridian/adapters/mooncake/internal/realstore"
	"meridian/adapters/mooncake/metadata"
	"meridian/internal/testbed"
	"meridian/wire"
)

func lend(t *testing.T, master string) func(*ServeConfig) {
	t.Helper()
	m, closing, err := Masters(master, "")
	if err != nil {
		t.Fatal(err)
	}
	return func(c *ServeConfig) { c.Lend = &LendConfig{Masters: m, Bytes: 16 << 20, Close: closing} }
}

// A storage node starts without its master, says so, and neither keeps a drain waiting
// nor lends anything.
func TestAStorageNodeWithoutItsMasterSaysSo(t *testing.T) {
	h := newHouse(t, nil, lend(t, realstore.FreeAddress(t)))
	testbed.Until(t, "it has asked the master", func() bool {
		f := findingOf(t, h.Node, "store_node")
		return f.Bad && strings.Contains(f.Reason, "connect")
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Drain(ctx)
}

// The name of its segment is another node's: what it lent would be written there.
func TestAStorageNodeWithoutItsNameOffersNothing(t *testing.T) {
	master := realstore.StartMaster(t)
	theirs := metadata.Node{At: metadata.Endpoint{Host: "127.0.0.1", Port: 1}}
	plane := &fakeplane.Plane{Nodes: map[string]metadata.Node{"house": theirs}}
	h := newHouseAt(t, plane, nil, func(c *ServeConfig) {
		lend(t, master.Address)(c)
		c.Segment, c.Epoch = "house", 1
	})
	testbed.Until(t, "it says why not", func() bool {
		f := findingOf(t, h.Node, "store_node")
		return f.Bad && strings.Contains(f.Reason, "belongs to") && strings.Contains(f.Fix, "published")
	})
	if n := h.server.storage.node.Status().Offers; n != 0 {
		t.Error("offered:", n)
	}
	plane.Set(func() { delete(plane.Nodes, "house") })
	testbed.Until(t, "it has its name, and serves", func() bool { return !findingOf(t, h.Node, "store_node").Bad })
}

// The master gives out no more of a node that drains, its readers finish, and then
// nothing of it is reached.
func TestAStorageNodeDrains(t *testing.T) {
	master := realstore.StartMaster(t)
	h := newHouse(t, nil, lend(t, master.Address))
	testbed.Until(t, "it serves", func() bool { return !findingOf(t, h.Node, "store_node").Bad })
	theirs := realstore.StartClient(t, master.Address, 0)
	if put := theirs.Put("k", []byte("body")); put != 0 {
		t.Fatal("put:", put)
	}
	base, _ := h.server.storage.lent.Range()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // readers have half of it
	defer cancel()
	h.Drain(ctx)
	if put := theirs.Put("l", []byte("body")); put == 0 {
		t.Error("the master gave out memory of a node that had drained")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := h.server.Enter("127.0.0.1", base, 1, false); !errors.Is(err, wire.CodeStale) && !errors.Is(err, wire.CodeDenied) && !errors.Is(err, wire.CodeInvalid) {
		t.Error("after the end:", err)
	}
}
