package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"meridian/agent/config"
	"meridian/agent/engine"
	"meridian/agent/openers"
	"meridian/agent/transfer"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/spaces"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/internal/loglimit"
	"meridian/scheduler"
	"meridian/wire"
)

// Options are what a configuration file cannot say.
type Options struct {
	Log *slog.Logger // nil: discarded
	// LogLost is how many lines of Log could not be written; nil: it is not known,
	// and reported as 0.
	LogLost func() uint64
	// Level is the logger's, for SIGHUP to change; may be nil.
	Level *slog.LevelVar
	// Reload reads the configuration again, for SIGHUP and the admin API; nil: it
	// cannot. It warns as the start did.
	Reload func() (*config.Config, []config.Warning, error)
	// Fabrics are added to the daemon's own under their names. They stay the
	// caller's, who closes them after Close: two daemons in one process share a
	// synthetic fabric through it.
	Fabrics map[string]fabric.Fabric
	// Openers open kinds of fabrics that are not in this build, for the tables
	// [fabric.NAME] that name them. config.Load gets their keys by openers.Kinds.
	Openers []openers.Opener
	// Version of the program, as status and metrics show it.
	Version string
}

// Agent is one running daemon.
type Agent struct {
	cfg     *config.Config
	opt     Options
	id      identity
	log     *slog.Logger
	started time.Time
	tracer  trace.Tracer
	traces  traces

	store   *blocks.Store
	spaces  *spaces.Registry
	windows *window.Table
	engines *engine.Server
	fabrics fabric.Registry
	routes  *fabric.Routes
	added   atomic.Int64 // of the routes: the first ones, which no file has
	mover   *transfer.Mover

	metrics   *metrics
	moved     movedBytes
	checksums atomic.Uint64
	live      live
	running   atomic.Pointer[config.Config] // in force: cfg, which is that of the start, with what reloads took over
	reloading chan struct{}                 // has an entry while a reload runs
	selftest  *selfTest
	quota     quota.Book // of what the rooms hand out but the arena's bytes

	admin *adminEndpoint
	http  *httpEndpoint
	llama atomic.Pointer[llamaService] // nil without [llama]; set while the endpoints serve already

	portsMu sync.Mutex // the admin API serves while http is still to be bound
	ports   []port

	run    context.Context // ends when the daemon stops
	stop   context.CancelFunc
	wg     sync.WaitGroup
	drain  atomic.Int32 // drainState
	closed sync.Once
}

// port is one address that the daemon listens on.
type port struct{ Kind, Address string }

// Start assembles a daemon and brings it up. On an error nothing is left
// running.
func Start(ctx context.Context, cfg *config.Config, opt Options) (_ *Agent, err error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.LogLost == nil {
		opt.LogLost = func() uint64 { return 0 }
	}
	a := &Agent{cfg: cfg, opt: opt, started: time.Now(), selftest: newSelfTest(), reloading: make(chan struct{}, 1)}
	a.setQuotas(cfg.Quota)
	a.live.set(cfg.Agent)
	a.running.Store(cfg)
	a.run, a.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = a.Close()
		}
	}()
	a.id, err = newIdentity(cfg.Agent, a.started)
	if err != nil {
		return nil, err
	}
	a.log = loglimit.Logger(opt.Log, cfg.Quota.LogLines).With("agent", a.id.name)
	a.metrics = newMetrics(opt.Version, strconv.Itoa(wire.Version))
	for _, step := range []func(context.Context) error{a.openTraces, a.openStore, a.openNamespaces, a.openRoutes, a.openFabrics, a.openEngines, a.openEndpoints, a.openLlama} {
		if err = errors.Join(ctx.Err(), step(ctx)); err != nil {
			return nil, err
		}
	}
	a.zeroSeries()
	a.background(a.housekeep)
	a.background(a.prepareMemory)
	a.background(func(ctx context.Context) { a.selftest.run(ctx, a) })
	a.background(func(ctx context.Context) { watchdog(ctx, a.alive) })
	a.log.Info("started", a.startedAttrs()...)
	return a, nil
}

// startedAttrs say who the daemon is and where it listens, each port under its kind.
func (a *Agent) startedAttrs() []any {
	attrs := []any{"id", fmt.Sprintf("%x", a.id.agent), "incarnation", a.id.incarnation, "capacity_bytes", a.cfg.KVMemory.Capacity}
	if note := a.cfg.KVMemory.CapacityNote; note != "" {
		attrs = append(attrs, "capacity_note", note)
	}
	var kinds []string
	of := map[string][]string{}
	for _, p := range a.listening() {
		if of[p.Kind] == nil {
			kinds = append(kinds, p.Kind)
		}
		of[p.Kind] = append(of[p.Kind], p.Address)
	}
	for _, k := range kinds {
		attrs = append(attrs, k, strings.Join(of[k], ","))
	}
	return attrs
}

func (a *Agent) openStore(context.Context) (err error) {
	rings := quota.Share(a.cfg.KVMemory.Capacity, a.cfg.Quota.Staging)
	a.store, err = blocks.Open(blocks.Config{
		StagingBytes: rings, StagingAhead: min(a.cfg.Engine.Staging, rings/2),
		Capacity: a.cfg.KVMemory.Capacity, ExtentBytes: extentFor(a.cfg.Arena.Extent, a.cfg.KVMemory.Capacity),
		ThinkFraction: a.cfg.KVMemory.ThinkPhaseMemoryFraction, Agent: a.id.agent, Incarnation: a.id.incarnation,
		HoldBytes: a.cfg.Arena.Hold, VerifyAlways: a.cfg.Arena.Verify == "always",
		Ahead: a.cfg.Arena.Ahead, HostFree: func() uint64 { return config.HostMemory().Left() },
		Shares: sharesOf(a.cfg.Quota),
	})
	if err != nil {
		return fmt.Errorf("arena: %w", err)
	}
	a.spaces = spaces.Over(a.store, &a.quota)
	a.windows = window.New(a.store, func() time.Duration { return time.Since(a.started) }, a.cfg.Arena.Windows, &a.quota)
	a.metrics.reg.MustRegister(&collector{a})
	return nil
}

// extentFor keeps an arena that is smaller than a few extents usable by more
// than one size class: then the store's own default for that size is taken.
func extentFor(extent, capacity uint64) uint64 {
	if capacity < 8*extent {
		return 0
	}
	return extent
}

func (a *Agent) openEngines(context.Context) (err error) {
	known, err := scheduler.NewModels(a.models())
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	a.engines, err = engine.Listen(engine.Config{
		Path: a.cfg.Engine.Socket, UIDs: a.uids(), Tenants: a.cfg.Security.Tenants,
		Agent: a.id.agent, Incarnation: a.id.incarnation,
		Store: a.store, Host: host{a}, Observer: engineObserver{a}, Log: a.log,
		Scheduler: scheduler.Config{Models: known, MaxThink: a.cfg.Scheduler.MaxThinkTokens, OffloadThreshold: a.offloadThreshold()},
		Stored:    a.storedHook(),
		Quota:     &a.quota,
		Limits:    engine.Limits{Sessions: a.cfg.Engine.MaxSessions, GroupSessions: a.cfg.Engine.MaxGroupSessions, MaxPin: a.cfg.Engine.MaxPin, ParkedLoads: a.cfg.Engine.MaxParkedLoads, ParkedItems: a.cfg.Engine.MaxParkedBlocks, StagingBytes: int(a.cfg.Engine.Staging)},
	})
	if err != nil {
		return err
	}
	a.addPort("engine", "unix://"+a.cfg.Engine.Socket)
	a.background(func(context.Context) {
		if err := a.engines.Serve(); !errors.Is(err, engine.ErrClosed) {
			a.log.Error("engine socket ended", "err", err)
		}
	})
	return nil
}

// models are those of the configuration.
func (a *Agent) models() []scheduler.Model {
	models := make([]scheduler.Model, 0, len(a.cfg.Models))
	for _, m := range a.cfg.Models {
		models = append(models, scheduler.Model{Name: m.Name, Start: m.ThinkStart, End: m.ThinkEnd, Space: m.ThinkSpace, KeepsThinking: m.KeepsThinking})
	}
	return models
}

// offloadThreshold is how many cold blocks the scheduler hands over at a time; 0
// is none at all. Eviction waits for no batch and needs no fabric.
func (a *Agent) offloadThreshold() int {
	switch {
	case a.cfg.KVMemory.AggressiveThinkEviction:
		return 1
	case a.cfg.Disagg.Enabled:
		return int(a.cfg.Disagg.OffloadThresholdBlocks)
	}
	return 0
}

// uids are those that may use the engine socket: the daemon's own and the
// config's.
func (a *Agent) uids() []uint32 { return append([]uint32{uint32(os.Getuid())}, a.cfg.Security.UIDs...) }

// background runs f until the daemon stops; Close waits for it.
func (a *Agent) background(f func(ctx context.Context)) {
	a.wg.Go(func() { f(a.run) })
}

// housekeep steps the store and the windows when a lease, a reservation or a window
// is due.
func (a *Agent) housekeep(ctx context.Context) {
	t := time.NewTicker(storeTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			a.windows.Step()
			r := a.store.Step(blocks.Input{})
			for _, e := range r.Evicted {
				if e.Live {
					a.logLimited(slog.LevelWarn, "evict.live", "an OutputCritical block of a running request was evicted", "slot", e.Ref.Slot)
				}
			}
			for range r.Aged {
				a.logLimited(slog.LevelWarn, "lease.aged", "a hold lease outlived its time")
			}
		}
	}
}

// prepareMemory keeps the arena's memory ahead of its use.
func (a *Agent) prepareMemory(ctx context.Context) {
	t := time.NewTicker(prepareTick)
	defer t.Stop()
	for ctx.Err() == nil {
		more, err := a.store.Prepare()
		if err != nil {
			a.logLimited(slog.LevelWarn, "arena.ahead", "no memory can be made ready for the arena ahead of its use", "err", err)
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
		case <-a.store.PrepareSoon():
		case <-t.C:
		}
	}
}

// prepareTick is how often the host's free memory is looked at, and how long the
// kernel has between two refusals.
const prepareTick = time.Second

// storeTick is how late a lapsed lease may be noticed when nothing else
// touches the store; Acquire and Reserve notice at once.
const storeTick = 100 * time.Millisecond

// Identity returns the daemon's name, id and incarnation.
func (a *Agent) Identity() (name string, id [16]byte, incarnation uint64) {
	return a.id.name, a.id.agent, a.id.incarnation
}

// Ports maps what the daemon listens on to the addresses really bound:
// engine, admin, http, and each fabric that serves.
func (a *Agent) Ports() map[string][]string {
	out := map[string][]string{}
	for _, p := range a.listening() {
		out[p.Kind] = append(out[p.Kind], p.Address)
	}
	return out
}

func (a *Agent) addPort(kind, address string) {
	a.portsMu.Lock()
	defer a.portsMu.Unlock()
	a.ports = append(a.ports, port{kind, address})
}

func (a *Agent) listening() []port {
	a.portsMu.Lock()
	defer a.portsMu.Unlock()
	return slices.Clone(a.ports)
}

type drainState int32

const (
	serving drainState = iota
	draining
	drained
)

// Drain announces the leave to engines, and to peers once they have pulled what is
// pinned for them, refuses new work, and lets what runs end until ctx ends: engines'
// requests too, which may still ask peers. Close follows.
func (a *Agent) Drain(ctx context.Context) error {
	if !a.drain.CompareAndSwap(int32(serving), int32(draining)) {
		return nil
	}
	_ = notify("STOPPING=1")
	a.log.Info("draining")
	var wg sync.WaitGroup
	wg.Go(func() {
		a.waitPulled(ctx)
		var all sync.WaitGroup
		for _, s := range a.servers() {
			all.Go(func() { s.Drain(ctx) })
		}
		all.Wait()
	})
	if f := a.llama.Load(); f != nil {
		f.drain(ctx) // its node is an engine, whose requests end with the front's
	}
	err := a.engines.Drain(ctx)
	wg.Wait()
	a.mover.Forwarded(ctx) // what peers were told is here goes on
	a.drain.Store(int32(drained))
	return err
}

// Close stops everything at once and waits until it has stopped. Memory that a
// fabric may still touch is not unmapped: the error then says so.
func (a *Agent) Close() error {
	var err error
	a.closed.Do(func() {
		err = a.close()
		if a.log != nil { // else Start failed before it
			a.log.Handler().(*loglimit.Handler).Flush()
		}
	})
	return err
}

func (a *Agent) close() (err error) {
	a.stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if f := a.llama.Load(); f != nil {
		err = errors.Join(err, f.close(ctx))
	}
	if a.admin != nil {
		a.admin.close()
	}
	if a.engines != nil {
		err = errors.Join(err, a.engines.Close())
	}
	for _, s := range a.servers() {
		err = errors.Join(err, s.Close()) // before the mover waits for calls: they end with it
	}
	if a.http != nil {
		a.http.close(ctx)
	}
	a.wg.Wait()
	var loose error
	if a.mover != nil {
		letGo, cancel := context.WithTimeout(context.Background(), closeTimeout) // whatever came before has taken
		defer cancel()
		loose = a.mover.Close(letGo)
	}
	a.traces.close()
	for name := range a.opt.Fabrics {
		a.fabrics.Remove(name) // the caller closes it
	}
	err = errors.Join(err, loose, a.fabrics.Close())
	if a.store != nil && loose == nil {
		err = errors.Join(err, a.store.Close())
	}
	return err
}

// closeTimeout bounds the wait for scrapes that run at Close and for fabrics that
// are not quiet.
const closeTimeout = 2 * time.Second

// alive says whether the store answers: a daemon whose store is stuck shall be
// restarted by the watchdog.
func (a *Agent) alive() bool {
	a.store.Stats()
	return true
}
