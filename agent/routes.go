package agent

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"

	"meridian/agent/config"
	"meridian/agent/transfer"
	"meridian/fabric"
	"meridian/wire"
)

// Where a rule comes from.
const (
	routeOfFile   = "file"
	routeOfDisagg = "disagg.fabric"
	routeAdded    = "added"
)

// maxAdded bounds the routes that are added to those of the file: each block is compared
// with all of them.
const maxAdded = 64

// rulesOf turns a configuration's routes into rules; disagg.fabric is short for one last
// route.
func rulesOf(c *config.Config) (rules []fabric.Route, err error) {
	for i, r := range c.Routes {
		rule := fabric.Route{From: r.From, Peer: r.Peer, MinBytes: r.MinBytes, MaxBytes: r.MaxBytes, Fabric: r.Fabric, Require: r.Require}
		if r.Tier != "" {
			tier, err := wire.ParseTier(r.Tier)
			if err != nil {
				return nil, fmt.Errorf("route %d: %w", i, err)
			}
			rule.Tiers = []wire.Tier{tier}
		}
		if r.Namespace != "" {
			b, err := hex.DecodeString(r.Namespace)
			if err != nil || len(b) != len(rule.NS) {
				return nil, fmt.Errorf("route %d: namespace %q: want 64 hexadecimal digits", i, r.Namespace)
			}
			copy(rule.NS[:], b)
		}
		rules = append(rules, rule)
	}
	if c.Disagg.Enabled {
		rules = append(rules, fabric.Route{Fabric: c.Disagg.Fabric})
	}
	return rules, nil
}

// openRoutes makes the table of routes, and what moves blocks by it.
func (a *Agent) openRoutes(context.Context) error {
	rules, err := rulesOf(a.cfg)
	if err != nil {
		return err
	}
	if a.routes, err = fabric.NewRoutes(&a.fabrics, rules); err != nil {
		return err
	}
	a.mover = transfer.New(transfer.Config{
		Store: a.store, Fabrics: &a.fabrics, Routes: a.routes, Observer: moveObserver{a}, Tracer: a.tracer, Log: a.logLimited,
		FindWithin: a.cfg.Agent.FindTimeout, LoadBytes: a.cfg.KVMemory.Capacity / 4,
		BridgeBytes: cmp.Or(a.cfg.Gateway.Queue, a.cfg.KVMemory.Capacity/8), LookWithin: a.cfg.Gateway.Look,
		CutBytes: a.cfg.Gateway.Cut,
	})
	return nil
}

// replaceRoutes puts the routes of a configuration in force. What was added is forgotten.
func (a *Agent) replaceRoutes(c *config.Config) error {
	rules, err := rulesOf(c)
	if err != nil {
		return err
	}
	if err := a.routes.Replace(rules); err != nil {
		return err
	}
	a.added.Store(0)
	a.zeroFallbacks()
	a.zeroBridges()
	return nil
}

// addRoute puts one route above all others, until a restart or a reload.
func (a *Agent) addRoute(ctx context.Context, keys map[string]any) error {
	select {
	case a.reloading <- struct{}{}:
		defer func() { <-a.reloading }()
	case <-ctx.Done():
		return fmt.Errorf("a reload has not ended: %w", wire.CodeBusy)
	}
	if drainState(a.drain.Load()) != serving {
		return fmt.Errorf("the daemon is leaving: %w", wire.CodeDraining)
	}
	if n := a.added.Load(); n >= maxAdded {
		return fmt.Errorf("%d routes were added already, limit %d: write those that stay into the file, and reload: %w", n, maxAdded, wire.CodeTooMany)
	}
	with, _, err := a.now().WithRoute(keys)
	if err != nil {
		return err
	}
	rules, err := rulesOf(with)
	if err != nil {
		return err
	}
	if err := a.routes.Replace(append(rules[:1:1], a.routes.Rules()...)); err != nil {
		return err
	}
	a.added.Add(1)
	a.zeroFallbacks()
	a.zeroBridges()
	a.log.Info("a route was added: it is above all others until a restart or a reload", "route", rules[0].String())
	return nil
}
