package objects

import (
	"bytes"
	"fmt"
	"testing"

	"meridian/adapters/mooncake"
	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/realstore"
	"meridian/adapters/mooncake/store"
	"meridian/fabric"
	"meridian/fabric/fabrictest"
	"meridian/internal/testbed"
	"meridian/wire"
)

// room is what all objects of a test may take, in bytes.
const room = 512 << 20

// lender is a storage node of ours, at a real master.
type lender struct {
	name string // of its segment
}

func newLender(t *testing.T, master *realstore.Master) *lender {
	t.Helper()
	m, closing, err := mooncake.Masters(master.Address, "")
	if err != nil {
		t.Fatal(err)
	}
	at := realstore.FreeAddress(t)
	n, err := mooncake.New(t.Context(), mooncake.Config{Label: "node", Serve: &mooncake.ServeConfig{
		Listen: at, Data: at[:len(at)-len(at[bytes.LastIndexByte([]byte(at), ':'):])] + ":0",
		Lend:     &mooncake.LendConfig{Masters: m, Bytes: room, Close: closing},
		Observer: mooncake.Observer{Refused: func(peer string, _ bool, err error) { t.Logf("refused %s: %v", peer, err) }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	testbed.Until(t, "the node serves", func() bool {
		for _, f := range n.Findings() {
			if f.ID == "store_node" {
				return !f.Bad
			}
		}
		return false
	})
	return &lender{at}
}

func open(t *testing.T, master string) *Store {
	t.Helper()
	m, err := store.ParseMasters(master, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Label: "attic", Masters: m, Prefix: "mrdn", Lanes: 4})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// damage turns a bit of the body of an object, in the memory of the node.
func (l *lender) damage(t *testing.T, payload []byte) error {
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	defer in.Close()
	seg, err := in.Open(t.Context(), l.name)
	if err != nil {
		return err
	}
	d, _ := seg.Descriptor()
	const part = 64 << 20
	for from := uint64(0); from < d.Buffers[0].Len; from += part {
		ops := []engine.Op{{Addr: d.Buffers[0].Addr + from, B: make([]byte, part)}}
		if seg.Read(t.Context(), ops); ops[0].Err != nil {
			return ops[0].Err
		}
		if i := bytes.Index(ops[0].B, payload); i >= 0 {
			last := uint64(i + len(payload) - 1)
			ops = []engine.Op{{Addr: ops[0].Addr + last, B: []byte{ops[0].B[last] ^ 0x10}}}
			seg.Write(t.Context(), ops)
			return ops[0].Err
		}
	}
	return fmt.Errorf("no such payload in the node's memory")
}

func TestContract(t *testing.T) {
	master := realstore.StartMaster(t)
	l := newLender(t, master)
	round := byte(0)
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		s := open(t, master.Address)
		round++
		return fabrictest.Harness{
			Fabric: s, NS: wire.Namespace{1, 2, 3, round},
			Damage: func(it fabric.Item) error {
				b := make([]byte, 64<<10)
				o, err := s.client.GetInto(t.Context(), s.key(ident{it.NS, it.Key}), b)
				if err != nil {
					return err
				}
				return l.damage(t, b[:o.Size])
			},
		}
	})
}
