package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/bench/harness"
)

// roleRelay is the process between the two of a pair: a daemon with a relay.
const roleRelay = "relay"

// relayWait bounds how long the daemon may take until it listens.
const relayWait = time.Minute

// relayDaemon is that process. Initiators open its segment instead of the target's.
type relayDaemon struct {
	r       *run
	daemon  *harness.Process
	segment string // its own
	target  string // that it relays to
	failed  error  // it did not start
}

// playRelay is the whole of the process: a daemon, with the configuration and the file for
// its addresses in dir. It ends at SIGTERM.
func playRelay(ctx context.Context, dir string) error {
	cfg, _, err := openers.Load(config.Options{Path: filepath.Join(dir, "relay.toml")})
	if err != nil {
		return err
	}
	opt := agent.Options{Version: agent.BuildVersion(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	return agent.Run(ctx, cfg, opt, filepath.Join(dir, "relay.ports"))
}

// through is the peer of an initiator where the target's answer is one: its memory, by the
// relay's name. The daemon starts with the first cell, since only then the target says
// its name.
func (d *relayDaemon) through(ctx context.Context, answer json.RawMessage) (any, error) {
	var p transferPeer
	if err := json.Unmarshal(answer, &p); err != nil {
		return nil, err
	}
	if d.daemon == nil {
		d.failed = d.start(ctx, p.Name)
	}
	if d.failed != nil {
		return nil, d.failed
	}
	if p.Name != d.target {
		return nil, fmt.Errorf("the relay's target is %s now, was %s", p.Name, d.target)
	}
	return transferPeer{d.segment, p.Addr}, nil
}

func (d *relayDaemon) start(ctx context.Context, target string) (err error) {
	base := filepath.Join(d.r.dir, "relay")
	text := fmt.Sprintf(`[agent]
name = "relay"
state_dir = %q
[kv_memory]
capacity_bytes = "64MiB"
[engine]
socket = %q
[admin]
socket = %q
[fabric.to-target]
kind = "mooncake-relay"
target = %q
listen = "127.0.0.1:0"
data = "127.0.0.1:0"
`, base+".state", base+".engine", base+".admin", "target="+target)
	if err := os.WriteFile(base+".toml", []byte(text), 0o600); err != nil {
		return err
	}
	cmd := harness.Again(d.r.opt.Self, relayed, roleRelay, d.r.dir)
	if d.daemon, err = harness.Start("relay", cmd, harness.Options{Log: harness.LogIn(d.r.dir, "relay"), Term: true}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, relayWait)
	defer cancel()
	ports, err := d.daemon.Ports(ctx, base+".ports")
	if err == nil && len(ports["to-target"]) == 0 {
		err = errors.New("the daemon tells no address of its relay")
	}
	if err != nil {
		return err
	}
	d.segment, d.target = strings.TrimPrefix(ports["to-target"][0], "mooncake://"), target
	return nil
}

func (d *relayDaemon) cpu() (time.Duration, error) {
	if d == nil || d.daemon == nil {
		return 0, nil
	}
	return d.daemon.CPU()
}

func (d *relayDaemon) stop() error {
	if d == nil || d.daemon == nil {
		return nil
	}
	return d.daemon.Stop()
}
