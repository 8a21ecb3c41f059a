package hub

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/internal/door"
	"meridian/internal/stranger"
)

// tickEvery is how often entries are looked at whose time is over.
const tickEvery = time.Second

// Config of a hub.
type Config struct {
	Label  string
	Listen string         // HOST:PORT
	Allow  []netip.Prefix // who may use it besides loopback
	Quota  *quota.Book    // entries and their bytes
	Doors  *door.Common   // connections, and bytes of requests that have not come whole
	Log    *slog.Logger
	Clock  func() time.Duration // monotonic; nil: the system's
	// Refused hears of each connection and request that is refused.
	Refused func(err error)
}

// Hub is a TCPStore for the metadata of NIXL agents. Its methods may be called at the same
// time.
type Hub struct {
	cfg                Config
	at                 string
	allow              door.Ranges
	door               *door.Door
	held               *door.Shares
	patience, takeover time.Duration // requestTime and takeoverTime
	stop               context.CancelFunc
	running            sync.WaitGroup

	refusals, requests atomic.Uint64

	mu    sync.Mutex
	table *table
	ended chan struct{} // closed when a connection ends, and made anew
}

// New makes a hub that does not listen yet.
func New(cfg Config) *Hub {
	if cfg.Clock == nil {
		began := time.Now()
		cfg.Clock = func() time.Duration { return time.Since(began) }
	}
	h := &Hub{cfg: cfg, table: newTable(cfg.Quota), held: cfg.Doors.Of(quota.HandshakeBytes), patience: requestTime, takeover: takeoverTime, ended: make(chan struct{}), stop: func() {}}
	h.allow.Set(cfg.Allow)
	h.door = door.New(door.Config{Places: cfg.Doors.Of(quota.MetadataConns), Admit: h.admit, Serve: h.serve, Refused: h.refused})
	return h
}

// Listen starts the hub.
func (h *Hub) Listen(ctx context.Context) error {
	at, err := h.door.Listen(ctx, h.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	h.at = at.String()
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	h.running.Go(func() {
		tick := time.NewTicker(tickEvery)
		defer tick.Stop()
		for {
			select {
			case <-life.Done():
				return
			case <-tick.C:
				h.expire()
			}
		}
	})
	return nil
}

// expire ends the entries of agents that are gone.
func (h *Hub) expire() {
	h.mu.Lock()
	gone := h.table.expire(h.cfg.Clock())
	h.mu.Unlock()
	for _, o := range gone {
		h.cfg.Log.Warn("nixl hub: an agent is gone, and its metadata with it", "nixl_agent", stranger.Text(o.agent), "labels", len(o.values), "was", o.was.from, "pid", o.was.pid)
	}
}

// SetAllow changes who may use the hub, also by connections that are open. What is not
// allowed any more loses its connection, and so its entries.
func (h *Hub) SetAllow(list []netip.Prefix) {
	h.allow.Set(list)
	h.door.Recheck()
}

// Entries implements fabric.MetadataServer.
func (h *Hub) Entries() []fabric.Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.table.entries()
}

// Close ends all connections and waits for what runs.
func (h *Hub) Close() error {
	h.door.Close()
	h.stop()
	h.running.Wait()
	return nil
}
