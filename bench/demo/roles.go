package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/bench/harness"
	"meridian/fabric"
	"meridian/fabric/synthetic"
)

// The roles that this program takes when the demo starts it again.
const (
	RoleDaemon  = "daemon"
	RoleJudge   = "judge"
	RolePrefill = "prefill-engine"
	RoleDecode  = "decode-engine"
)

// Play is the whole of a process with a role.
func Play(ctx context.Context, role string, args []string, in io.Reader, out io.Writer) error {
	switch role {
	case RoleDaemon:
		return playDaemons(ctx, args, in, out)
	case RoleJudge:
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
		defer stop()
		if len(args) != 1 {
			return fmt.Errorf("judge: want SOCKET, got %q", args)
		}
		return serveJudge(ctx, args[0])
	case RolePrefill:
		return Prefill(ctx, in, out)
	case RoleDecode:
		return Decode(ctx, in, out)
	}
	return fmt.Errorf("role %q: want %s, %s, %s or %s", role, RoleDaemon, RoleJudge, RolePrefill, RoleDecode)
}

// playDaemons runs a daemon for each pair of config and ports file. Two in one
// process share one synthetic fabric.
func playDaemons(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 || len(args)%2 != 0 {
		return fmt.Errorf("daemon: want CONFIG PORTSFILE pairs, got %q", args)
	}
	var world *synthetic.Fabric
	var wg sync.WaitGroup
	errs := make([]error, len(args)/2)
	for i := range errs {
		cfg, _, err := openers.Load(config.Options{Path: args[2*i]})
		if err != nil {
			return err
		}
		opt := agent.Options{Version: agent.BuildVersion(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
		if len(errs) > 1 {
			f, err := joinWorld(&world, cfg.Agent.Name)
			if err != nil {
				return err
			}
			opt.Fabrics = map[string]fabric.Fabric{synthetic.Label: f}
		}
		if i == 1 {
			// Each line of in asks how often the fabric has corrupted an item.
			f := opt.Fabrics[synthetic.Label].(*synthetic.Fabric)
			go func() {
				to := harness.NewWriter(out)
				_ = harness.Lines(in, func(order) error { // until the parent is gone
					return to.Put(corrupted{f.Stats().Hits[synthetic.Corrupt.String()]})
				})
			}()
		}
		wg.Go(func() { errs[i] = agent.Run(ctx, cfg, opt, args[2*i+1]) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// worldBytes is what the synthetic fabric may hold: all blocks of the large
// size.
const worldBytes = 6 << 30

// corrupted is how many items the synthetic fabric has corrupted.
type corrupted struct {
	N uint64 `json:"n"`
}

// joinWorld gives each daemon an endpoint of the one synthetic world. The
// decode side's corrupts the flipAt-th item that it pulls, once.
func joinWorld(world **synthetic.Fabric, name string) (*synthetic.Fabric, error) {
	if *world == nil {
		*world = synthetic.New(synthetic.Options{Name: name, Capacity: worldBytes})
		return *world, nil
	}
	return (*world).Join(name, 1, synthetic.Fault{Kind: synthetic.Corrupt, Op: synthetic.OpPull, Skip: flipAt, Times: 1})
}
