package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"meridian/adapters/mooncake/internal/reach"
	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

// Bounds and defaults of an initiator.
const (
	ConnectTime = 5 * time.Second
	StatusTime  = 30 * time.Second // for the status of a request, as Mooncake has it

	DefaultLanes = 4
	MaxLanes     = 16
	MaxSegments  = 1024 // that are known at a time

	// Bytes of a request; a longer operation is several requests. Two of the first are
	// under way at a time, which is measurably faster than one of twice the length. One
	// without acknowledgement needs a connection of its own.
	maxRequest = 512 << 10
	maxUnacked = 4 << 20
)

// Resolver finds a segment by its name: the handshake, or a metadata server. host is
// where its data connections go unless the descriptor says otherwise.
type Resolver interface {
	Get(ctx context.Context, name string) (d segment.Descriptor, host string, err error)
}

// InitiatorConfig is what an Initiator needs.
type InitiatorConfig struct {
	Resolver Resolver
	Lanes    int // connections to one peer; 0: DefaultLanes
	// Allow says where a descriptor may send data connections to besides the host that
	// Resolver gave; nil: nowhere.
	Allow func(netip.Addr) bool
	// Dial opens a connection, and looks itself where it goes; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Initiator reads and writes the memory of peers.
type Initiator struct {
	cfg InitiatorConfig

	mu     sync.Mutex
	closed bool
	known  map[string]*Segment
}

// NewInitiator makes one that knows no peer.
func NewInitiator(cfg InitiatorConfig) *Initiator {
	if cfg.Lanes <= 0 {
		cfg.Lanes = DefaultLanes
	}
	cfg.Lanes = min(cfg.Lanes, MaxLanes)
	return &Initiator{cfg: cfg, known: map[string]*Segment{}}
}

// Segment is a peer's memory. It is safe for concurrent use.
type Segment struct {
	Name string

	in   *Initiator
	busy chan struct{} // an entry for each lane that is in use

	mu    sync.Mutex
	desc  segment.Descriptor
	host  string // that the resolver gave
	addr  string // of data connections
	seen  uint64 // descriptors that differed in what reaches memory
	idle  []*lane
	rules uint64 // rises with each Recheck
	ended bool
}

// Open finds the segment, or gives the one that is known by the name.
func (i *Initiator) Open(ctx context.Context, name string) (*Segment, error) {
	i.mu.Lock()
	s := i.known[name]
	i.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s = &Segment{Name: name, in: i, busy: make(chan struct{}, i.cfg.Lanes)}
	if _, err := s.refresh(ctx); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch other := i.known[name]; {
	case i.closed:
		return nil, fmt.Errorf("mooncake: segment %s: the engine is closed: %w", name, wire.CodeUnreachable)
	case other != nil:
		return other, nil
	case len(i.known) >= MaxSegments:
		return nil, fmt.Errorf("mooncake: segment %s: %d segments are open, limit %d: %w", name, len(i.known), MaxSegments, wire.CodeTooMany)
	}
	i.known[name] = s
	return s, nil
}

// Forget closes a segment and its lanes. Calls under way end by themselves.
func (i *Initiator) Forget(name string) {
	i.mu.Lock()
	s := i.known[name]
	delete(i.known, name)
	i.mu.Unlock()
	if s != nil {
		s.end()
	}
}

// Recheck has all lanes opened again, by Allow and Dial as they answer now. Calls under way
// end by themselves.
func (i *Initiator) Recheck() {
	i.mu.Lock()
	known := slices.Collect(maps.Values(i.known))
	i.mu.Unlock()
	for _, s := range known {
		s.mu.Lock()
		idle := s.idle
		s.idle = nil
		s.rules++
		s.mu.Unlock()
		for _, l := range idle {
			l.close()
		}
	}
}

// Close closes all segments.
func (i *Initiator) Close() {
	i.mu.Lock()
	i.closed = true
	known := i.known
	i.known = map[string]*Segment{}
	i.mu.Unlock()
	for _, s := range known {
		s.end()
	}
}

func (s *Segment) end() {
	s.mu.Lock()
	s.ended = true
	idle := s.idle
	s.idle = nil
	s.mu.Unlock()
	for _, l := range idle {
		l.close()
	}
}

// Descriptor is the peer's, as it was last seen, and a number that rises when it then
// had another port, address or memory: the peer was restarted.
func (s *Segment) Descriptor() (segment.Descriptor, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desc, s.seen
}

// Lanes is how many connections to the peer are open: those in use, and those that
// wait for the next call.
func (s *Segment) Lanes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.idle) + len(s.busy)
}

// Refresh asks for the descriptor again.
func (s *Segment) Refresh(ctx context.Context) error {
	_, err := s.refresh(ctx)
	return err
}

// refresh says whether data connections go elsewhere now. Idle lanes to the old place
// are closed.
func (s *Segment) refresh(ctx context.Context) (moved bool, err error) {
	d, host, err := s.in.cfg.Resolver.Get(ctx, s.Name)
	if err != nil {
		return false, err
	}
	addr, err := d.DataAddr(host)
	if err != nil {
		return false, fmt.Errorf("mooncake: segment %s: %w", s.Name, err)
	}
	s.mu.Lock()
	var stale []*lane
	if moved = addr != s.addr || d.Acked() != s.desc.Acked(); moved {
		stale, s.idle = s.idle, nil
	}
	if moved || !slices.Equal(d.Buffers, s.desc.Buffers) {
		s.seen++
	}
	s.desc, s.host, s.addr = d, host, addr
	s.mu.Unlock()
	for _, l := range stale {
		l.close()
	}
	return moved, nil
}

// lane takes an idle lane that still lives, or opens one. The caller has an entry in busy.
func (s *Segment) lane(ctx context.Context) (l *lane, reused bool, err error) {
	for {
		s.mu.Lock()
		host, addr, v2, ended, rules := s.host, s.addr, s.desc.Acked(), s.ended, s.rules
		if n := len(s.idle); n > 0 {
			l, s.idle = s.idle[n-1], s.idle[:n-1]
		}
		s.mu.Unlock()
		switch {
		case ended:
			return nil, false, fmt.Errorf("mooncake: segment %s is closed: %w", s.Name, wire.CodeUnreachable)
		case l == nil:
			if l, err = s.in.dial(ctx, host, addr, v2); err == nil {
				l.rules = rules
			}
			return l, false, err
		case l.alive():
			return l, true, nil
		}
		l.close()
		l = nil
	}
}

// giveBack keeps a lane for the next request, if it can have one.
func (s *Segment) giveBack(l *lane) {
	s.mu.Lock()
	keep := l.acked && !s.ended && l.addr == s.addr && l.rules == s.rules
	if keep {
		s.idle = append(s.idle, l)
	}
	s.mu.Unlock()
	if !keep {
		l.close()
	}
}

func (i *Initiator) dial(ctx context.Context, host, addr string, v2 bool) (*lane, error) {
	dial := i.cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) { return i.dialPeer(ctx, host, addr) }
	}
	within, cancel := context.WithTimeout(ctx, ConnectTime)
	defer cancel()
	c, err := dial(within, addr)
	if err != nil {
		return nil, &dialError{addr, err, ctx.Err()}
	}
	return &lane{Conn: c, addr: addr, acked: v2, flight: &flight{in: newScatter(c)}}, nil
}

// dialPeer connects to a peer's data plane. Where the peer says itself which host that
// is, it must be one that it may name, whatever the name resolves to: a peer must not
// have blocks sent to somebody else, or this host connect to what only it can reach.
func (i *Initiator) dialPeer(ctx context.Context, host, addr string) (net.Conn, error) {
	d := &net.Dialer{}
	if said, _, err := net.SplitHostPort(addr); err == nil && said != host {
		own, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		d = reach.Dialer(func(a netip.Addr) error {
			same := func(o netip.Addr) bool { return o.Unmap().WithZone("") == a }
			if slices.ContainsFunc(own, same) || i.cfg.Allow != nil && i.cfg.Allow(a) {
				return nil
			}
			return fmt.Errorf("its descriptor sends data connections to %v, which is neither %s nor allowed: %w", a, host, wire.CodeDenied)
		})
	}
	return d.DialContext(ctx, "tcp", addr)
}

// dialError is a peer that could not be reached. It matches UNREACHABLE, or DENIED
// where the peer may not send connections there, or what ended the caller's context.
type dialError struct {
	addr       string
	cause, ctx error
}

func (e *dialError) Error() string {
	return "mooncake: connecting to " + e.addr + ": " + e.cause.Error()
}

func (e *dialError) Unwrap() []error {
	if e.ctx != nil {
		return []error{wire.CodeOf(e.ctx), e.ctx}
	}
	if errors.Is(e.cause, wire.CodeDenied) {
		return []error{wire.CodeDenied, e.cause}
	}
	return []error{wire.CodeUnreachable, e.cause}
}

// unreachable says that no connection could be made.
func unreachable(err error) bool {
	_, ok := errors.AsType[*dialError](err)
	return ok && errors.Is(err, wire.CodeUnreachable)
}
