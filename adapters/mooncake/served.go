package mooncake

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/fabric"
	"meridian/fabric/lent"
)

var (
	_ fabric.Server  = (*Node)(nil)
	_ fabric.Counter = (*Node)(nil)
	_ fabric.Advisor = (*Node)(nil)
)

// counters only rise.
type counters struct {
	in, out            atomic.Uint64 // bytes that peers wrote and read
	requests, refusals atomic.Uint64
	untold             atomic.Uint64 // notifies that a peer did not take
}

func (c *counters) served(d engine.Done) {
	c.requests.Add(1)
	if d.Write {
		c.in.Add(d.Bytes)
	} else {
		c.out.Add(d.Bytes)
	}
}

// Addresses are those of the handshake and of the data plane.
func (n *Node) Addresses() []string {
	if n.server == nil {
		return nil
	}
	return []string{"mooncake://" + n.server.at.String(), "mooncake-data://" + n.server.data.String()}
}

// drainTick is how often Drain looks whether requests still run.
const drainTick = 10 * time.Millisecond

// Drain refuses new requests and notifies, and waits for those that run.
func (n *Node) Drain(ctx context.Context) {
	if n.server == nil {
		return
	}
	var leaving sync.WaitGroup
	defer leaving.Wait()
	if n.server.publisher != nil {
		leaving.Go(n.server.publisher.Close)
	}
	n.server.drains.Store(true)
	n.server.storage.drain(ctx)
	n.server.target.Drain() // last: readers of the storage node come by it
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	for n.server.active() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Stats implements fabric.Counter.
func (n *Node) Stats() fabric.Stats {
	st := fabric.Stats{
		BytesIn: n.count.in.Load(), BytesOut: n.count.out.Load(),
		RequestsIn: n.count.requests.Load(), Refusals: n.count.refusals.Load(),
	}
	if n.server != nil {
		st.Lanes, st.Served = n.server.target.Conns(), n.server.active()
	}
	return st
}

// notifyTime bounds what a push waits for a peer to take its notify.
const notifyTime = 2 * time.Second

// notifyBlocks is how many blocks are named in one notify, a line each.
const notifyBlocks = 256

// tell names the blocks that now lie in a peer's memory. They do whether it listens or
// not.
func (n *Node) tell(ctx context.Context, to lent.Peer, list []lent.Stored) {
	p := to.(*peer)
	for len(list) > 0 {
		k := min(len(list), notifyBlocks)
		lines := make([]string, k)
		for i, b := range list[:k] {
			lines[i] = message{verbStored, b.NS, b.Key, b.Addr, b.Len}.String()
		}
		n.send(ctx, p, strings.Join(lines, "\n"), k)
		list = list[k:]
	}
}

// send hands a peer a notify, which is about so many blocks, if it is to have any.
func (n *Node) send(ctx context.Context, p *peer, text string, about int) {
	if !n.cfg.Notify {
		return
	}
	name := n.cfg.Label
	if n.server != nil {
		name = n.server.ourName()
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	at, err := n.handshakeOf(ctx, p)
	if err == nil {
		err = n.client.Notify(ctx, at, handshake.Notify{Name: name, Text: text})
	}
	if err != nil {
		n.count.untold.Add(uint64(about))
	}
}

// Findings implements fabric.Advisor.
func (n *Node) Findings() []fabric.Finding {
	var out []fabric.Finding
	for _, p := range n.roster.Load().peers {
		out = append(out, p.findings()...)
	}
	untold := n.count.untold.Load()
	out = append(out, fabric.Finding{
		ID: "untold", Bad: untold > 0, Subject: fmt.Sprintf("blocks whose notify a peer did not take: %d", untold),
		Reason: "they lie in its memory, and its application was not told", Fix: "look at the peer's handshake port; set notify = false if the application takes no notifies",
	})
	if s := n.server; s != nil {
		host, err := netip.ParseAddr(s.ourHost())
		out = append(out, fabric.Finding{
			ID: "advertised", Severe: true, Bad: err == nil && (host.IsUnspecified() || host.IsLoopback() && !s.at.Addr().IsLoopback()),
			Subject: "address that peers are told to connect to: " + s.ourHost(),
			Reason:  "peers on other hosts cannot reach it", Fix: "set advertise to an address of this host that they can reach",
		})
		out = append(out, s.sourceFindings()...)
		if s.publisher != nil {
			out = append(out, s.publisher.Finding())
		}
		out = append(out, s.storage.finding()...)
	}
	return out
}

func (p *peer) findings() []fabric.Finding {
	p.mu.Lock()
	failed, seg := p.failed, p.seg
	p.mu.Unlock()
	out := []fabric.Finding{{ID: "unreachable." + p.Name(), Severe: true, Bad: failed != nil, Subject: "peer " + p.Name() + " at " + p.Segment}}
	if failed != nil {
		out[0].Reason, out[0].Fix = failed.Error(), "start the peer's engine, or correct its entry in peers; mrdn fabric probe asks it again"
	}
	if seg == nil {
		return out
	}
	d, _ := seg.Descriptor()
	return append(out, fabric.Finding{
		ID: "unacknowledged." + p.Name(), Bad: !d.Acked(), Subject: fmt.Sprintf("version of the protocol of peer %s: %d", p.Name(), d.Proto),
		Reason: "it acknowledges no write, and lets everybody read and write all memory of its process", Fix: "update its Mooncake to 0.3.12 or later",
	}, fabric.Finding{
		ID: "memory." + p.Name(), Bad: len(d.Buffers) == 0, Subject: fmt.Sprintf("buffers that peer %s has registered: %d", p.Name(), len(d.Buffers)),
		Reason: "blocks cannot be written to it", Fix: "register memory for this daemon, as the first buffer",
	})
}
