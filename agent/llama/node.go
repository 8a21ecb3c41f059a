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
	"meridian/agent/llama/identity"
	"meridian/agent/openai"
	"meridian/scheduler"
	"meridian/wire"
)

// Node joins one llama-server to one daemon. It implements openai.Backend.
type Node struct {
	cfg     Config
	log     *slog.Logger
	sockets string // folder of the server's socket
	files   string // folder of slot state files
	sums    identity.Cache
	partner *partner
	stats   counters
	work    work
	bodies  openai.Bodies // of prompts that the partner sends
	created time.Time

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
	turns *turns

	content *identity.Files
	changed chan error // gets why the server computes what its namespace does not say

	context, vocabulary int // tokens: of a slot, of the model
	geometry            llamacpp.Geometry
	manifest            wire.Manifest
	marks               scheduler.Model
	models              *scheduler.Models // the one of marks
	rules               *scheduler.Rules  // nil: signals force nothing
	template            template

	engine *client.Engine
	ns     client.NS
}

// intact ends a server whose model was overwritten while it ran: what it computes
// from then on is not what its keys say.
func (s *server) intact() error {
	err := s.content.Overwritten()
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrClosed) { // the server has ended, for a reason that is told elsewhere
		return ErrDown
	}
	err = fmt.Errorf("the model changed while llama-server ran: %w", err)
	select {
	case s.changed <- err:
	default: // told already
	}
	return fmt.Errorf("%w: %w", ErrDown, err)
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
	n := &Node{cfg: cfg, created: time.Now(), log: cfg.Log.With("model", cfg.Name), changed: make(chan struct{}), down: &waiting{"llama-server is being started", time.Now()}}
	n.sockets, n.files = filepath.Join(cfg.Dir, "run"), filepath.Join(cfg.Dir, "slots")
	for _, dir := range []string{n.sockets, n.files} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("llama.dir: %w", err)
		}
	}
	n.run, n.stop = context.WithCancel(context.Background())
	if cfg.Partner != "" {
		n.partner = newPartner(n)
	}
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

// Down says why the node cannot serve, or what it waits for; nil when it serves. It
// is an ErrFailed when the node will not try again.
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
		if s != nil && s.proc.Alive() {
			return s, nil
		}
		if errors.Is(down, ErrFailed) {
			return nil, fmt.Errorf("%w: %w", ErrDown, down)
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
