package llama

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"meridian/adapters/llamacpp"
	"meridian/agent/client"
	"meridian/scheduler"
	"meridian/wire"
)

// Node joins one llama-server to one daemon. It implements openai.Backend.
type Node struct {
	cfg       Config
	log       *slog.Logger
	sockets   string // folder of the server's socket
	files     string // folder of slot state files
	modelHash [32]byte
	partner   *partner
	stats     counters
	created   time.Time

	run  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	up      *server       // nil while none runs
	changed chan struct{} // closed and replaced when up or down changes
	down    error         // why none runs
}

// server is one llama-server that has loaded its model, and what was learnt of
// it.
type server struct {
	proc  *process
	api   *llamacpp.Server
	slots *slots

	context, vocabulary int // tokens: of a slot, of the model
	geometry            llamacpp.Geometry
	manifest            wire.Manifest
	marks               scheduler.Model
	open                []int32 // appended to a chat prompt so that it thinks
	phases              *phases

	engine *client.Engine
	ns     client.NS
}

// Start checks the configuration, starts llama-server and returns: the node is
// Up when the model is loaded.
func Start(cfg Config) (*Node, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, created: time.Now(), log: cfg.Log.With("model", cfg.Name), changed: make(chan struct{}), down: errors.New("the model is being loaded")}
	n.sockets, n.files = filepath.Join(cfg.Dir, "run"), filepath.Join(cfg.Dir, "slots")
	for _, dir := range []string{n.sockets, n.files} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("llama.dir: %w", err)
		}
	}
	if cfg.Partner != "" {
		n.partner = newPartner(cfg.Partner, cfg.Token)
	}
	n.run, n.stop = context.WithCancel(context.Background())
	n.wg.Go(n.supervise)
	return n, nil
}

// Close ends llama-server and the node's session with the daemon. Requests that
// run fail.
func (n *Node) Close() error {
	n.stop()
	n.wg.Wait()
	if n.partner != nil {
		n.partner.close()
	}
	return nil
}

// Down says why the node cannot serve; nil when it can.
func (n *Node) Down() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.up != nil {
		return nil
	}
	return n.down
}

// current waits for a server that serves.
func (n *Node) current(ctx context.Context) (*server, error) {
	for {
		n.mu.Lock()
		s, changed, down := n.up, n.changed, n.down
		n.mu.Unlock()
		if s != nil && s.proc.alive() {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-n.run.Done():
			return nil, fmt.Errorf("%w: %w", ErrDown, down)
		}
	}
}

func (n *Node) publish(s *server, down error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up, n.down = s, down
	close(n.changed)
	n.changed = make(chan struct{})
}

// supervise keeps a llama-server running until Close.
func (n *Node) supervise() {
	pause := time.Duration(0)
	for n.run.Err() == nil {
		began := time.Now()
		err := n.serveOnce()
		if n.run.Err() != nil {
			break
		}
		n.stats.restarts.Add(1)
		n.publish(nil, err)
		if time.Since(began) > settled {
			pause = 0
		}
		n.log.Error("llama-server is down", "err", err, "next_try_in", pause)
		sleep(n.run, pause, nil)
		pause = min(max(2*pause, firstPause), maxPause)
	}
	n.publish(nil, errors.New("the node is closed"))
}

// serveOnce runs one llama-server from its start to its end, or to the end of
// the session with the daemon: a new one then starts with empty slots.
func (n *Node) serveOnce() error {
	proc, err := startProcess(&n.cfg, filepath.Join(n.sockets, "llama.sock"), n.files, n.log)
	if err != nil {
		return err
	}
	defer proc.stop()
	ctx, cancel := context.WithTimeout(n.run, loadTimeout)
	defer cancel()
	s, err := n.meet(ctx, proc)
	if err != nil {
		if !proc.alive() {
			return proc.err
		}
		return err
	}
	defer func() { _ = s.engine.Close() }()
	n.publish(s, nil)
	n.log.Info("llama-server serves", "slots", s.slots.size, "context", s.context, "namespace", s.manifest.Namespace().String())
	select {
	case <-proc.gone:
		return proc.err
	case <-s.engine.Gone():
		return fmt.Errorf("the daemon's engine socket: %w", s.engine.Err())
	case <-n.run.Done():
		n.publish(nil, errors.New("the node is closing"))
		return nil
	}
}
