package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/llama"
	"meridian/agent/openai"
	"meridian/blocks/quota"
	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// llamaService is the llama-server that the daemon supervises, with its front. The
// node is an engine like any other: it uses the daemon's own engine socket.
type llamaService struct {
	node   *llama.Node
	front  *openai.Front
	server *openai.Server
	once   sync.Once // of the server's shutdown
}

// FrontSocket is where a node's front listens for its partner on the same host,
// beside llama.listen: in llama.dir.
const FrontSocket = "front.sock"

func (a *Agent) openLlama(context.Context) error {
	c := a.cfg.Llama
	if !c.On() {
		return nil
	}
	node, err := llama.Start(a.llamaConfig())
	if err != nil {
		return err
	}
	s := &llamaService{node: node}
	s.front, err = openai.New(frontConfig(c, node, a.log))
	if err != nil {
		return errors.Join(err, node.Close())
	}
	s.server = openai.NewServer(node.Handler(s.front), a.log)
	a.llama.Store(s) // Close ends it from here on
	tcp, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("llama.listen: %w", err)
	}
	a.addPort("openai", "http://"+tcp.Addr().String())
	a.serveFront(s, tcp)
	private, err := listenPrivate(filepath.Join(c.Dir, FrontSocket))
	if err != nil {
		return fmt.Errorf("llama.dir: %w", err)
	}
	a.serveFront(s, private)
	return nil
}

// frontConfig is that of the front of a node.
func frontConfig(c config.Llama, node openai.Backend, log *slog.Logger) openai.Config {
	return openai.Config{Backend: node, Log: log, Token: string(c.Token),
		Hosts: frontHosts(c), Origins: c.Origins, Table: "llama",
		MaxRequests: llama.Places(c.Slots), MaxBackground: llama.BackgroundPlaces(c.Slots)}
}

// frontHosts are the names that a request to the front may give as Host.
func frontHosts(c config.Llama) []string { return append([]string{c.Listen}, c.Hosts...) }

func (a *Agent) serveFront(s *llamaService, ln net.Listener) {
	a.background(func(context.Context) {
		if err := s.server.Serve(a.share(ln, quota.FrontConns)); err != nil {
			a.log.Error("the OpenAI front ended", "err", err)
		}
	})
}

// SignalConfig is what a configuration says of signals that end thinking.
func SignalConfig(c *config.Config) scheduler.SignalConfig {
	e, s, t := c.Entropy, c.Scheduler, scheduler.DefaultSignalConfig()
	t.Alpha, t.VarianceThreshold = e.EMAAlpha, e.EATEMAVarianceThreshold
	t.RPDIThreshold, t.TransitionEntropy = e.RPDIThreshold, e.TransitionEntropyThreshold
	t.PEndLevel = e.PEndLevel
	t.ProbeInterval, t.MinThink, t.MaxThink = e.EATProbeInterval, s.MinThinkTokens, s.MaxThinkTokens
	return t
}

func (a *Agent) llamaConfig() llama.Config {
	c, e, s := a.cfg.Llama, a.cfg.Entropy, a.cfg.Scheduler
	t := llama.Thinking{Start: c.ThinkStart, End: c.ThinkEnd, Open: c.ThinkOpen, Max: s.MaxThinkTokens}
	for _, m := range a.cfg.Models {
		if m.Name == c.Name {
			t.StartIDs, t.EndIDs, t.Keeps = m.ThinkStart, m.ThinkEnd, m.KeepsThinking
		}
	}
	if e.Enabled {
		t.Probe = c.SignalProbs
	}
	t.Signals = SignalConfig(a.cfg)
	return llama.Config{
		Server: c.Server, Model: c.Model, Args: c.Args, Name: c.Name, Context: c.Context, Slots: c.Slots, Threads: c.Threads, Dir: c.Dir,
		Tenant: c.Tenant, BlockTokens: c.BlockTokens, Quantum: c.Quantum, Scheduling: scheduling(c, s),
		Role: llama.Role(c.Role), Partner: c.Partner, PartnerTimeout: c.PartnerTime, Token: string(c.Token), Remote: c.Remote,
		Hosts: frontHosts(c), Origins: c.Origins,
		Thinking: t, Agent: a.id.name, Log: a.log,
		Engine: func(ctx context.Context, o client.Options) (*client.Engine, error) {
			return client.DialEngine(ctx, a.cfg.Engine.Socket, o)
		},
		Learn:   a.learnModel,
		Blocked: func(partner string) error { return partnerBlocked(a.peers(), partner) },
	}
}

// scheduling is what the tables [scheduler] and [llama] say of the node's queue.
func scheduling(c config.Llama, s config.Scheduler) llama.Scheduling {
	ms := func(v float64) time.Duration { return max(time.Duration(v*float64(time.Millisecond)), 1) }
	return llama.Scheduling{Tick: c.Tick, Hold: c.Hold, Queue: queue.Config{
		Policy: queue.Policy(s.Policy), ThinkMultiplier: min(s.ThinkBatchMultiplier, queue.MaxRequests),
		FirstAnswer: ms(s.FirstAnswerBudget), ThinkPace: ms(s.ThinkTPOTBudget), OutputPace: ms(s.OutputTPOTBudget),
		Buffer: s.AnswerBuffer, MinResidency: s.MinResidency, Aging: s.Aging,
	}}
}

// learnModel adds what a node's tokenizer said of its markers to what the
// engines' routers know.
func (a *Agent) learnModel(m scheduler.Model) error {
	models := slices.DeleteFunc(a.models(), func(o scheduler.Model) bool { return o.Name == m.Name })
	known, err := scheduler.NewModels(append(models, m))
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	a.engines.SetModels(known)
	return nil
}

// drainStill is how long a drain waits for requests of the front of which nothing
// goes on, beyond what their step may take: what can end well moves.
const drainStill = time.Second

// drain takes no more requests and lets those that run end, until ctx ends or
// nothing of them goes on.
func (s *llamaService) drain(ctx context.Context) {
	s.once.Do(func() {
		ctx, cancel := context.WithCancel(ctx)
		var still sync.WaitGroup
		still.Go(func() {
			s.node.Still(ctx, drainStill)
			cancel()
		})
		s.server.Shutdown(ctx)
		cancel()
		still.Wait()
	})
}

// close ends the front first, so that no request meets a node that is going.
func (s *llamaService) close(ctx context.Context) error {
	s.drain(ctx)
	return s.node.Close()
}
