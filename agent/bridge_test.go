package agent

import (
	"context"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// A daemon that drains lets go on what peers were told that it has taken, and waits for it
// no longer than it may.
func TestADrainLetsGoOnWhatWaits(t *testing.T) {
	n := startNode(t, shortDir(t), "one", linkTable+"[[link.peer]]\nname = \"gone\"\naddress = \"tcp://127.0.0.1:1\"\ntenants = [\"acme\"]\n")
	e := n.engine(t)
	if err := n.fabrics.Add("shelf", synthetic.New(synthetic.Options{})); err != nil {
		t.Fatal(err)
	}
	if err := n.routes.Replace([]fabric.Route{{From: linkFabric, Fabric: linkFabric, Peer: "gone", Require: true}}); err != nil {
		t.Fatal(err)
	}
	keys := e.keys("waits", 1)
	e.put(t, keys, 4<<10, wire.ThinkActive, 0)
	pass, err := n.mover.Bring(fabric.Hop{Fabric: linkFabric, Peer: "other"}, fabric.Brought{NS: e.ns, Key: keys[0], Tier: wire.ThinkActive, Bytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	pass.End(nil)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	n.mover.Forwarded(short)
	if st := n.mover.BridgeStats(); st.Waiting != 1 {
		t.Fatalf("%+v", st)
	}
	drained := make(chan error)
	go func() { drained <- n.Drain(t.Context()) }()
	until(t, "the daemon drains", func() bool { return drainState(n.drain.Load()) == draining })
	if err := n.routes.Replace([]fabric.Route{{From: linkFabric, Fabric: "shelf"}}); err != nil {
		t.Fatal(err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if st := n.mover.BridgeStats(); st.Forwarded != 1 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}
