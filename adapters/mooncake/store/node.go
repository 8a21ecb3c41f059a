package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"meridian/adapters/mooncake/rpc"
	"meridian/wire"
)

// Times of a node. The master drops a client that has not pinged for --client_ttl,
// 10 s by default.
const (
	pingEvery   = time.Second
	unmountWait = 5 * time.Second
)

// NodeOptions say what a node lends, and to whom.
type NodeOptions struct {
	Masters Masters
	Lent    *Lent
	Name    string        // of the segment, as the master shows it
	Segment string        // that peers open to reach Lent
	Hidden  func() error  // why peers cannot open Segment now; nil: they can. EXISTS or STALE: they reach another node
	Timeout time.Duration // of one call to the master
	Log     *slog.Logger  // nil: nothing is logged
}

// NodeState is what a node is doing.
type NodeState string

// States of a node.
const (
	NodeOffering NodeState = "offering" // the master does not know the memory yet
	NodeServing  NodeState = "serving"
	NodeLost     NodeState = "lost"     // the last ping had no answer
	NodeDraining NodeState = "draining" // the master gives out no more of it; readers finish
	NodeDrained  NodeState = "drained"
	NodeClosed   NodeState = "closed"
)

// Status is a node at a moment.
type Status struct {
	State  NodeState
	Base   uint64 // of the addresses that are offered
	Offers uint64 // how often the memory was offered, each time at new addresses
	Pings  uint64 // answered
	Missed uint64 // pings without an answer
	Err    error  // why it is not serving
}

// Node is a storage node.
type Node struct {
	options NodeOptions
	rpc     *rpc.Client
	tick    <-chan time.Time
	end     func() // of tick
	stop    context.CancelFunc
	done    chan struct{}
	drain   chan time.Duration

	mu      sync.Mutex
	status  Status
	changed chan struct{} // closed and made anew with each change of status

	// Of the goroutine that runs, and of Close after it.
	client  UUID
	segment Segment
	known   bool // the master may know client and segment
	told    bool // the log has that the memory is not offered
}

// StartNode begins to offer memory, until Close.
func StartNode(o NodeOptions) (*Node, error) {
	ticker := time.NewTicker(pingEvery)
	n, err := startNode(o, ticker.C, ticker.Stop)
	if err != nil {
		ticker.Stop()
	}
	return n, err
}

func startNode(o NodeOptions, tick <-chan time.Time, end func()) (*Node, error) {
	if o.Name == "" || o.Segment == "" {
		return nil, fmt.Errorf("mooncake store node: name %q, segment %q: neither may be empty", o.Name, o.Segment)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &Node{
		options: o, tick: tick, end: end, stop: stop, done: make(chan struct{}), drain: make(chan time.Duration),
		rpc:    rpc.New(rpc.Config{Where: o.Masters.Where, Timeout: o.Timeout}),
		status: Status{State: NodeOffering}, changed: make(chan struct{}),
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
			err := ctx.Err()
			if status.Err != nil {
				err = fmt.Errorf("%w; %w", err, status.Err)
			}
			return fmt.Errorf("mooncake store node: it is %s: %w", status.State, err)
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
		case grace := <-n.drain:
			n.beginDrain(ctx, grace)
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) step(ctx context.Context) {
	switch n.Status().State {
	case NodeOffering:
		n.offer(ctx)
		return
	case NodeDrained:
		return
	}
	a, err := fnPing.Call(ctx, n.rpc, n.client)
	if err = failed("ping", n.options.Name, err, a.Code); err != nil {
		n.set(func(s *Status) { s.Missed++; s.lose(err) })
		return
	}
	n.set(func(s *Status) { s.Pings++; s.find() })
	forgotten := a.Value.Status == statusNeedRemount
	switch {
	case n.Status().State == NodeDraining:
		n.lookDrained(ctx, forgotten)
	case forgotten:
		n.options.Log.Warn("mooncake store node: the master does not know the node any more; what lay here is lost to the store", "segment", n.options.Name)
		n.set(func(s *Status) { s.State, s.Err = NodeOffering, errForgotten })
		n.offer(ctx)
	default:
		n.lookTaken(ctx)
	}
}

// lookTaken withdraws the memory where another node has the segment's name by now, as
// after a pause of this process: what the master gives out would be written there.
func (n *Node) lookTaken(ctx context.Context) {
	if n.options.Hidden == nil {
		return
	}
	if err := n.options.Hidden(); errors.Is(err, wire.CodeExists) || errors.Is(err, wire.CodeStale) {
		n.options.Log.Warn("mooncake store node: its memory is withdrawn", "segment", n.options.Name, "error", err)
		n.set(func(s *Status) { s.State, s.Err = NodeOffering, err })
		n.offer(ctx)
	}
}

// errForgotten is why a node offers its memory anew.
var errForgotten = errors.New("the master does not know the node any more")

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

// offer withdraws what was offered and offers memory anew.
//
// It calls ReMountSegment, which makes client and segment known in one step. After
// MountSegment the master wants that call too, and a master that restarted between
// the two could have given out addresses that it then gives out again.
func (n *Node) offer(ctx context.Context) {
	err := n.withdraw(ctx)
	if err == nil && n.options.Hidden != nil {
		// The master gives out memory that nobody reaches like any other: writes to it fail.
		if err := n.options.Hidden(); err != nil {
			n.set(func(s *Status) { s.Err = err })
			return
		}
	}
	if err == nil {
		err = n.reoffer(ctx)
	}
	if err != nil && ctx.Err() == nil {
		if !n.told { // it is tried every second, for as long as the master is away
			n.options.Log.Warn("mooncake store node: its memory is not offered; it is tried again every second", "segment", n.options.Name, "error", err)
			n.told = true
		}
		n.set(func(s *Status) { s.Err = err })
	}
}

// withdraw takes the addresses back, and then tells the master, who may have
// forgotten them.
func (n *Node) withdraw(ctx context.Context) error {
	if err := n.options.Lent.withdraw(); err != nil || !n.known {
		return err
	}
	n.known = false
	a, err := fnUnmount.Call(ctx, n.rpc, unmount{Segment: n.segment.ID, Client: n.client})
	return failed("unmount", n.options.Name, err, a.Code)
}

func (n *Node) reoffer(ctx context.Context) error {
	base, err := n.options.Lent.offer()
	if err != nil {
		return err
	}
	n.client, n.known = NewUUID(), true
	n.segment = Segment{ID: NewUUID(), Name: n.options.Name, Base: base, Size: n.options.Lent.size, Endpoint: n.options.Segment, Protocol: "tcp"}
	a, err := fnRemount.Call(ctx, n.rpc, remount{Segments: []Segment{n.segment}, Client: n.client})
	if err := failed("mount", n.options.Name, err, a.Code); err != nil {
		return err
	}
	n.told = false
	n.set(func(s *Status) {
		s.State, s.Base, s.Err = NodeServing, base, nil
		s.Offers++
	})
	n.options.Log.Info("mooncake store node: serving", "segment", n.options.Name, "endpoint", n.options.Segment, "bytes", n.segment.Size, "base", fmt.Sprintf("%#x", base))
	return nil
}

// Drain has the master give out no more of the memory, and returns when it has let
// go of it, which is after the grace: meanwhile readers finish. Close follows.
func (n *Node) Drain(ctx context.Context, grace time.Duration) error {
	select {
	case n.drain <- grace:
	case <-n.done:
		return errors.New("mooncake store node: it is closed")
	case <-ctx.Done():
		return fmt.Errorf("mooncake store node: drain: %w", ctx.Err())
	}
	if err := n.Wait(ctx, func(s Status) bool { return s.State == NodeDrained || s.State == NodeClosed || s.State == NodeOffering }); err != nil {
		return err
	}
	if s := n.Status(); s.State == NodeOffering {
		return fmt.Errorf("mooncake store node: there is nothing to drain: %w", s.Err)
	}
	return nil
}

func (n *Node) beginDrain(ctx context.Context, grace time.Duration) {
	if s := n.Status().State; s != NodeServing && s != NodeLost {
		return
	}
	a, err := fnGracefulUnmount.Call(ctx, n.rpc, gracefulUnmount{Segment: n.segment.ID, Client: n.client, GraceMS: uint64(max(grace, 0).Milliseconds())})
	if err = failed("drain", n.options.Name, err, a.Code); err != nil {
		n.options.Log.Warn("mooncake store node: the master did not take the drain", "segment", n.options.Name, "error", err)
	}
	n.set(func(s *Status) { s.State, s.Err = NodeDraining, err })
}

// lookDrained asks whether the master still knows the segment.
func (n *Node) lookDrained(ctx context.Context, forgotten bool) {
	a, err := fnSegmentStatus.Call(ctx, n.rpc, n.segment.ID)
	if err == nil && a.Code == int32(CodeNoSegment) || forgotten {
		n.set(func(s *Status) { s.State, s.Err = NodeDrained, nil })
	}
}

// Close refuses the addresses, unmounts the segment and frees the memory once no
// access to it is under way. Objects that lay only here are lost to the store at
// once; Drain before it lets readers finish.
func (n *Node) Close() error {
	n.stop()
	<-n.done
	if n.Status().State == NodeClosed {
		return nil
	}
	n.set(func(s *Status) { s.State = NodeClosed })
	ctx, cancel := context.WithTimeout(context.Background(), unmountWait)
	defer cancel()
	return errors.Join(n.withdraw(ctx), n.rpc.Close())
}
