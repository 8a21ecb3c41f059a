package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/internal/door"
	"meridian/wire"
)

// Bounds of a relay. Those of a request are of package engine.
const (
	connectTime = 5 * time.Second
	lookTime    = 5 * time.Second  // for the target's descriptor
	lookEvery   = 5 * time.Second  // and once a lane is lost
	lookPause   = time.Second      // between looks that wrong requests cause
	waitTime    = 10 * time.Second // for a place among what is carried
	askTime     = 5 * time.Second  // for a probe or a notify at the target

	pieceLen = 256 << 10 // bytes of a body that are in memory
	partLen  = 1 << 20   // bytes of a body for which a side has engine.ProgressTime
)

var pieceMemory = sync.Pool{New: func() any { return new([pieceLen]byte) }}

// Config is what a Relay needs.
type Config struct {
	Label  string // of the fabric
	Peer   string // what the target is called here
	Target string // the name of its segment

	Server  string // metadata server as engines take it; metadata.P2P
	Cluster string // MC_METADATA_CLUSTER_ID of the engines
	Segment string // the relay's name on the metadata server; "": HOST:PORT of the handshake
	Epoch   uint64 // of this start: grows with each; for the metadata server

	Listen    string // HOST:PORT of the handshake
	Data      Ports  // of the data plane
	Advertise string // host that sources connect to; "": that of Listen

	Sources []Source       // who may connect, besides this host
	Reach   []netip.Prefix // where the target may be, besides the host that Target names
	Here    bool           // it may be on this host: the metadata server is too

	// Doors has the shares of connections, of memory for what is carried, and of probes and
	// notifies at the target. nil: there are no limits.
	Doors *door.Common

	Log *slog.Logger // nil: nothing is logged
	// Refused hears of each connection and request that was turned away. named: the
	// source has a name of the configuration. It must not block.
	Refused func(source string, named bool, err error)
}

// Relay carries requests of sources to the target.
type Relay struct {
	cfg     Config
	allowed sync.RWMutex // guards the next three, which SetSources changes
	sources []Source
	names   []string // of counts, in the order of the configuration
	counts  map[string]*counts
	plane   metadata.Plane
	client  *handshake.Client
	connect metadata.Dialer // to the target's data plane
	daemon  *handshake.Server
	at      netip.AddrPort // of the handshake
	target  target
	path    *way
	pieces  *door.Shares // bytes
	asks    *door.Shares
	active  atomic.Int64 // requests and notifies under way
	carries atomic.Int64 // requests that have a piece of memory
	drains  atomic.Bool
	lost    chan struct{} // the target may be another one now

	shown     atomic.Pointer[metadata.Node]      // what the metadata server is to have
	publisher atomic.Pointer[metadata.Publisher] // nil: there is no server, or nothing to show

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
}

// New opens the relay's handshake. The target may come later: until then nobody is
// answered.
func New(ctx context.Context, cfg Config) (*Relay, error) {
	if cfg.Server == metadata.P2P {
		if _, _, err := segment.SplitName(cfg.Target); err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
	}
	r := prepare(ctx, cfg)
	var err error
	if r.plane, err = metadata.Open(metadata.Config{Server: cfg.Server, Cluster: cfg.Cluster, Dial: r.dial, Peers: r.client}); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	if err := cfg.Data.try(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("data: %w", err), r.Close())
	}
	if r.at, err = r.daemon.Listen(ctx, cfg.Listen); err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), r.Close())
	}
	r.running.Go(r.watch)
	return r, nil
}

// prepare makes a relay that listens nowhere and has no plane.
func prepare(ctx context.Context, cfg Config) *Relay {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Relay{
		cfg: cfg, lost: make(chan struct{}, 1),
		pieces: cfg.Doors.Of(quota.RelayBytes), asks: cfg.Doors.Of(quota.RelayCalls),
		target: target{looking: make(chan struct{}, 1), used: map[uint16]bool{}, err: errNotYet},
	}
	r.path = &way{r}
	r.allow(cfg.Sources)
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.connect = r.dial
	r.client = &handshake.Client{Dial: r.dial}
	r.daemon = handshake.NewServer(handshake.Config{Descriptor: r.descriptor, Notified: r.notified, Asked: r.asked, Admit: r.admit, Refused: r.refused, Doors: cfg.Doors})
	return r
}

// Close ends all connections, and returns when nothing is carried any more. It may be
// called again.
func (r *Relay) Close() (err error) {
	r.closing.Do(func() {
		r.cancel()
		r.daemon.Close()
		r.target.looking <- struct{}{} // and never back: no life begins any more
		r.unpublish()
		r.running.Wait()
		if now, _ := r.target.current(); now != nil {
			now.end()
		}
		err = r.plane.Close()
	})
	return err
}

// unreachable is a target that is not there.
func unreachable(step string, err error) error {
	if err == nil {
		return fmt.Errorf("mooncake relay: the target: %s: %w", step, wire.CodeUnreachable)
	}
	if code := wire.CodeOf(err); code == wire.CodeDenied {
		return fmt.Errorf("mooncake relay: the target: %s: %w", step, err)
	}
	return fmt.Errorf("mooncake relay: the target: %s: %w: %w", step, wire.CodeUnreachable, err)
}

func (r *Relay) ourHost() string {
	if r.cfg.Advertise != "" {
		return r.cfg.Advertise
	}
	return r.at.Addr().String()
}

// Name is that of the relay's segment: what sources open.
func (r *Relay) Name() string {
	if r.cfg.Segment != "" {
		return r.cfg.Segment
	}
	return segment.Name(r.ourHost(), r.at.Port())
}

// publish has the metadata server show the mirror of a life as it is now.
func (r *Relay) publish(l *life) {
	if r.cfg.Server == metadata.P2P {
		return
	}
	r.shown.Store(&metadata.Node{
		At:      metadata.Endpoint{Host: r.ourHost(), Port: r.at.Port(), Epoch: r.cfg.Epoch},
		Segment: l.mirror(r.Name(), r.ourHost()),
	})
	if p := r.publisher.Load(); p != nil {
		p.Again()
		return
	}
	r.publisher.Store(metadata.Keep(r.ctx, r.plane, r.cfg.Log, time.After, func() metadata.Node { return *r.shown.Load() }))
}

// unpublish takes the relay's name back.
func (r *Relay) unpublish() {
	if p := r.publisher.Load(); p != nil {
		p.Close()
	}
}

// asked looks at the target before the relay answers in its place.
func (r *Relay) asked(c *door.Conn, t handshake.Type) error {
	if t != handshake.TypeProbe {
		_, err := r.look(r.ctx)
		return err
	}
	return r.atTarget(c, r.client.Probe)
}

// notified hands a notify on. The target's answer is the source's.
func (r *Relay) notified(c *door.Conn, n handshake.Notify) error {
	err := r.atTarget(c, func(ctx context.Context, name string) error { return r.client.Notify(ctx, name, n) })
	if err == nil {
		r.of(c.Peer).add(func(n *fabric.Relayed) { n.Notifies++ })
	}
	return err
}

// atTarget makes a call to the target's handshake for a source.
func (r *Relay) atTarget(c *door.Conn, call func(ctx context.Context, name string) error) error {
	if r.drains.Load() {
		return fmt.Errorf("mooncake relay: a probe or a notify: %w", wire.CodeDraining)
	}
	r.active.Add(1)
	defer r.active.Add(-1)
	share, err := r.asks.Wait(c, 1, waitTime)
	if err != nil {
		return fmt.Errorf("mooncake relay: a probe or a notify: %w", err)
	}
	defer share.Give()
	return r.ask(call)
}

// ask makes a call to the target's handshake.
func (r *Relay) ask(call func(ctx context.Context, name string) error) error {
	ctx, cancel := context.WithTimeout(r.ctx, askTime)
	defer cancel()
	at, err := r.plane.Endpoint(ctx, r.cfg.Target)
	if err != nil {
		return unreachable("where it answers handshakes", err)
	}
	return call(ctx, segment.Name(at.Host, at.Port))
}

// descriptor is the mirror. A target that went since asked has nothing to show.
func (r *Relay) descriptor(string) segment.Descriptor {
	if now, _ := r.target.current(); now != nil {
		return now.mirror(r.Name(), r.ourHost())
	}
	return segment.Descriptor{Name: r.Name(), Protocols: []string{segment.TCP}}
}
