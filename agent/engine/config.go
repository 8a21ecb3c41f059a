package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/internal/socketfile"
	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// Host is the rest of the daemon, as an engine's session needs it. Calls may run
// at the same time.
type Host interface {
	// OpenNamespace makes the manifest's namespace known to the store, for an engine
	// that has it open until it calls close. An error that is a *wire.GeometryError
	// tells the engine the field and both values.
	OpenNamespace(engine quota.Holder, m wire.Manifest) (ns wire.Namespace, close func(), err error)
	// Fetch pulls blocks that are not here from other holders and publishes them
	// (transient: only for f.Owner). One error a key. It returns soon after ctx ends,
	// and touches no memory reserved for the owner afterwards.
	Fetch(ctx context.Context, f Fetch) []error
	// TakeTurn is called by a session for each request that will fetch, in the order in
	// which they came; tickets rise with it. The turn ends with Leave.
	TakeTurn(session, ticket uint64) Turn
	// FindRemote asks other holders, or one alone; one entry a key, ABSENT where nobody
	// has it. A holder that is no configured peer is not asked. INCARNATION: the holder has
	// started anew, so what it was named for never comes; Fetch's error matches it then.
	FindRemote(ctx context.Context, ns wire.Namespace, at Holder, keys []wire.Key) []link.Have
	// Offload is told which think blocks went cold. It returns at once and keeps
	// no reference to keys.
	Offload(ns wire.Namespace, keys []wire.Key)
}

// Observer is told what happened, from the goroutine where it did. It returns at
// once.
type Observer interface {
	// Request ended: code is that of END, d from its arrival to its answer.
	Request(t link.Type, items int, d time.Duration, code wire.Code)
	// Refused is a connection that was closed with ERROR.
	Refused(code wire.Code)
	// Phase is an event of a session's scheduler. Inject must not be kept.
	Phase(e scheduler.Event)
}

// Limits bound what engines may take. A zero value takes the default.
type Limits struct {
	Sessions      int           // engines that have opened a namespace, at a time; default 64
	GroupSessions int           // of one engine; default 40
	Reqs          int           // requests in flight a session; default and at most link.MaxReqs
	Items         int           // items of a batch; default and at most link.MaxItems
	StagingBytes  int           // of a session's staging ring; default 64 MiB
	Namespaces    int           // open an engine; default and at most link.MaxNamespaces
	Blocks        int           // blocks of running requests an engine; default 1<<18
	MaxPin        time.Duration // that a block is pinned for, at most; default 1 minute
	ParkedLoads   int           // LOADs of an engine that wait for blocks; default 10,000
	ParkedItems   int           // blocks that they wait for; default 1<<18
	FrameTime     time.Duration // a frame that has begun is whole by then, or the session ends; default link.FrameStall
	SendTimeout   time.Duration // an engine that has not taken all that one write sends by then is dropped; default 5 s
}

// Defaults of Limits.
const (
	DefaultSessions      = 64
	DefaultGroupSessions = 40 // a scheduler and the ranks of TP 8 with PP 4
	DefaultStagingBytes  = 64 << 20
	DefaultBlocks        = 1 << 18
	DefaultMaxPin        = time.Minute
	DefaultParkedLoads   = 10_000
	DefaultParkedItems   = 1 << 18
	DefaultSendTimeout   = 5 * time.Second
)

// Config is what Listen needs.
type Config struct {
	Path    string   // of the socket; the file gets mode 0600, or 0666 where UIDs names others
	UIDs    []uint32 // users that may connect; empty: the daemon's own
	Tenants []string // that local engines may use; empty: none

	Agent       [16]byte // of HELLO
	Incarnation uint64   // of HELLO

	Store *blocks.Store
	Host  Host
	// Process is who connected a socket, whose process number is pid. It is called before the
	// first byte is read. Default: blocks.PeerProcess.
	Process   func(socket, pid int) (blocks.Process, error)
	Scheduler scheduler.Config // of each session's core
	Limits    Limits
	// Stored is told which OutputCritical blocks a PUT has published, before it is
	// answered; nil: nobody. Every PUT then has a goroutine of its own.
	Stored func(ctx context.Context, ns wire.Namespace, keys []wire.Key)
	// Quota counts connections that have opened nothing yet, by user. Default: one of
	// the server's own with the limit of the protocol.
	Quota    *quota.Book
	Log      *slog.Logger // nil: discarded. How many lines engines can cause is bounded there
	Observer Observer     // nil: nobody
}

// ConfigError names the field of Config that cannot be. It matches
// wire.CodeConfig.
type ConfigError struct{ Field, Text string }

// Error names the field.
func (e *ConfigError) Error() string { return fmt.Sprintf("engine: %s: %s", e.Field, e.Text) }

// Unwrap makes the error match wire.CodeConfig.
func (e *ConfigError) Unwrap() error { return wire.CodeConfig }

func (l *Limits) fill() {
	orDefault := func(v *int, def, most int) {
		if *v <= 0 {
			*v = def
		}
		*v = min(*v, most)
	}
	orDefault(&l.Sessions, DefaultSessions, 1<<16)
	orDefault(&l.GroupSessions, DefaultGroupSessions, 1<<16)
	orDefault(&l.Reqs, link.MaxReqs, link.MaxReqs)
	orDefault(&l.Items, link.MaxItems, link.MaxItems)
	orDefault(&l.StagingBytes, DefaultStagingBytes, 1<<40)
	orDefault(&l.Namespaces, link.MaxNamespaces, link.MaxNamespaces)
	orDefault(&l.Blocks, DefaultBlocks, 1<<30)
	if l.MaxPin <= 0 {
		l.MaxPin = DefaultMaxPin
	}
	orDefault(&l.ParkedLoads, DefaultParkedLoads, 1<<24)
	orDefault(&l.ParkedItems, DefaultParkedItems, 1<<28)
	if l.FrameTime <= 0 {
		l.FrameTime = link.FrameStall
	}
	if l.SendTimeout <= 0 {
		l.SendTimeout = DefaultSendTimeout
	}
}

func (c *Config) check() error {
	switch {
	case c.Path == "":
		return &ConfigError{"Path", "is empty"}
	case len(c.Path) > socketfile.MaxPath:
		return &ConfigError{"Path", fmt.Sprintf("%q has %d bytes, a Unix socket's path has at most %d", c.Path, len(c.Path), socketfile.MaxPath)}
	case c.Store == nil:
		return &ConfigError{"Store", "is nil"}
	case c.Host == nil:
		return &ConfigError{"Host", "is nil"}
	}
	return nil
}
