package agent

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"meridian/adapters/link"
	"meridian/agent/config"
	"meridian/agent/transfer"
	"meridian/fabric"
	"meridian/wire"
)

// linkFabric is the registry name of all peers of the link together; one peer
// is fabric.PeerName(linkFabric, name).
const linkFabric = "link"

func (a *Agent) openLink(context.Context) error {
	cfg := link.Config{
		Agent: a.id.agent, Incarnation: a.id.incarnation, Name: a.id.name,
		Store: a.store, Namespaces: a.spaces, Tenants: a.cfg.Security.Tenants,
		PSK: []byte(a.cfg.Link.PSK), UIDs: a.cfg.Security.UIDs, Insecure: a.cfg.Link.Insecure,
		Lanes: a.cfg.Link.Lanes, Congestion: a.cfg.Link.Congestion, Log: a.log, Observer: linkObserver{a},
		Quota: &a.quota,
	}
	if t := a.cfg.Link.TLS; t.On() {
		var err error
		if cfg.TLS, err = link.LoadTLS(t.Cert, t.Key, t.CA); err != nil {
			return err
		}
	}
	for _, p := range a.cfg.Link.Peers {
		pc, err := peerConfig(p)
		if err != nil {
			return err
		}
		cfg.Peers = append(cfg.Peers, pc)
	}
	var err error
	if a.node, err = link.New(cfg); err != nil {
		return err
	}
	for _, addr := range a.cfg.Link.Listen {
		at, err := a.node.Listen(addr)
		if err != nil {
			return fmt.Errorf("link.listen %s: %w", addr, err)
		}
		a.addPort("link", schemeOf(addr)+"://"+at.String())
	}
	if err := a.fabrics.Add(linkFabric, a.node.Group()); err != nil {
		return err
	}
	for _, p := range a.cfg.Link.Peers {
		if err := a.fabrics.Add(fabric.PeerName(linkFabric, p.Name), a.node.Peer(p.Name)); err != nil {
			return err
		}
	}
	return nil
}

func peerConfig(p config.Peer) (link.PeerConfig, error) {
	out := link.PeerConfig{Name: p.Name, Addr: p.Address, Tenants: p.Tenants, PSK: []byte(p.PSK)}
	if p.Agent == "" {
		return out, nil
	}
	b, err := hex.DecodeString(p.Agent)
	if err != nil || len(b) != len(out.Agent) {
		return out, fmt.Errorf("link.peer %s: agent %q: want 32 hexadecimal digits", p.Name, p.Agent)
	}
	copy(out.Agent[:], b)
	return out, nil
}

// schemeOf is the part of an address before "://".
func schemeOf(addr string) string {
	scheme, _, _ := strings.Cut(addr, "://")
	return scheme
}

// linkObserver counts what the link reports by itself: state changes, refusals
// and what peers asked of this daemon. What this daemon asked for is counted by
// agent/transfer.
type linkObserver struct{ a *Agent }

// PeerState wakes the self-test, which also counts incarnations: a peer that
// comes back at once may never have been seen as not ready.
func (o linkObserver) PeerState(string, link.State, wire.Code) { o.a.selftest.poke() }

func (o linkObserver) Transfer(t link.Transfer) {
	if !t.Served {
		return
	}
	r := transfer.Record{
		Fabric: linkFabric, Peer: t.Peer, In: t.In, Op: transfer.OpPull, Class: fabric.Class(t.Class), Via: t.Via,
		Bytes: t.Bytes, Items: t.Items + len(t.Refused), Failed: len(t.Refused), Began: time.Now().Add(-t.Took), Took: t.Took, Code: t.Code,
	}
	if t.In {
		r.Op = transfer.OpPush
	}
	r.ID = o.a.mover.Log.Begin(r)
	o.a.mover.Log.End(r)
	moveObserver(o).Transferred(r)
	moveObserver(o).Moved(linkFabric, t.Via, t.In, t.Bytes)
	for _, c := range t.Refused {
		o.a.metrics.refusals.WithLabelValues(reasonOf(c)).Inc()
	}
	if t.Code != wire.CodeOK {
		o.a.metrics.failures.WithLabelValues(reasonOf(t.Code)).Inc()
	}
}

// Refusal counts; the link logs it.
func (o linkObserver) Refusal(_ string, code wire.Code) {
	o.a.metrics.refusals.WithLabelValues(reasonOf(code)).Inc()
}

// ChecksumFailure is a body that arrived wrong, pulled or pushed.
func (o linkObserver) ChecksumFailure(peer string) {
	o.a.checksumFailed(linkFabric)
	o.a.logLimited(slog.LevelError, "checksum.arrived."+o.a.metrics.peer(peer), "checksum failure on the link: the block was not stored", "code", wire.CodeChecksum.String(),
		"number", uint16(wire.CodeChecksum), "where", linkFabric, "peer", peer)
}
