package nixl

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/wire"
)

var (
	_ fabric.Fabric      = (*Node)(nil)
	_ fabric.Finder      = (*Node)(nil)
	_ fabric.Dropper     = (*Node)(nil)
	_ fabric.Lister      = (*Node)(nil)
	_ fabric.Prober      = (*Node)(nil)
	_ fabric.Gate        = (*Node)(nil)
	_ fabric.Enabler     = (*Node)(nil)
	_ fabric.Keeper      = (*Node)(nil)
	_ fabric.Chooser     = (*Node)(nil)
	_ fabric.Peered      = (*Node)(nil)
	_ fabric.Transporter = (*Node)(nil)
	_ fabric.Server      = (*Node)(nil)
	_ fabric.Counter     = (*Node)(nil)
	_ fabric.Advisor     = (*Node)(nil)
)

// counters only rise.
type counters struct {
	in, out            atomic.Uint64 // body bytes that peers brought and took
	requests, refusals atomic.Uint64
	untold             atomic.Uint64 // notifications that did not leave
}

// onePeer is the fabric that leads to one listed peer.
type onePeer struct{ lent.Group }

// Close does nothing: the peer is closed with its Node.
func (o *onePeer) Close() error { return nil }

// Peers tells how each listed peer stands.
func (n *Node) Peers() []fabric.Peer {
	peers := n.roster.Load().peers
	out := make([]fabric.Peer, len(peers))
	down := n.Enabled()
	for i, p := range peers {
		out[i] = p.stands(down)
	}
	return out
}

func (p *peer) stands(down error) fabric.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := fabric.Peer{Name: p.Name(), Listed: true, Addr: p.Address}
	if by, _ := Planned(p.Address); by == "" {
		out.Addr = "nixl://" + p.Address
	}
	switch {
	case p.link != nil:
		out.State, out.Via, out.Lanes = fabric.PeerReady, p.ways.String(), 1
		out.Memory, out.Place, out.Text = p.link.lent.Len, p.link.lent.Off, p.missing
		if out.Memory == 0 {
			out.Text = "it has lent no memory: it brings and takes blocks, and none is sent to it"
		}
		out.Inc = binary.LittleEndian.Uint64(p.link.Life[:])
	case down != nil:
		out.Code, out.Text = wire.CodeUnreachable, down.Error()
	default:
		out.Code, out.Text = codeOf(p.why), p.why.Error()
		if p.refuse {
			out.State = fabric.PeerRefused
		}
	}
	return out
}

// codeOf is an error's code, UNREACHABLE where it has none.
func codeOf(err error) wire.Code {
	if c := wire.CodeOf(err); c != wire.CodeInternal {
		return c
	}
	return wire.CodeUnreachable
}

// Peer is the fabric that leads to a listed peer.
func (n *Node) Peer(name string) fabric.Fabric {
	if o := n.roster.Load().each[name]; o != nil {
		return o
	}
	return nil
}

// Addresses is that of the listener for metadata. Blocks go to the helper's agent, whose
// address is in these.
func (n *Node) Addresses() []string {
	if n.inbox.addr == "" {
		return nil
	}
	return []string{"nixl://" + n.inbox.addr}
}

// drainTick is how often Drain looks whether requests still run.
const drainTick = 10 * time.Millisecond

// Drain takes no new requests of peers, and waits for those that run.
func (n *Node) Drain(ctx context.Context) {
	n.draining.Store(true)
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	for n.doing.Load() > 0 {
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
		BytesIn: n.count.in.Load(), BytesOut: n.count.out.Load(), Served: int(n.doing.Load()),
		RequestsIn: n.count.requests.Load(), Refusals: n.count.refusals.Load(),
	}
	for _, p := range n.Peers() {
		st.Sessions += p.Lanes
	}
	return st
}

// toldAtATime is how many blocks are named in one notification, a line each.
const toldAtATime = 128

// tell names the blocks that now lie in a peer's memory. They do whether it listens or
// not.
func (n *Node) tell(ctx context.Context, to lent.Peer, list []lent.Stored) {
	p, ok := to.(*peer)
	if !n.cfg.Notify || !ok {
		return
	}
	l, err := p.now()
	for len(list) > 0 {
		k := min(len(list), toldAtATime)
		lines := make([]string, k)
		for i, b := range list[:k] {
			lines[i] = message{verbStored, b.NS, b.Key, b.Addr, b.Len}.String()
		}
		if err != nil || l.notify(ctx, l.Agent, strings.Join(lines, "\n")) != nil {
			n.count.untold.Add(uint64(k))
		}
		list = list[k:]
	}
}

// Findings implements fabric.Advisor.
func (n *Node) Findings() []fabric.Finding {
	n.mu.Lock()
	s, down := n.session, n.down
	n.mu.Unlock()
	helper := fabric.Finding{ID: "helper", Severe: true, Bad: s == nil, Subject: "NIXL's library"}
	if s != nil {
		helper.Subject += fmt.Sprintf(": %s, backend %s; its plugins are %s", s.library, n.cfg.Helper.Backend, strings.Join(s.plugins, ", "))
	} else {
		helper.Reason, helper.Fix = down.Error(), "see the daemon's log; install NIXL, or set library and helper"
	}
	restarts := n.restarts.Load()
	out := []fabric.Finding{helper, {
		ID: "restarts", Bad: restarts > 0 && s != nil, Subject: fmt.Sprintf("times that the helper had to be started again: %d", restarts),
		Reason: "NIXL ends its process", Fix: "see the daemon's log for the reason",
	}}
	for _, p := range n.Peers() {
		f := fabric.Finding{ID: "unreachable." + p.Name, Severe: true, Bad: p.State != fabric.PeerReady, Subject: "peer " + p.Name + " at " + p.Addr}
		if f.Bad {
			f.Reason, f.Fix = p.Text, "start the peer's agent, have it send its metadata, or correct its entry in peers"
		}
		out = append(out, f)
	}
	out = append(out, n.published()...)
	untold := n.count.untold.Load()
	return append(out, fabric.Finding{
		ID: "untold", Bad: untold > 0, Subject: fmt.Sprintf("notifications that could not be sent: %d", untold),
		Reason: "the peer's application was not told", Fix: "look at the peer",
	})
}
