package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/internal/loglimit"
	"meridian/wire"
)

// A reload is one path, whatever asks for it (SIGHUP, mrdn config reload):
//
//	1 one at a time, and none while the daemon leaves;
//	2 the file is read and checked whole, certificates too;
//	3 it is compared with what is in force: the configuration of the start with
//	  what earlier reloads took over;
//	4 what can change live is checked together with what stays;
//	5 the namespaces and the fabrics take their part, or refuse: up to here nothing has changed;
//	6 the other rooms take theirs, which cannot fail.

// live are the settings that a reload changes and that are read where no
// configuration is at hand.
type live struct {
	readyMinPeers atomic.Int64
	drainTimeout  atomic.Int64 // ns
}

func (l *live) set(c config.Agent) {
	l.readyMinPeers.Store(int64(c.ReadyMinPeers))
	l.drainTimeout.Store(int64(c.DrainTimeout))
}

// reloaded is what a reload did, or would do.
type reloaded struct {
	file     string
	applied  []config.Change
	restart  []config.Change // in force only after a restart
	warnings []config.Warning
}

// now is the configuration that is in force.
func (a *Agent) now() *config.Config { return a.running.Load() }

// hangup is SIGHUP.
func (a *Agent) hangup(ctx context.Context) {
	if _, err := a.reload(ctx, false); err != nil {
		a.log.Error("SIGHUP: the configuration was not taken over", "err", err)
	}
}

// reload reads the configuration again and takes over what can change live, or
// with dry only says what that would be. On an error nothing has changed.
func (a *Agent) reload(ctx context.Context, dry bool) (reloaded, error) {
	select {
	case a.reloading <- struct{}{}:
		defer func() { <-a.reloading }()
	case <-ctx.Done():
		return reloaded{}, fmt.Errorf("another reload has not ended: %w", errors.Join(ctx.Err(), wire.CodeBusy))
	}
	switch {
	case drainState(a.drain.Load()) != serving:
		return reloaded{}, fmt.Errorf("the daemon is leaving: %w", wire.CodeDraining)
	case a.opt.Reload == nil:
		return reloaded{}, fmt.Errorf("this daemon was started without a file to read again: %w", wire.CodeConfig)
	}
	next, warnings, err := a.opt.Reload()
	warned := func(warnings []config.Warning) {
		for _, w := range warnings {
			a.logLimited(slog.LevelWarn, "reload."+w.Key, "the configuration that is read again: "+w.String())
		}
	}
	warned(warnings)
	if err != nil {
		return reloaded{}, err
	}
	was := a.now()
	now, err := was.With(next)
	if err != nil {
		return reloaded{}, fmt.Errorf("what can change without a restart does not fit what cannot: %w", err)
	}
	parts, err := a.prepare(now)
	if err != nil {
		return reloaded{}, err
	}
	r := reloaded{file: next.File, warnings: warnings}
	for _, c := range config.Changes(was, next) {
		if c.Live {
			r.applied = append(r.applied, c)
		} else {
			r.restart = append(r.restart, c)
		}
	}
	for _, p := range parts {
		warned(p.Warnings)
		r.warnings = append(r.warnings, p.Warnings...)
		for _, c := range p.Changed {
			if !slices.ContainsFunc(r.applied, func(o config.Change) bool { return o.Key == c.Key }) {
				r.applied = append(r.applied, c)
			}
		}
	}
	if n := a.added.Load(); n > 0 {
		forgotten := []config.Warning{{Key: "route", Text: fmt.Sprintf("%d added by mrdn route add, and not in the file: forgotten by a reload", n)}}
		warned(forgotten)
		r.warnings = append(r.warnings, forgotten...)
	}
	if dry {
		cancel(parts)
		return r, nil
	}
	return r, a.apply(now, parts, r)
}

// prepare asks the fabrics what they would take of a configuration.
func (a *Agent) prepare(now *config.Config) (map[string]openers.Prepared, error) {
	parts, names := map[string]openers.Prepared{}, 0
	p, err := a.prepareNamespaces(now)
	if err != nil {
		return nil, err
	}
	parts["[[namespace]]"] = p // no fabric has such a name
	for name, f := range a.whole {
		names++
		rl, ok := f.(openers.Reloader)
		if !ok {
			continue
		}
		p, err := rl.Prepare(now)
		if err != nil {
			cancel(parts)
			return nil, err
		}
		parts[name] = p
		names += p.Peers
	}
	if names > fabric.MaxFabrics {
		cancel(parts)
		return nil, fmt.Errorf("%d fabrics and peers, the limit is %d: %w", names, fabric.MaxFabrics, wire.CodeTooMany)
	}
	return parts, nil
}

// cancel gives back what fabrics took for what is not to change.
func cancel(parts map[string]openers.Prepared) {
	for _, p := range parts {
		if p.Cancel != nil {
			p.Cancel()
		}
	}
}

// apply puts a checked configuration in force.
func (a *Agent) apply(now *config.Config, parts map[string]openers.Prepared, r reloaded) error {
	for name, p := range parts {
		delete(parts, name)
		if err := p.Apply(); err != nil {
			cancel(parts)
			return err
		}
	}
	if err := a.replaceRoutes(now); err != nil {
		return err
	}
	a.running.Store(now)
	a.live.set(now.Agent)
	if a.opt.Level != nil {
		a.opt.Level.Set(now.Agent.LogLevel)
	}
	a.setQuotas(now.Quota)
	a.store.SetShares(sharesOf(now.Quota), quota.Share(now.KVMemory.Capacity, now.Quota.Staging))
	a.log.Handler().(*loglimit.Handler).SetBurst(now.Quota.LogLines)
	a.engines.SetTenants(now.Security.Tenants)
	var err error
	for name, f := range a.whole {
		err = errors.Join(err, a.matchPeers(name, f))
	}
	a.selftest.poke()
	a.log.Info("configuration read again", "from", r.file, "taken_over", lines(r.applied), "needs_restart", lines(r.restart))
	return err
}

func sharesOf(q config.Quota) blocks.Shares {
	return blocks.Shares{
		Peer: q.PeerArena, Peers: q.PeersArena, Engine: q.EngineArena, Tenant: q.TenantArena, UserEnded: q.UserEnded,
		EngineGuaranteed: q.EngineGuaranteed, TenantGuaranteed: q.TenantGuaranteed,
		EngineStaging: q.EngineStaging, TenantStaging: q.TenantStaging,
		ReserveTime: q.PeerReserve, LeaseAge: q.PeerLeaseAge,
	}
}

// lines are changes for the log.
func lines(changes []config.Change) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = c.String()
	}
	return out
}

// drainFor is how long a drain may take: never nothing, so that what has ended
// already is noticed.
func (a *Agent) drainFor() time.Duration {
	return max(time.Duration(a.live.drainTimeout.Load()), time.Millisecond)
}
