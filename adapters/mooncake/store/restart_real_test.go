package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/internal/realstore"
)

// crash ends a node as the end of its process does: nobody tells the master.
func (n *Node) crash() {
	n.stop()
	<-n.done
	_ = n.options.Lent.withdraw()
	_ = n.rpc.Close()
}

const many = 10_000

// Small objects of the real client lie on our node. The node crashes and is restarted
// on the same ports: what lay there is missing, and nothing else ever comes instead,
// neither while the master still gives out the old addresses, nor when the memory
// holds new objects.
func TestTenThousandObjectsAndARestartOfTheirNode(t *testing.T) {
	t.Parallel() // it mostly waits for what others forget
	master := realstore.StartMaster(t, "--client_ttl=12")
	h := newHost(t, 64<<20)
	node := h.node(t, master)
	theirs := realstore.StartClient(t, master.Address, 0, realstore.WithChecksum...)
	half := many / 2
	if put := theirs.PutMany("a", 0, half); put != half {
		t.Fatalf("%d of %d puts succeeded", put, half)
	}
	theirs.Expect("a", 0, half, [3]int{half, 0, 0})
	ours := ourClient(t, master)
	old, err := ours.locate(realstore.Bounded(t), "a1")
	if err != nil {
		t.Fatal(err)
	}

	node.crash()
	again := h.node(t, master)
	if again.Status().Base == node.Status().Base {
		t.Fatal("the node has the same addresses as before")
	}
	theirs.Expect("a", 0, 20, [3]int{0, 20, 0})
	if put := theirs.PutMany("b", half, many); put < 1 {
		t.Fatal("nothing can be put after the restart")
	}
	theirs.ExpectNoneWrong("b", half, many)
	theirs.Expect("a", 0, 20, [3]int{0, 20, 0})

	b := readable(old.List)[0]
	err = ours.engine.Read(realstore.Bounded(t), b.Endpoint, b.Address, make([]byte, b.Size))
	var refused *engine.RejectedError
	if !errors.As(err, &refused) {
		t.Errorf("a read of an old address: %v, want a refusal", err)
	}
	for i := range 20 {
		if _, _, err := ours.Get(realstore.Bounded(t), fmt.Sprintf("a%d", i), 1<<20); err == nil {
			t.Errorf("a%d was read after its node restarted", i)
		}
	}
}

// A master that restarts has forgotten all. The node notices by its next ping and
// offers new memory at new addresses; an address of before is refused.
func TestAMasterThatRestartsGetsTheNodeBack(t *testing.T) {
	t.Parallel() // it mostly waits for what others forget
	master := realstore.StartMaster(t)
	node := ourNode(t, master, 64<<20)
	ours := ourClient(t, master)
	body := randomBody(1, 100_000)
	if _, err := ours.Put(realstore.Bounded(t), "before", body); err != nil {
		t.Fatal(err)
	}
	old, err := ours.locate(realstore.Bounded(t), "before")
	if err != nil {
		t.Fatal(err)
	}

	master.Stop()
	if err := node.Wait(realstore.Bounded(t), func(s Status) bool { return s.State == NodeLost }); err != nil {
		t.Fatal(err)
	}
	b := readable(old.List)[0]
	to := make([]byte, b.Size)
	if err := ours.engine.Read(realstore.Bounded(t), b.Endpoint, b.Address, to); err != nil || !bytes.Equal(to, body) {
		t.Fatalf("while the master is away, what lies here may be read: %v", err)
	}
	master.Start()
	if err := node.Wait(realstore.Bounded(t), func(s Status) bool { return s.State == NodeServing && s.Offers == 2 }); err != nil {
		t.Fatal(err)
	}
	var refused *engine.RejectedError
	if err := ours.engine.Read(realstore.Bounded(t), b.Endpoint, b.Address, to); !errors.As(err, &refused) {
		t.Errorf("a read of an address of before: %v, want a refusal", err)
	}
	if _, _, err := ours.Get(realstore.Bounded(t), "before", 1<<20); !errors.Is(err, CodeNotFound) {
		t.Errorf("the object of before: %v, want %v", err, CodeNotFound)
	}
	theirs := realstore.StartClient(t, master.Address, 0, realstore.WithChecksum...)
	exchange(t, ours, theirs, "after", body)
}
