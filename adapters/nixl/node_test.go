package nixl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/adapters/nixl/plane"
	"meridian/blocks"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/fabrictest"
	"meridian/internal/testbed"
	"meridian/wire"
)

// lender is a peer with the real library: it has memory, lends it to whoever connects,
// and does nothing else.
type lender struct {
	*process
	mem  []byte
	at   uint64 // its memory, in its helper
	addr string // of its listener
	box  chan told

	mu   sync.Mutex
	blob []byte
}

func newLender(t *testing.T, agent string, n uint64) *lender {
	t.Helper()
	l := &lender{}
	l.process, l.box = newProcess(t, helperConfig(t), agent)
	table := window.New(nil, func() time.Duration { return 0 }, 0, nil)
	const owner = blocks.Owner(1)
	w, err := table.Open(owner, window.Spec{Bytes: n, TTL: window.Forever, Map: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Drop(owner) })
	var leave func()
	if l.mem, leave, err = table.Own(owner, w.Addr, w.Len); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	if l.at, err = l.mapWindow(t.Context(), 1, w, false); err != nil {
		t.Fatal(err)
	}
	blob, err := ask[*control.Blob](t.Context(), l.process, &control.Metadata{}, -1)
	if err != nil {
		t.Fatal(err)
	}
	l.blob = blob.Blob
	l.addr = listen(t, l.answer)
	return l
}

// listen accepts connections until the test ends, and returns the address. What answers
// one may keep it.
func listen(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		_ = ln.Close()
		stop()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				defer c.Close()
				answer(c)
			})
		}
	})
	return ln.Addr().String()
}

// tell answers a listener's question for metadata.
func tell(c net.Conn, blob []byte) {
	_, _ = c.Write(plane.Frame{Verb: plane.Load, Body: blob}.Append(nil))
}

func (l *lender) answer(c net.Conn) {
	for {
		f, err := plane.ReadFrame(c, nil)
		if err != nil {
			return
		}
		if f.Verb == plane.Send {
			l.mu.Lock()
			tell(c, l.blob)
			l.mu.Unlock()
			continue
		}
		l.lend(f.Body)
	}
}

// lend lends the memory to the agent of these metadata.
func (l *lender) lend(blob []byte) {
	loaded, err := ask[*control.Loaded](context.Background(), l.process, &control.Load{Blob: blob}, -1)
	if err == nil {
		lend := message{verb: verbLend, addr: l.at, n: uint64(len(l.mem))}.String()
		_, _ = ask[*control.Done](context.Background(), l.process, &control.Notify{Peer: loaded.Peer, Text: []byte(lend)}, -1)
	}
}

// config is a Node's, without namespaces.
func config(t *testing.T, peers ...PeerConfig) Config {
	t.Helper()
	store, err := blocks.Open(blocks.Config{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	table := window.New(store, func() time.Duration { return 0 }, 0, nil)
	return Config{
		Label: "nixl", Agent: "house", Helper: helperConfig(t), Peers: peers, Window: 1 << 20, Staging: MinStaging, Lanes: 1,
		Store: store, Windows: table, Tenant: func(wire.Namespace) (string, bool) { return "", false },
		Observer: Observer{Changed: func() {}, Moved: func(string, bool, string, uint64, time.Duration) {}, Refused: func(string, bool, error) {}, Wrong: func(string) {}},
	}
}

func newNode(t *testing.T, c Config) *Node {
	t.Helper()
	n, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// lends waits until a peer has lent its memory.
func lends(t *testing.T, n *Node, name string) {
	t.Helper()
	testbed.Until(t, "peer "+name+" lends memory", func() bool {
		for _, p := range n.roster.Load().peers {
			if l, err := p.now(); p.Name() == name && err == nil && l.lent.Len > 0 {
				return true
			}
		}
		return false
	})
}

func TestContract(t *testing.T) {
	far := newLender(t, "far", 160<<20)
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		n := newNode(t, config(t, PeerConfig{"far", far.addr}))
		lends(t, n, "far")
		return fabrictest.Harness{
			Fabric: n, NS: wire.Namespace{1, 2, 3}, Peer: "far",
			Damage: func(it fabric.Item) error {
				where := n.store.Where(it.H)
				if where.Len == 0 {
					return errors.New("no such block")
				}
				far.mem[where.Addr-far.at+where.Len-1] ^= 0x10
				return nil
			},
			Leaks: func() error {
				if blocks, bytes := n.store.Count(); blocks != 0 || bytes != 0 {
					return fmt.Errorf("%d blocks, %d bytes are left", blocks, bytes)
				}
				return nil
			},
		}
	})
}

func payload(t *testing.T, n int, seed uint64) []byte {
	t.Helper()
	b, err := wire.AppendPayload(nil, wire.ThinkActive, testbed.Content(n, seed))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
