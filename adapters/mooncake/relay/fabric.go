package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/wire"
)

var (
	_ fabric.Fabric  = (*Relay)(nil)
	_ fabric.Gate    = (*Relay)(nil)
	_ fabric.Peered  = (*Relay)(nil)
	_ fabric.Server  = (*Relay)(nil)
	_ fabric.Counter = (*Relay)(nil)
	_ fabric.Advisor = (*Relay)(nil)
	_ fabric.Relay   = (*Relay)(nil)
	_ fabric.Prober  = (*way)(nil)
)

// Label is the name of the fabric's table.
func (r *Relay) Label() string { return r.cfg.Label }

// Caps says nothing: no block can be handed to a relay.
func (r *Relay) Caps() fabric.Caps { return fabric.Caps{} }

func (r *Relay) noBlocks() error {
	return &fabric.Error{Code: wire.CodeUnsupported, Fabric: r.cfg.Label, Text: "a relay carries requests of Mooncake engines, and no blocks of this daemon"}
}

// Push refuses each block.
func (r *Relay) Push(_ context.Context, it []fabric.Item) { r.refuseAll(it) }

// Pull refuses each block.
func (r *Relay) Pull(_ context.Context, it []fabric.Item) { r.refuseAll(it) }

func (r *Relay) refuseAll(it []fabric.Item) {
	for i := range it {
		it[i].Err = r.noBlocks()
	}
}

// Usable implements fabric.Gate: routes pass over it.
func (r *Relay) Usable(wire.Namespace) error { return r.noBlocks() }

// Quiesce has nothing to wait for.
func (r *Relay) Quiesce(context.Context) error { return nil }

// way is the relay as the path to its target: it can be probed.
type way struct{ *Relay }

// Close does nothing: the path ends with its relay.
func (w *way) Close() error { return nil }

// Peers are the target.
func (r *Relay) Peers() []fabric.Peer {
	p := fabric.Peer{Name: r.cfg.Peer, Listed: true, Addr: segment.TCP + "://" + r.cfg.Target}
	now, err := r.target.current()
	if err != nil || now == nil {
		p.Code, p.Text = wire.CodeOf(err), fmt.Sprint(err)
		return []fabric.Peer{p}
	}
	p.State, p.Via, p.Lanes, p.Inc = fabric.PeerReady, segment.TCP, now.lanes.len(), r.target.count()
	return []fabric.Peer{p}
}

// Peer is the path to the target.
func (r *Relay) Peer(name string) fabric.Fabric {
	if name != r.cfg.Peer {
		return nil
	}
	return r.path
}

// probeBytes is what a probe reads of the target's first buffer.
const probeBytes = 64 << 10

// Probe asks the target's handshake, and reads the begin of its first buffer as a source
// would. Nothing is written: the memory is somebody's.
func (w *way) Probe(ctx context.Context, _ string) (string, float64, error) {
	now, err := w.look(ctx)
	if err != nil {
		return segment.TCP, 0, err
	}
	if err := w.ask(w.client.Probe); err != nil {
		return segment.TCP, 0, err
	}
	d := now.desc.Load()
	if len(d.Buffers) == 0 {
		return segment.TCP, 0, nil
	}
	began := time.Now()
	n, err := now.sample(ctx, d.Buffers[0])
	if took := time.Since(began); err == nil && took > 0 {
		return segment.TCP, float64(n) / took.Seconds() / 1e9, nil
	}
	return segment.TCP, 0, err
}

// sample reads the begin of a buffer of the target.
func (l *life) sample(ctx context.Context, b segment.Buffer) (int, error) {
	q := engine.Request{Addr: b.Addr, Size: min(b.Len, probeBytes), Acked: l.desc.Load().Acked()}
	c, err := l.lane(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	buf := make([]byte, q.Size)
	t := transfer{l: l, to: c, q: q, acked: q.Acked, buf: buf}
	out := newPace(c, true, q)
	if _, err := out.write(q.Append(nil), engine.RequestLen); err != nil {
		return 0, err
	}
	if q.Acked {
		if err := t.status(); err != nil {
			return 0, err
		}
	}
	for done := 0; done < len(buf); {
		n, err := out.read(buf[done:])
		if err != nil {
			return 0, out.failed("sending a body", err)
		}
		done += n
	}
	return len(buf), nil
}

// Addresses are those of the handshake and of the data plane.
func (r *Relay) Addresses() []string {
	out := []string{"mooncake://" + r.at.String()}
	if now, _ := r.target.current(); now != nil {
		out = append(out, "mooncake-data://"+now.at.String())
	}
	return out
}

// drainTick is how often Drain looks whether requests still run.
const drainTick = 10 * time.Millisecond

// Drain refuses what is new, and waits for what is carried.
func (r *Relay) Drain(ctx context.Context) {
	r.drains.Store(true)
	var leaving sync.WaitGroup
	leaving.Go(r.unpublish)
	defer leaving.Wait()
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	for r.active.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Stats implements fabric.Counter. In is what sources wrote.
func (r *Relay) Stats() fabric.Stats {
	st := fabric.Stats{Served: int(r.active.Load()), ServedBytes: uint64(r.carries.Load()) * pieceLen}
	for _, n := range r.Relayed() {
		st.Sessions += n.Connections
		st.BytesIn += n.Written
		st.BytesOut += n.Read
		st.RequestsIn += n.Requests + n.Notifies
		for _, refused := range n.Refused {
			st.Refusals += refused
		}
	}
	if now, _ := r.target.current(); now != nil {
		st.Lanes = now.lanes.len()
	}
	return st
}

// Findings implements fabric.Advisor.
func (r *Relay) Findings() []fabric.Finding {
	now, err := r.target.current()
	lost := fabric.Finding{ID: "target", Severe: true, Bad: err != nil, Subject: "target " + r.cfg.Peer + " at " + r.cfg.Target}
	if err != nil {
		lost.Reason, lost.Fix = err.Error(), "start the target's engine, or correct target, metadata and reach"
		if errors.Is(err, wire.CodeTooMany) {
			lost.Fix = "restart this daemon, and give data as many ports as the target is started while it runs"
		}
	}
	host, bad := netip.ParseAddr(r.ourHost())
	out := []fabric.Finding{lost, {
		ID: "advertised", Severe: true, Bad: bad == nil && (host.IsUnspecified() || host.IsLoopback() && !r.at.Addr().IsLoopback()),
		Subject: "address that sources are told to connect to: " + r.ourHost(),
		Reason:  "sources on other hosts cannot reach it", Fix: "set advertise to an address of this host that they can reach",
	}}
	if p := r.publisher.Load(); p != nil {
		out = append(out, p.Finding())
	}
	if now == nil {
		return out
	}
	d := now.desc.Load()
	return append(out, fabric.Finding{
		ID: "memory", Bad: len(d.Buffers) == 0, Subject: fmt.Sprintf("buffers that the target has registered: %d", len(d.Buffers)),
		Reason: "nothing can be carried to it", Fix: "register memory in the target's application",
	}, fabric.Finding{
		ID: "unacknowledged", Bad: !d.Acked(), Subject: fmt.Sprintf("version of the protocol of the target: %d", d.Proto),
		Reason: "it acknowledges no write: each is confirmed by a read of its last byte, over a connection of its own", Fix: "update its Mooncake to 0.3.12 or later",
	})
}
