package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"meridian/agent/config"
	"meridian/internal/safefile"
)

// Run starts a daemon, writes its ports to portsFile if one is named, tells
// systemd that it serves, whether peers are reachable or not, and stops it at
// SIGTERM, SIGINT or the end of ctx: it drains for at most agent.drain_timeout;
// a second signal ends that at once. SIGHUP reads the configuration again.
func Run(ctx context.Context, cfg *config.Config, opt Options, portsFile string) error {
	if portsFile != "" {
		if err := safefile.Check(portsFile); err != nil { // before anything is brought up
			return fmt.Errorf("--ports-file: %w", err)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	hup := make(chan os.Signal, 1) // from the first moment on: SIGHUP would end the process
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	a, err := Start(ctx, cfg, opt)
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	if portsFile != "" {
		if err := a.writePorts(portsFile); err != nil {
			return err
		}
	}
	_ = notify("READY=1")
	a.background(func(ctx context.Context) { // on its own: a disk that hangs holds up no SIGTERM
		for {
			select {
			case <-hup:
				a.hangup(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	<-ctx.Done()
	// Before stop, or a second signal in between would kill the process.
	again, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	stop()
	return a.shutdown(again)
}

// shutdown drains within the configured time, or until ctx ends, and closes.
func (a *Agent) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.drainFor())
	defer cancel()
	if err := a.Drain(ctx); err != nil {
		a.log.Warn("drain ended early", "err", err)
	}
	err := a.Close()
	if err != nil {
		a.log.Warn("stopped", "err", err)
		return err
	}
	a.log.Info("stopped")
	return nil
}

// writePorts puts the bound addresses into a JSON file.
func (a *Agent) writePorts(path string) error {
	b, err := json.MarshalIndent(a.Ports(), "", "  ")
	if err != nil {
		return err
	}
	if err := safefile.Write(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("--ports-file: %w", err)
	}
	return nil
}
