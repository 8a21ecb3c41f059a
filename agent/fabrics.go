package agent

import (
	"context"
	"encoding/hex"
	"fmt"

	"meridian/agent/transfer"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// openers make the fabrics that a route or disagg.fabric can name, by that name.
// The link is opened by openLink, since it serves peers whether a route names it
// or not. docs/adding-a-fabric.md says what else a new one takes.
var openers = map[string]func(a *Agent) (fabric.Fabric, error){
	synthetic.Label: func(*Agent) (fabric.Fabric, error) { return synthetic.New(synthetic.Options{}), nil },
}

// openFabrics adds the caller's fabrics, and those that the configuration names.
func (a *Agent) openFabrics(context.Context) error {
	for name, f := range a.opt.Fabrics {
		if err := a.fabrics.Add(name, f); err != nil {
			return err
		}
	}
	for name, open := range openers {
		if _, ok := a.fabrics.Get(name); ok || !a.wantsFabric(name) {
			continue
		}
		f, err := open(a)
		if err != nil {
			return fmt.Errorf("fabric %s: %w", name, err)
		}
		if err := a.fabrics.Add(name, f); err != nil {
			return err
		}
	}
	return nil
}

// wantsFabric says whether a route or disagg.fabric names the fabric.
func (a *Agent) wantsFabric(name string) bool {
	if a.cfg.Disagg.Enabled && a.cfg.Disagg.Fabric == name {
		return true
	}
	for _, r := range a.cfg.Routes {
		if r.Fabric == name {
			return true
		}
	}
	return false
}

// openRoutes turns the config's routes into the table; disagg.fabric is short
// for one last route.
func (a *Agent) openRoutes(context.Context) error {
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
	if a.routes, err = fabric.NewRoutes(&a.fabrics, rules); err != nil {
		return err
	}
	a.mover = transfer.New(transfer.Config{
		Store: a.store, Fabrics: &a.fabrics, Routes: a.routes, Observer: moveObserver{a}, Tracer: a.tracer, Log: a.logLimited,
		FindWithin: a.cfg.Agent.FindTimeout, LoadBytes: a.cfg.KVMemory.Capacity / 4,
	})
	return nil
}
