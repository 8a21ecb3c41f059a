package agent

import (
	"sync/atomic"
	"time"

	"meridian/agent/config"
)

// live are the settings that SIGHUP can change in a running daemon: those that
// config.Changes calls live.
type live struct {
	readyMinPeers atomic.Int64
	drainTimeout  atomic.Int64 // ns
}

func (l *live) set(c config.Agent) {
	l.readyMinPeers.Store(int64(c.ReadyMinPeers))
	l.drainTimeout.Store(int64(c.DrainTimeout))
}

// reload reads the configuration again, takes over what can change live, and
// lists what needs a restart: all that differs from the start, so a key stays in
// the list until the file has the value that is in force again. A configuration
// that is wrong changes nothing.
func (a *Agent) reload() {
	if a.opt.Reload == nil {
		a.log.Warn("SIGHUP: this daemon was started without a file to read again")
		return
	}
	next, err := a.opt.Reload()
	if err != nil {
		a.log.Error("SIGHUP: the configuration is wrong and was not taken over", "err", err)
		return
	}
	applied, restart := []string{}, []string{}
	for _, c := range config.Changes(a.running.Load(), next) {
		if c.Live {
			applied = append(applied, c.Key)
		}
	}
	for _, c := range config.Changes(a.cfg, next) {
		if !c.Live {
			restart = append(restart, c.Key)
		}
	}
	a.live.set(next.Agent)
	if a.opt.Level != nil {
		a.opt.Level.Set(next.Agent.LogLevel)
	}
	a.running.Store(next)
	a.log.Info("SIGHUP: configuration read again", "taken_over", applied, "needs_restart", restart)
}

// drainFor is how long a drain may take: never nothing, so that what has ended
// already is noticed.
func (a *Agent) drainFor() time.Duration {
	return max(time.Duration(a.live.drainTimeout.Load()), time.Millisecond)
}
