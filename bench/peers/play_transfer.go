package peers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

// transferPeer is what an initiator of Mooncake's kind gets: a segment and the address
// of its memory. drivers/mooncake_te.py has the same.
type transferPeer struct {
	Name string `json:"name"`
	Addr uint64 `json:"addr"`
}

// transferAddr is where our target's memory begins, in the numbering of its peers.
const transferAddr = 0x1000_0000_0000

// transferTarget is a segment of ours that everybody may read and write.
type transferTarget struct {
	memory flatMemory
	size   uint64
	dirty  bool
	name   string
	engine *engine.Target
	server *handshake.Server
}

// flatMemory is one piece of memory from transferAddr on.
type flatMemory []byte

// Enter implements engine.Memory.
func (m flatMemory) Enter(_ string, addr, n uint64, _ bool) ([]byte, func(uint64), error) {
	off := addr - transferAddr
	if off > uint64(len(m)) || n > uint64(len(m))-off {
		return nil, nil, wire.CodeInvalid
	}
	return m[off:][:n:n], func(uint64) {}, nil
}

func newTransferTarget() target { return &transferTarget{} }

func (t *transferTarget) prepare(c Cell) (any, error) {
	if uint64(len(t.memory)) < c.Set {
		if err := t.open(c.Set); err != nil {
			return nil, err
		}
	}
	if c.Op == Read && t.dirty {
		fill(t.memory, seedRemote, 0)
	}
	t.dirty, t.size = c.Op == Write, c.Size
	return transferPeer{t.name, transferAddr}, nil
}

// open makes a segment of n bytes.
func (t *transferTarget) open(n uint64) error {
	_ = t.close()
	t.memory, t.dirty = aligned(n), true
	admit := func(a netip.Addr) (string, error) { return a.String(), nil }
	refused := func(peer string, err error) { slog.Warn("refused", "peer", peer, "err", err) }
	t.engine = engine.NewTarget(engine.TargetConfig{Memory: t.memory, Admit: admit, Refused: refused})
	data, err := t.engine.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		return err
	}
	t.server = handshake.NewServer(handshake.Config{Admit: admit, Refused: refused, Descriptor: func(string) segment.Descriptor {
		return segment.Descriptor{
			Name: t.name, Protocols: []string{segment.TCP}, DataHost: "127.0.0.1", DataPort: data.Port(), Proto: engine.ProtoOurs,
			Buffers: []segment.Buffer{{Name: t.name, Addr: transferAddr, Len: n}},
		}
	}})
	at, err := t.server.Listen(context.Background(), "127.0.0.1:0")
	t.name = at.String()
	return err
}

func (t *transferTarget) wipe(c Cell) error {
	clear(t.memory[:c.Set])
	return nil
}

func (t *transferTarget) verify(w []written) (uint64, error) {
	return verifyRegion(t.memory, t.size, w)
}

func (t *transferTarget) close() error {
	if t.server != nil {
		t.server.Close()
	}
	if t.engine != nil {
		t.engine.Close()
	}
	t.server, t.engine = nil, nil
	return nil
}

// transferInitiator reads and writes a segment, of ours or of Mooncake's engine.
type transferInitiator struct {
	resolver engine.Resolver
	order    order
	peer     transferPeer
	near     []byte
	ops      [][]engine.Op // of each stream
	engine   *engine.Initiator
	segment  *engine.Segment
}

func (n *transferInitiator) prepare(ctx context.Context, c Cell, peer json.RawMessage) error {
	if err := n.close(); err != nil {
		return err
	}
	if err := json.Unmarshal(peer, &n.peer); err != nil {
		return err
	}
	n.engine = engine.NewInitiator(engine.InitiatorConfig{Resolver: n.resolver})
	var err error
	if n.segment, err = n.engine.Open(ctx, n.peer.Name); err != nil {
		return err
	}
	n.order, n.near = orderOf(c), aligned(c.near())
	fill(n.near, seedLocal, 0)
	n.ops = make([][]engine.Op, c.Streams)
	for w := range n.ops {
		n.ops[w] = make([]engine.Op, c.Batch)
		for j := range n.ops[w] {
			n.ops[w][j].B = n.near[n.order.local(w, j):][:c.Size]
		}
	}
	return nil
}

func (n *transferInitiator) move(ctx context.Context, stream, k int, seen *seen) error {
	o, ops := n.order, n.ops[stream]
	for j := range ops {
		ops[j].Addr = n.peer.Addr + uint64(o.item(stream, k, j))*o.Size
		if seen != nil && o.Op == Read {
			clear(ops[j].B)
		}
	}
	if o.Op == Read {
		n.segment.Read(ctx, ops)
	} else {
		n.segment.Write(ctx, ops)
	}
	var errs []error
	for j := range ops {
		err := ops[j].Err
		switch {
		case err != nil || seen == nil:
		case o.Op == Write:
			seen.put(j, uint64(o.item(stream, k, j)))
		default:
			err = seen.read(j, ops[j].B)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (n *transferInitiator) close() error {
	if n.engine != nil {
		n.engine.Close()
	}
	n.engine = nil
	return nil
}
