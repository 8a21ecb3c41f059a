package transfer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/wire"
)

var _ Store = (*blocks.Store)(nil)

// Store is what the room needs of *blocks.Store.
type Store interface {
	NewOwner(pid int) blocks.Owner
	NewOwnerFor(who quota.Holder, pid int) blocks.Owner
	Peek(ns wire.Namespace, keys []wire.Key, v []blocks.View)
	Touch(ns wire.Namespace, chain []wire.Key) int
	ReserveTier(o blocks.Owner, ns wire.Namespace, t wire.Tier, size []uint32, ttl time.Duration) ([]blocks.View, error)
	Room(v blocks.View) []byte
	Commit(o blocks.Owner, c []blocks.Commit)
	Abort(o blocks.Owner, slots []uint32)
	Loose(slots []uint32) (quiet func())
	Acquire(o blocks.Owner, v []blocks.View, ttl time.Duration, hold bool) (blocks.Lease, error)
	Release(o blocks.Owner, l blocks.Lease)
	Payload(v blocks.View) []byte
	Moved(m []blocks.Moved)
}

// Observer hears what a metrics registry wants to count. Calls come from the data
// path's goroutines, several at a time, and must not block.
type Observer interface {
	// Transferred is a call on a fabric that has ended.
	Transferred(r Record)
	// Moved are body bytes of it, by the transport really used.
	Moved(fabric, via string, in bool, bytes uint64)
	// Failed is a block or request that did not make it, by code.
	Failed(code wire.Code)
	// ChecksumFailed is a body that a fabric delivered wrong. None was served.
	ChecksumFailed(fabric string)
	// Refused is work that was turned away because a queue or a share is full.
	Refused(code wire.Code)
	// FellBack is a block that took another fabric than the one its route prefers.
	FellBack(wanted, used string)
	// Offloaded is a cold block that a fabric acknowledged.
	Offloaded(fabric string, bytes uint64)
	// Attempted is a block that was pushed once, on its way from one fabric to another.
	Attempted(from, to string, code wire.Code)
	// Bridged is what became of a block that was to go on from one fabric to another;
	// bytes of its body, where it was forwarded.
	Bridged(from, to string, what BridgeOutcome, bytes uint64)
	// CutThrough is what became of a block that was to go on while it came.
	CutThrough(from, to string, what CutOutcome)
	// Looked is a block that a peer of a fabric asked for and that was looked for
	// elsewhere: OK, or why it was not had.
	Looked(by string, code wire.Code)
	// Slow is a holder that kept a load waiting for longer than it may.
	Slow(fabric string)
}

// Config is read once by New.
type Config struct {
	Store    Store
	Fabrics  *fabric.Registry
	Routes   *fabric.Routes
	Observer Observer
	Tracer   trace.Tracer // nil: none
	// Log writes at most one record of a kind in a while; nil: none.
	Log func(level slog.Level, kind, msg string, args ...any)
	// FindWithin is how long a load waits for a holder to say what it has; 0: 250 ms.
	FindWithin time.Duration
	// LoadBytes bounds the reserved bytes of all loads together, but for one batch
	// a load; 0: 256 MiB.
	LoadBytes uint64
	// BridgeBytes bounds what waits to be sent on; 0: 64 MiB.
	BridgeBytes uint64
	// CutBytes is from what size on a block goes on while it comes, where its destination
	// can hold it back until it is checked; 0: none does.
	CutBytes uint64
	// LookWithin is how long a peer's question for a block that is not here is passed
	// on; 0: 2 s.
	LookWithin time.Duration
}

// The defaults of Config.
const (
	DefaultFindWithin = 250 * time.Millisecond
	DefaultLoadBytes  = 256 << 20

	DefaultBridgeBytes = 64 << 20
	DefaultLookWithin  = 2 * time.Second
)

// Mover is the room: see the package's documentation.
type Mover struct {
	cfg         Config
	bridgeOwner blocks.Owner // of what waits to be sent on
	owner       blocks.Owner // of shared loads and of pins: they outlive the engine that asked
	ctx         context.Context
	stop        context.CancelFunc
	wg          sync.WaitGroup

	Log Log // of transfers

	flights  flights
	askers   askers
	hinted   hintCounts
	slow     slowHolders
	offloads offloads
	bridge   bridge
	looks    looks
	quiet    quarantine
	reserved atomic.Int64 // bytes of the loads' batches
}

// New starts nothing: goroutines come with the work.
func New(cfg Config) *Mover {
	cfg.FindWithin = cmp.Or(cfg.FindWithin, DefaultFindWithin)
	cfg.LoadBytes = cmp.Or(cfg.LoadBytes, DefaultLoadBytes)
	cfg.BridgeBytes = cmp.Or(cfg.BridgeBytes, DefaultBridgeBytes)
	cfg.LookWithin = cmp.Or(cfg.LookWithin, DefaultLookWithin)
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.Log == nil {
		cfg.Log = func(slog.Level, string, string, ...any) {}
	}
	m := &Mover{cfg: cfg, owner: cfg.Store.NewOwner(0), bridgeOwner: cfg.Store.NewOwner(0)}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Close ends what runs and waits until it has ended, or ctx has. The error says
// that a fabric may still touch the arena: the memory must then stay mapped.
func (m *Mover) Close(ctx context.Context) error {
	m.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.wg.Wait()
	}()
	select {
	case <-ended:
		return m.settleQuarantine(ctx)
	case <-ctx.Done():
		return fmt.Errorf("a call on a fabric has not ended: %w", ctx.Err())
	}
}

// bound makes a call end with the room as well as with its own context.
func (m *Mover) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(m.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// take counts n bytes of a batch against LoadBytes; force takes them in any case.
func (m *Mover) take(n uint64, force bool) bool {
	for {
		have := m.reserved.Load()
		if have+int64(n) > int64(m.cfg.LoadBytes) && !force {
			return false
		}
		if m.reserved.CompareAndSwap(have, have+int64(n)) {
			return true
		}
	}
}

func (m *Mover) give(n uint64) { m.reserved.Add(-int64(n)) }

// gaveUp says whether a load ended because of who asked, not of what was asked.
func gaveUp(err error) bool {
	c := wire.CodeOf(err)
	return c == wire.CodeCancelled || c == wire.CodeDeadline
}
