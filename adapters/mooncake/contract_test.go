package mooncake

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/fabric/fabrictest"
	"meridian/internal/door"
	"meridian/wire"
)

// lender is a peer that has registered memory and does nothing else.
type lender struct {
	mu       sync.Mutex
	addr     uint64
	b        []byte
	name     string
	host     string // of its data plane, in its descriptor
	data     netip.AddrPort
	target   *engine.Target
	server   *handshake.Server
	notifies []handshake.Notify
	bare     bool             // nothing is registered
	more     []segment.Buffer // are registered too
}

func (l *lender) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *lender) Enter(_ string, addr, n uint64, _ bool) ([]byte, func(uint64), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if addr < l.addr || addr-l.addr > uint64(len(l.b)) || n > uint64(len(l.b))-(addr-l.addr) {
		return nil, nil, wire.CodeInvalid
	}
	return l.b[addr-l.addr:][:n:n], func(uint64) {}, nil
}

func everybody(a netip.Addr) (string, error) { return a.String(), nil }

func newLender(t *testing.T, n int) *lender {
	t.Helper()
	l := &lender{b: make([]byte, n), addr: 0x7f00_0000_0000}
	refused := func(string, error) {}
	l.target = engine.NewTarget(engine.TargetConfig{Memory: l, Admit: everybody, Refused: refused})
	t.Cleanup(l.target.Close)
	l.server = handshake.NewServer(handshake.Config{
		Admit: everybody, Refused: refused,
		Descriptor: func(string) segment.Descriptor {
			l.mu.Lock()
			defer l.mu.Unlock()
			d := segment.Descriptor{Name: l.name, Protocols: []string{segment.TCP}, DataHost: l.host, DataPort: l.data.Port(), Proto: 2}
			if !l.bare {
				d.Buffers = append([]segment.Buffer{{Name: l.name, Addr: l.addr, Len: uint64(len(l.b))}}, l.more...)
			}
			return d
		},
		Notified: func(_ *door.Conn, n handshake.Notify) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.notifies = append(l.notifies, n)
			return nil
		},
	})
	t.Cleanup(l.server.Close)
	var err error
	if l.data, err = l.target.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	at, err := l.server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.name = at.String()
	l.mu.Unlock()
	return l
}

func newNode(t *testing.T, cfg Config) *Node {
	t.Helper()
	n, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func TestContract(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		l := newLender(t, 160<<20)
		n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"far", l.name}}})
		return fabrictest.Harness{
			Fabric: n, NS: wire.Namespace{1, 2, 3}, Peer: "far",
			Damage: func(it fabric.Item) error {
				at := n.store.Where(it.H)
				if at.Len == 0 {
					return fmt.Errorf("no such block")
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.b[at.Addr-l.addr+at.Len-1] ^= 0x10
				return nil
			},
			Leaks: func() error {
				blocks, bytes := n.store.Count()
				if blocks != 0 || bytes != 0 {
					return fmt.Errorf("%d blocks, %d bytes are left", blocks, bytes)
				}
				return nil
			},
		}
	})
}
