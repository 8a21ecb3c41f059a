package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/realstore"
	"meridian/adapters/mooncake/segment"
)

// masters is where a real master is.
func masters(t testing.TB, m *realstore.Master) Masters {
	t.Helper()
	v, err := ParseMasters(m.Address, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ourClient is a client of ours, with an initiator of its own.
func ourClient(t testing.TB, m *realstore.Master) *Client { return ourClientOf(t, masters(t, m)) }

func ourClientOf(t testing.TB, masters Masters) *Client {
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	c := NewClient(Options{Masters: masters, Engine: Over(in)})
	t.Cleanup(func() {
		in.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// host is what a storage node needs besides itself: ports for handshake and data.
type host struct {
	lent   *Lent
	name   string // of the segment
	target *engine.Target
	server *handshake.Server
}

func newHost(t testing.TB, size uint64) *host {
	t.Helper()
	lent, err := NewLent(size)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{lent: lent}
	everybody := func(a netip.Addr) (string, error) { return a.String(), nil }
	refused := func(peer string, err error) { t.Logf("refused %s: %v", peer, err) }
	h.target = engine.NewTarget(engine.TargetConfig{Memory: lent, Admit: everybody, Refused: refused})
	data, err := h.target.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.server = handshake.NewServer(handshake.Config{Admit: everybody, Refused: refused, Descriptor: func(string) segment.Descriptor {
		d := segment.Descriptor{Name: h.name, Protocols: []string{segment.TCP}, DataHost: "127.0.0.1", DataPort: data.Port(), Proto: 2}
		if base, size := lent.Range(); size > 0 {
			d.Buffers = []segment.Buffer{{Name: h.name, Addr: base, Len: size}}
		}
		return d
	}})
	at, err := h.server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.name = at.String()
	t.Cleanup(func() {
		h.target.Close()
		h.server.Close()
	})
	return h
}

func (h *host) node(t testing.TB, m *realstore.Master) *Node { return h.nodeOf(t, masters(t, m)) }

func (h *host) nodeOf(t testing.TB, masters Masters) *Node {
	t.Helper()
	n, err := StartNode(NodeOptions{Masters: masters, Lent: h.lent, Name: "meridian", Segment: h.name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.Wait(realstore.Bounded(t), serving); err != nil {
		t.Fatal(err)
	}
	return n
}

func ourNode(t testing.TB, m *realstore.Master, size uint64) *Node {
	return newHost(t, size).node(t, m)
}

func serving(s Status) bool { return s.State == NodeServing }

func randomBody(seed uint64, size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

// What one client puts, the other gets, byte for byte and with the checksum on: the
// objects lie on a node of ours, then on one of the wheel.
func TestObjectsArePutByOneClientAndGotByTheOther(t *testing.T) {
	master := realstore.StartMaster(t)
	ours := ourClient(t, master)
	for _, where := range []string{"our node", "their node"} {
		t.Run(where, func(t *testing.T) {
			segment := 0
			if where == "our node" {
				node := ourNode(t, master, 256<<20)
				defer node.Close()
			} else {
				segment = 256 << 20
			}
			theirs := realstore.StartClient(t, master.Address, segment, realstore.WithChecksum...)
			for i, size := range []int{1, 63, 4096, 100_001, 1_000_000} {
				exchange(t, ours, theirs, fmt.Sprintf("%s/%d", where, size), randomBody(uint64(i), size))
			}
			if segment != 0 {
				return
			}
			// Their initiator writes so much in two requests.
			body := randomBody(9, 17<<20)
			if got := theirs.Put("large", body); got != 0 {
				t.Fatal("put", got)
			}
			if got, o, err := ours.Get(realstore.Bounded(t), "large", 64<<20); err != nil || !o.Verified || !bytes.Equal(got, body) {
				t.Errorf("%d bytes, %+v, %v", len(got), o, err)
			}
		})
	}
}

func exchange(t *testing.T, ours *Client, theirs *realstore.Client, key string, body []byte) {
	t.Helper()
	ctx := realstore.Bounded(t)
	if got := theirs.Put(key+"/t", body); got != 0 {
		t.Fatalf("the real client's put of %d bytes answers %d", len(body), got)
	}
	if _, err := ours.Put(ctx, key+"/o", body); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{key + "/t", key + "/o"} {
		got, o, err := ours.Get(ctx, k, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, body) || !o.Verified {
			t.Errorf("%s: we got %d bytes, equal %v, verified %v", k, len(got), bytes.Equal(got, body), o.Verified)
		}
		if got := theirs.Get(k); !bytes.Equal(got, body) {
			t.Errorf("%s: the real client got %d bytes that are not what was put", k, len(got))
		}
	}
}
