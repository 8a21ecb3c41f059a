package linkbench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"meridian/adapters/link"
	"meridian/agent/engine"
	"meridian/bench/harness"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/spaces"
	"meridian/conformance/chaos"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// command is what the measuring process asks of the holder, one JSON line each;
// each is answered by one line.
type command struct {
	Fill    uint32 `json:"fill,omitempty"`    // body size of blocks to hold, as many as Set
	Offload bool   `json:"offload,omitempty"` // push blocks of size Size to the puller until Quiet
	Quiet   bool   `json:"quiet,omitempty"`
	Size    uint32 `json:"size,omitempty"`
	Set     uint64 `json:"set,omitempty"`
}

// answer is the holder's.
type answer struct {
	Link, Plain, Engine, Echo string // addresses, in the first answer
	Bytes                     uint64 // that were offloaded, in the answer to Quiet
	Error                     string
}

// holder is the other process of a run.
type holder struct {
	store *blocks.Store
	reg   *spaces.Registry
	node  *link.Node
	owner blocks.Owner
	plain *PlainServer

	stop chan struct{} // of the running offload
	done chan uint64
}

// holderAgent is the id of the holder, pullerAgent that of the other side.
var (
	holderAgent = [16]byte{1}
	pullerAgent = [16]byte{2}
)

// Hold is the holder's process: args are the arena's size, the lanes, the
// congestion control and a folder for sockets.
func Hold(ctx context.Context, capacity uint64, lanes int, congestion, dir string, in io.Reader, out io.Writer) error {
	h := &holder{}
	var err error
	if h.store, err = blocks.Open(blocks.Config{Capacity: capacity, Agent: holderAgent, Incarnation: 1}); err != nil {
		return err
	}
	defer func() { _ = h.store.Close() }()
	h.owner = h.store.NewOwner(0)
	h.reg = spaces.New(h.store.AddNamespace)
	h.node, err = link.New(link.Config{
		Agent: holderAgent, Incarnation: 1, Name: "holder", Store: h.store, Namespaces: h.reg, Insecure: true,
		Lanes: lanes, Congestion: congestion, Peers: []link.PeerConfig{{Name: "puller", Tenants: []string{"bench"}}},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	defer func() { _ = h.node.Close() }()
	addr, err := h.node.Listen("tcp://127.0.0.1:0")
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h.plain = ServePlain(congestion, plain)
	defer h.plain.Close()
	eng, err := engine.Listen(engine.Config{Path: dir + "/engine.sock", Tenants: []string{"bench"}, Agent: holderAgent, Incarnation: 1,
		Store: h.store, Host: LocalHost{h.reg}, Limits: engine.Limits{StagingBytes: 1 << 20}})
	if err != nil {
		return err
	}
	defer func() { _ = eng.Close() }()
	go func() { _ = eng.Serve() }()
	echo, err := listenEcho(dir + "/echo.sock")
	if err != nil {
		return err
	}
	defer echo.close()
	first := answer{Link: "tcp://" + addr.String(), Plain: plain.Addr().String(), Engine: eng.Path(), Echo: dir + "/echo.sock"}
	return harness.Serve(in, out, first, func(c command) (a answer) {
		n, err := h.do(ctx, c)
		if a.Bytes = n; err != nil {
			a.Error = err.Error()
		}
		return a
	})
}

func (h *holder) do(ctx context.Context, c command) (uint64, error) {
	switch {
	case c.Fill > 0:
		return 0, h.fill(c.Fill, c.Set)
	case c.Offload:
		return 0, h.offload(ctx, c.Size, c.Set)
	case c.Quiet:
		close(h.stop)
		return <-h.done, nil
	}
	return 0, fmt.Errorf("unknown command %+v", c)
}

// fill stores the blocks of one size, and shows the plain server the same
// memory: it sends whole slots from it.
func (h *holder) fill(size uint32, set uint64) error {
	ns, err := h.reg.Add(manifest(size))
	if err != nil {
		return err
	}
	body := make([]byte, size)
	var memory [][]byte
	for _, k := range keys(size, set) {
		v, err := h.store.Reserve(h.owner, ns, []uint32{size}, time.Minute)
		if err != nil {
			return err
		}
		chaos.Body(body, k)
		c := blocks.Commit{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: k, Tier: wire.OutputCritical, Att: wire.AttestProducer, Len: size}
		if err := h.store.Ingest(h.owner, body, &c); err != nil {
			return err
		}
		got := []blocks.View{{NS: ns, Key: k}}
		if _, err := h.store.Acquire(h.owner, got, time.Hour, false); err != nil {
			return fmt.Errorf("pin: %w", err)
		}
		if got[0].Err != nil {
			return fmt.Errorf("pin: %w", got[0].Err)
		}
		memory = append(memory, h.store.Payload(got[0])[wire.HeaderLen:])
	}
	h.plain.Show(memory)
	return nil
}

// offload pushes blocks to the puller, in class bulk, two batches at a time,
// until Quiet. Keys are new each time, so that none is refused as EXISTS; the
// puller's arena evicts them.
func (h *holder) offload(ctx context.Context, size uint32, set uint64) error {
	p := h.node.Peer("puller")
	ns := manifest(size).Namespace()
	h.stop, h.done = make(chan struct{}), make(chan uint64, 1)
	ctx = fabric.WithClass(ctx, fabric.ClassBulk)
	payload, err := wire.AppendPayload(nil, wire.ThinkComplete, make([]byte, size))
	if err != nil {
		return err
	}
	n := max(1, int(min(set/8, maxBatchBytes/4)/uint64(size)))
	results := make(chan uint64, 2)
	for w := range 2 {
		go func() {
			var sent uint64
			for round := 0; ; round++ {
				select {
				case <-h.stop:
					results <- sent
					return
				default:
				}
				items := make([]fabric.Item, n)
				for i := range items {
					items[i] = fabric.Item{NS: ns, Key: wire.KeyOf(ns, []byte(fmt.Sprint("offload", w, round, i))), Att: wire.AttestProducer, M: fabric.Mem{B: payload}}
				}
				p.Push(ctx, items)
				for i := range items {
					if items[i].Err == nil {
						sent += uint64(size)
					}
				}
			}
		}()
	}
	go func() { h.done <- <-results + <-results }()
	return nil
}

// LocalHost is an engine's daemon without peers.
type LocalHost struct{ Registry *spaces.Registry }

// OpenNamespace implements engine.Host.
func (l LocalHost) OpenNamespace(who quota.Holder, m wire.Manifest) (wire.Namespace, func(), error) {
	return l.Registry.OpenEngine(who, m)
}

// Fetch implements engine.Host: nobody else has anything.
func (LocalHost) Fetch(_ context.Context, f engine.Fetch) []error {
	errs := make([]error, len(f.Keys))
	for i := range errs {
		errs[i] = wire.CodeAbsent
	}
	return errs
}

// TakeTurn implements engine.Host: nothing is fetched.
func (LocalHost) TakeTurn(uint64, uint64) engine.Turn { return noTurn{} }

type noTurn struct{}

func (noTurn) Leave() {}

// FindRemote implements engine.Host.
func (LocalHost) FindRemote(_ context.Context, _ wire.Namespace, _ engine.Holder, keys []wire.Key) []proto.Have {
	out := make([]proto.Have, len(keys))
	for i := range out {
		out[i].Status = wire.CodeAbsent
	}
	return out
}

// Offload implements engine.Host.
func (LocalHost) Offload(wire.Namespace, []wire.Key) {}
