package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/adapters/mooncake/rpc"
)

// Times of a node. The master drops a client that has not pinged for --client_ttl,
// 10 s by default.
const (
	pingEvery   = time.Second
	serveWait   = 30 * time.Second // for accesses under way, before memory gets new addresses
	unmountWait = 5 * time.Second
)

// Bounds of a node's memory.
const (
	MinNodeBytes = 16 << 20
	MaxNodeBytes = 1 << 42

	baseAlign = 1 << 30
	baseSpace = 1 << 62
)

// Host lets peers read and write memory by the transfer engine.
type Host interface {
	// Serve opens the addresses from base on, which are those of memory. Segment is
	// the name that peers open. Stop takes the addresses back: it refuses new accesses
	// and returns when none is under way any more, or with an error when ctx ends.
	Serve(base uint64, memory []byte) (segment string, stop func(context.Context) error, err error)
}

// NodeOptions say what a node lends, and to whom.
type NodeOptions struct {
	Masters Masters
	Host    Host
	Name    string // of the segment, as the master shows it
	Bytes   uint64
	Timeout time.Duration // of one call to the master
	Log     *slog.Logger
}

// NodeState is what a node is doing.
type NodeState string

// States of a node.
const (
	NodeOffering NodeState = "offering" // the master does not know the memory yet
	NodeServing  NodeState = "serving"
	NodeLost     NodeState = "lost" // the last ping had no answer
	NodeDraining NodeState = "draining"
	NodeClosed   NodeState = "closed"
)

// Status is a node at a moment.
type Status struct {
	State   NodeState
	Segment string // that peers open
	Base    uint64
	Bytes   uint64
	Offers  uint64 // how often the memory was offered under new addresses
	Pings   uint64 // answered
	Missed  uint64 // pings without an answer
	Err     error  // why it is not serving
}

// Node is a storage node. Its memory is its own, and lives until Close returns.
type Node struct {
	options NodeOptions
	rpc     *rpc.Client
	memory  []byte
	tick    <-chan time.Time
	end     func() // of tick
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	status  Status
	changed chan struct{} // closed and made anew with each change of status

	// Of the goroutine that runs, and of Close after it.
	client  UUID
	segment Segment
	unserve func(context.Context) error // nil: nothing is served
}

// StartNode maps memory and begins to offer it, until Close.
func StartNode(o NodeOptions) (*Node, error) {
	ticker := time.NewTicker(pingEvery)
	n, err := startNode(o, ticker.C, ticker.Stop)
	if err != nil {
		ticker.Stop()
	}
	return n, err
}

func startNode(o NodeOptions, tick <-chan time.Time, end func()) (*Node, error) {
	if o.Bytes < MinNodeBytes || o.Bytes > MaxNodeBytes {
		return nil, fmt.Errorf("mooncake store node: %d bytes, it must be %d to %d", o.Bytes, MinNodeBytes, uint64(MaxNodeBytes))
	}
	if o.Name == "" {
		return nil, errors.New("mooncake store node: the segment has no name")
	}
	memory, err := unix.Mmap(-1, 0, int(o.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mooncake store node: %d bytes of memory: %w", o.Bytes, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &Node{
		options: o, memory: memory, tick: tick, end: end, stop: stop, done: make(chan struct{}),
		rpc:    rpc.New(rpc.Config{Where: o.Masters.Where, Timeout: o.Timeout}),
		status: Status{State: NodeOffering, Bytes: o.Bytes}, changed: make(chan struct{}),
	}
	go n.run(ctx)
	return n, nil
}

// Status is the node now.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

// Wait returns when the node's status satisfies ok.
func (n *Node) Wait(ctx context.Context, ok func(Status) bool) error {
	for {
		n.mu.Lock()
		status, changed := n.status, n.changed
		n.mu.Unlock()
		if ok(status) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("mooncake store node: it is %s (%w): %w", status.State, status.Err, ctx.Err())
		}
	}
}

func (n *Node) set(change func(*Status)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.status)
	close(n.changed)
	n.changed = make(chan struct{})
}

// run offers the memory, and then pings.
func (n *Node) run(ctx context.Context) {
	defer close(n.done)
	defer n.end()
	for {
		n.step(ctx)
		select {
		case <-n.tick:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) step(ctx context.Context) {
	if n.Status().State == NodeOffering {
		n.offer(ctx)
		return
	}
	a, err := fnPing.Call(ctx, n.rpc, n.client)
	if err = failed("ping", n.options.Name, err, a.Code); err != nil {
		n.set(func(s *Status) { s.Missed++; s.lose(err) })
		return
	}
	n.set(func(s *Status) { s.Pings++; s.find() })
	if a.Value.Status == statusNeedRemount {
		n.options.Log.Warn("mooncake store node: the master does not know it any more: what lay here is lost to the store", "segment", n.segment.Name)
		n.set(func(s *Status) {
			s.State, s.Err = NodeOffering, errors.New("the master does not know the node any more")
		})
		n.offer(ctx)
	}
}

// lose and find change the state that only pings change.
func (s *Status) lose(err error) {
	if s.State == NodeServing {
		s.State = NodeLost
	}
	s.Err = err
}

func (s *Status) find() {
	if s.State == NodeLost {
		s.State = NodeServing
	}
	s.Err = nil
}

// offer takes the memory's old addresses back and offers it under new ones.
//
// It calls ReMountSegment, which makes client and segment known in one step. After
// MountSegment the master wants that call too, and a master that restarted between
// the two would have given out addresses that it then gives out again.
func (n *Node) offer(ctx context.Context) {
	err := n.withdraw(ctx)
	if err == nil {
		err = n.reoffer(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			n.options.Log.Warn("mooncake store node: its memory is not offered", "segment", n.options.Name, "error", err)
		}
		n.set(func(s *Status) { s.Err = err })
	}
}

// withdraw takes the addresses back and tells the master, who may have forgotten them.
func (n *Node) withdraw(ctx context.Context) error {
	if n.unserve == nil {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, serveWait)
	defer cancel()
	if err := n.unserve(wait); err != nil {
		return fmt.Errorf("accesses to its old addresses do not end: %w", err)
	}
	n.unserve = nil
	a, err := fnUnmount.Call(ctx, n.rpc, unmount{Segment: n.segment.ID, Client: n.client})
	return failed("unmount", n.segment.Name, err, a.Code)
}

func (n *Node) reoffer(ctx context.Context) error {
	base := newBase(n.options.Bytes)
	endpoint, unserve, err := n.options.Host.Serve(base, n.memory)
	if err != nil {
		return err
	}
	n.unserve, n.client = unserve, NewUUID()
	n.segment = Segment{ID: NewUUID(), Name: n.options.Name, Base: base, Size: n.options.Bytes, Endpoint: endpoint, Protocol: "tcp"}
	a, err := fnRemount.Call(ctx, n.rpc, remount{Segments: []Segment{n.segment}, Client: n.client})
	if err := failed("mount", n.segment.Name, err, a.Code); err != nil {
		return err
	}
	n.set(func(s *Status) {
		s.State, s.Segment, s.Base, s.Err = NodeServing, endpoint, base, nil
		s.Offers++
	})
	n.options.Log.Info("mooncake store node: serving", "segment", n.segment.Name, "endpoint", endpoint, "bytes", n.options.Bytes, "base", fmt.Sprintf("%#x", base))
	return nil
}

// newBase draws the address where the memory begins: one of 2^32 places, so that no
// address of one incarnation means anything in another.
func newBase(size uint64) uint64 {
	var b [8]byte
	rand.Read(b[:]) // does not fail
	span := (uint64(baseSpace) - size) / baseAlign
	return (1 + binary.LittleEndian.Uint64(b[:])%(span-1)) * baseAlign
}

// Close unmounts the segment, refuses its addresses, and frees the memory. Objects
// that lay only here are lost to the store at once; Drain lets readers finish.
func (n *Node) Close() error {
	n.stop()
	<-n.done
	if n.Status().State == NodeClosed {
		return nil
	}
	n.set(func(s *Status) { s.State = NodeClosed })
	ctx, cancel := context.WithTimeout(context.Background(), unmountWait)
	defer cancel()
	err := n.withdraw(ctx)
	if n.unserve != nil {
		// A peer may still write: the memory stays mapped.
		return errors.Join(err, n.rpc.Close())
	}
	return errors.Join(err, n.rpc.Close(), unix.Munmap(n.memory))
}
