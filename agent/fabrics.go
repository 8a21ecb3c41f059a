package agent

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"meridian/agent/openers"
	"meridian/agent/transfer"
	"meridian/fabric"
	"meridian/wire"
)

// openFabrics adds the caller's fabrics, and those of the configuration that the
// caller has not given.
func (a *Agent) openFabrics(ctx context.Context) error {
	for name, f := range a.opt.Fabrics {
		if err := a.fabrics.Add(name, f); err != nil {
			return err
		}
	}
	site := openers.Site{
		Agent: a.id.name, ID: a.id.agent, Incarnation: a.id.incarnation, StateDir: a.cfg.Agent.StateDir, Log: a.log,
	}
	for _, one := range a.cfg.Fabrics {
		if _, ok := a.fabrics.Get(one.Name); ok {
			continue
		}
		f, err := openers.Open(ctx, one, site, a.opt.Openers...)
		if err != nil {
			return err
		}
		if err := a.fabrics.Add(one.Name, f); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return nil
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
