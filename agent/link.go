package agent

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"meridian/adapters/link"
	"meridian/agent/config"
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
		Sessions: a.cfg.Link.Sessions, HalfOpen: a.cfg.Link.HalfOpen, HalfOpenPerAddress: a.cfg.Link.HalfOpenPerAddress,
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
	if err := a.fabrics.Add(linkFabric, peerGroup{a}); err != nil {
		return err
	}
	for _, p := range a.cfg.Link.Peers {
		if err := a.fabrics.Add(fabric.PeerName(linkFabric, p.Name), a.node.Peer(p.Name)); err != nil {
			return err
		}
	}
	return a.openRoutes()
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

// openRoutes turns the config's routes into the table; disagg.fabric is short
// for one last route.
func (a *Agent) openRoutes() error {
	var rules []fabric.Route
	for i, r := range a.cfg.Routes {
		rule := fabric.Route{Peer: r.Peer, MinBytes: r.MinBytes, MaxBytes: r.MaxBytes, Fabric: r.Fabric, Require: r.Require}
		if r.Tier != "" {
			tier, err := wire.ParseTier(r.Tier)
			if err != nil {
				return fmt.Errorf("route %d: %w", i, err)
			}
			rule.Tiers = []wire.Tier{tier}
		}
		if r.Namespace != "" {
			b, err := hex.DecodeString(r.Namespace)
			if err != nil || len(b) != len(rule.NS) {
				return fmt.Errorf("route %d: namespace %q: want 64 hexadecimal digits", i, r.Namespace)
			}
			copy(rule.NS[:], b)
		}
		rules = append(rules, rule)
	}
	if a.cfg.Disagg.Enabled {
		rules = append(rules, fabric.Route{Fabric: a.cfg.Disagg.Fabric})
	}
	var err error
	a.routes, err = fabric.NewRoutes(&a.fabrics, a.fabricReady, rules)
	return err
}

// schemeOf is the part of an address before "://".
func schemeOf(addr string) string {
	scheme, _, _ := strings.Cut(addr, "://")
	return scheme
}

// fabricReady says why a fabric cannot be used now.
func (a *Agent) fabricReady(name string, f fabric.Fabric) error {
	ready := a.readyPeers()
	switch f := f.(type) {
	case peerGroup:
		if len(ready) == 0 {
			return &fabric.Error{Code: wire.CodeUnreachable, Fabric: name, Text: "no peer is ready"}
		}
	case *link.Peer:
		if !slices.ContainsFunc(ready, func(p link.PeerInfo) bool { return p.Name == f.Name() }) {
			return &fabric.Error{Code: wire.CodeUnreachable, Fabric: name, Text: "the peer is not ready"}
		}
	}
	return nil
}

// linkObserver counts what the link reports by itself: state changes, refusals
// and what peers asked of this daemon. What this daemon asked for is counted in
// account.go.
type linkObserver struct{ a *Agent }

// PeerState wakes the self-test, which also counts incarnations: a peer that
// comes back at once may never have been seen as not ready.
func (o linkObserver) PeerState(string, link.State, wire.Code) { o.a.selftest.poke() }

func (o linkObserver) Transfer(t link.Transfer) {
	if !t.Served {
		return
	}
	dir, op := dirOut, "pull"
	if t.In {
		dir, op = dirIn, "push"
	}
	id := o.a.transfers.begin(transfer{fabric: linkFabric, peer: t.Peer, dir: dir, op: op, class: uint8(t.Class), items: t.Items, began: time.Now().Add(-t.Took)})
	o.a.transfers.end(id, t.Via, t.Bytes, 0, t.Code, t.Took)
	o.a.moved.add(linkFabric, t.Via, dir.String(), t.Bytes)
	o.a.metrics.transferSeconds.WithLabelValues(linkFabric, dir.String()).Observe(t.Took.Seconds())
	o.a.metrics.transferBlocks.WithLabelValues(linkFabric, dir.String(), "ok").Add(float64(t.Items))
	if t.Code != wire.CodeOK {
		o.a.metrics.failures.WithLabelValues(t.Code.String()).Inc()
	}
}

// Refusal counts; the link logs it.
func (o linkObserver) Refusal(_ string, code wire.Code) {
	o.a.metrics.refusals.WithLabelValues(code.String()).Inc()
}

// ChecksumFailure is a body that arrived wrong, pulled or pushed.
func (o linkObserver) ChecksumFailure(peer string) {
	o.a.checksumFailed(linkFabric)
	o.a.logLimited(slog.LevelError, "checksum.arrived."+o.a.metrics.peer(peer), "checksum failure on the link: the block was not stored", "code", wire.CodeChecksum.String(),
		"number", uint16(wire.CodeChecksum), "where", linkFabric, "peer", peer)
}
