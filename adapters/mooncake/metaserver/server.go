package metaserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"meridian/adapters/mooncake/metadata"
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/halfopen"
	"meridian/internal/httpguard"
	"meridian/internal/loglimit"
)

// Config of a server.
type Config struct {
	Listen string         // host:port
	Allow  []netip.Prefix // who may use it besides this host
	Hosts  []string       // names by which it is called, besides addresses
	Quota  *quota.Book    // what one source and all may have
	Log    *slog.Logger   // nil: none
	Table  string         // the configuration's table, for refusals that name a key

	Clock func() time.Duration // monotonic; nil: the system's

	// Refused hears of each connection and request that is refused, with its code;
	// nil: nobody. A key that is not there is no refusal.
	Refused func(err error)
}

// Times of a connection, and how many owners are asked at a time.
const (
	readWait     = 5 * time.Second
	writeWait    = 5 * time.Second
	idleWait     = time.Minute
	roundEvery   = time.Second
	asksAtATime  = 64
	asksASource  = 8 // for requests of one source, at a time
	maxHeader    = 16 << 10
	maxTakeovers = 2 // owners that are asked for one request
)

// Server is a metadata server. Its methods may be called at the same time.
type Server struct {
	cfg     Config
	http    *http.Server
	ln      net.Listener
	own     func(netip.Addr) bool // an address of this host
	conns   halfopen.Table
	stop    context.CancelFunc
	running sync.WaitGroup

	allow door.Ranges

	mu     sync.Mutex
	table  *table
	seen   counts
	asking map[string]int // questions for requests under way, by source; "" has all
}

// Listen starts a server. It has at most the time of ctx to begin.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Refused == nil {
		cfg.Refused = func(error) {}
	}
	if cfg.Clock == nil {
		began := time.Now()
		cfg.Clock = func() time.Duration { return time.Since(began) }
	}
	guard, err := httpguard.New(httpguard.Config{Hosts: append([]string{cfg.Listen}, cfg.Hosts...), HostsKey: cfg.Table + ".metadata_hosts"})
	if err != nil {
		return nil, fmt.Errorf("%s.%w", cfg.Table, err)
	}
	s := &Server{cfg: cfg, table: newTable(cfg.Quota), asking: map[string]int{}, own: ownAddress}
	s.allow.Set(cfg.Allow)
	var lc net.ListenConfig
	if s.ln, err = lc.Listen(ctx, "tcp", cfg.Listen); err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler: guard.Wrap(http.HandlerFunc(s.serve)), ErrorLog: slog.NewLogLogger(loglimit.Server(cfg.Log.Handler()), slog.LevelWarn),
		ReadTimeout: readWait, WriteTimeout: readWait + writeWait, IdleTimeout: idleWait, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, guestKey{}, c)
		},
	}
	bg, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = cancel
	s.running.Go(func() {
		if err := s.http.Serve(&guestListener{Listener: s.ln, server: s}); !errors.Is(err, http.ErrServerClosed) {
			cfg.Log.Error("metadata server ended", "err", err)
		}
	})
	s.running.Go(func() { s.watch(bg) })
	return s, nil
}

// Address is where it listens.
func (s *Server) Address() string { return s.ln.Addr().String() }

// Close ends all connections and waits for what runs.
func (s *Server) Close() error {
	s.stop()
	err := s.http.Close()
	s.running.Wait()
	return err
}

func (s *Server) listed(a netip.Addr) bool {
	return s.allow.Has(a.Unmap().WithZone(""))
}

// SetAllow changes who may use the server, also by connections that are open, and where it
// may ask owners. Entries stay.
func (s *Server) SetAllow(list []netip.Prefix) { s.allow.Set(list) }

// here says whether an address is of this host.
func (s *Server) here(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsLoopback() || s.own(a)
}

// ask asks an owner whether it lives, where who published it may have it asked.
func (s *Server) ask(ctx context.Context, q *Question) metadata.Outcome {
	dial := metadata.DialAllowed(func(a netip.Addr) bool { return s.mayAsk(q.from, a) })
	return metadata.Ask(ctx, dial, q.Addr)
}

// mayAsk says whether an address may be asked for a source. One of this host alone is
// only for who is on it: somebody elsewhere would have this server connect to, and tell
// of, what listens here for nobody else.
func (s *Server) mayAsk(source string, a netip.Addr) bool {
	return s.listed(a) && !a.Unmap().IsLoopback() || source == thisHost && s.here(a)
}

// ownAddress says whether a is an address of this host: an engine on it publishes
// that of the first interface, where nothing tells it otherwise.
func ownAddress(a netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(at net.Addr) bool {
		p, err := netip.ParsePrefix(at.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// watch asks owners whether they live until ctx ends.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.round(ctx)
		}
	}
}

// round asks the owners whose turn it is.
func (s *Server) round(ctx context.Context) {
	s.mu.Lock()
	due := s.table.due(s.cfg.Clock())
	s.mu.Unlock()
	answers := make([]metadata.Outcome, len(due))
	places := make(chan struct{}, asksAtATime)
	var asked sync.WaitGroup
	for i, q := range due {
		places <- struct{}{}
		asked.Go(func() {
			defer func() { <-places }()
			answers[i] = s.ask(ctx, &q)
		})
	}
	asked.Wait()
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Clock()
	alone := s.table.alone(now, answers)
	for i, q := range due {
		if s.table.heard(now, q, answers[i], alone) {
			s.cfg.Log.Warn("a Mooncake node is gone", "node", q.node.String(), "address", q.Addr, "because", "it "+answers[i].String())
		}
	}
}
