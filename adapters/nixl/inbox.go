package nixl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/stranger"
	"meridian/wire"
)

// takeoverTime is how long an agent waits whose name somebody else has: by then it is
// clear that a host is gone with which that was (plane.Alive).
const takeoverTime = 15 * time.Second

// inbox is the P2P listener of this daemon: agents send it their metadata, and ask for
// those of the daemon's own agent.
type inbox struct {
	addr           string
	log            *slog.Logger
	allows         func(source netip.Addr) bool
	door           *door.Door
	held           *door.Shares
	ours           func() []byte // our agent's metadata now; nil: there are none
	refused        func(from string, err error)
	wait, takeover time.Duration // exchangeTime and takeoverTime

	mu    sync.Mutex
	names map[string]bool  // agents that are listed
	from  map[string]*sent // by agent
}

// sent is an agent that has sent its metadata. Its connection stands while it lives.
type sent struct {
	in   *inbox
	c    *door.Conn
	name string

	writing sync.Mutex
	mu      sync.Mutex
	blob    []byte
	gone    chan struct{} // closed with why
	why     error
}

// newInbox makes the listener.
func newInbox(n *Node) *inbox {
	in := &inbox{log: n.cfg.Helper.Log, allows: n.Allows, from: map[string]*sent{}, wait: exchangeTime, takeover: takeoverTime}
	in.ours = func() []byte {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.session == nil {
			return nil
		}
		return n.session.metadata()
	}
	in.refused = func(from string, err error) { n.turned(from, false, err) }
	in.list(n.cfg.Peers)
	in.held = n.cfg.Doors.Of(quota.HandshakeBytes)
	in.door = door.New(door.Config{Places: n.cfg.Doors.Of(quota.MetadataConns), Admit: in.admit, Serve: in.serve, Refused: func(from string, err error) { in.refused(from, err) }})
	return in
}

// list says which peers there are. An agent that is listed no more loses its connection.
func (in *inbox) list(peers []PeerConfig) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.names = map[string]bool{}
	for _, c := range peers {
		if by, agent := Planned(c.Address); by == ByListener {
			in.names[agent] = true
		}
	}
	for agent, s := range in.from {
		if !in.names[agent] {
			_ = s.c.Close()
		}
	}
}

// listed says whether an agent is.
func (in *inbox) listed(agent string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.names[agent]
}

// listen starts it, where there is an address.
func (in *inbox) listen(ctx context.Context, addr string) error {
	if addr == "" {
		return nil
	}
	at, err := in.door.Listen(ctx, addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	in.addr = at.String()
	return nil
}

func (in *inbox) admit(source netip.Addr) (string, error) {
	if in.allows(source) {
		return source.String(), nil
	}
	return source.String(), fmt.Errorf("nixl: %v is not in allow: %w", source, wire.CodeDenied)
}

// serve does what a connection asks for until it ends.
func (in *inbox) serve(c *door.Conn) {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(plane.Alive)
	}
	s := &sent{in: in, c: c, gone: make(chan struct{})}
	err := s.read(bufio.NewReader(c))
	if why := c.Why(); why != nil {
		err = why
	}
	quiet := errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
	if quiet {
		err = errors.New("its agent has closed its connection")
	}
	s.end(fmt.Errorf("%w: %w", wire.CodeUnreachable, err))
	if !quiet {
		in.refused(c.Peer, err)
	}
}

func (s *sent) read(r *bufio.Reader) error {
	_ = s.c.SetReadDeadline(time.Now().Add(s.in.wait))
	for {
		_, err := r.Peek(1)
		switch { // agents may be silent between frames, and not before the first one
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("nixl: no frame for %v: %w", s.in.wait, wire.CodeDeadline)
		case err != nil:
			return err
		}
		_ = s.c.SetReadDeadline(time.Now().Add(s.in.wait))
		var mine door.Part
		f, err := plane.ReadFrame(r, func(n int) (err error) {
			mine, err = s.in.held.Take(s.c.Source(), uint64(n))
			return err
		})
		if err == nil {
			_ = s.c.SetReadDeadline(time.Time{})
			s.c.Spoke()
			err = s.does(f)
		}
		mine.Give()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("nixl: half a frame, and nothing for %v: %w", s.in.wait, wire.CodeDeadline)
		case err != nil:
			return err
		}
	}
}

func (s *sent) does(f plane.Frame) error {
	switch f.Verb {
	case plane.Send:
		ours := s.in.ours()
		if ours == nil {
			return fmt.Errorf("nixl: our metadata are asked for, and there are none: %w", wire.CodeUnreachable)
		}
		return s.give(ours)
	case plane.Load:
		return s.load(f.Body)
	}
	if name := string(f.Body); s.name == "" || name != s.name {
		return fmt.Errorf("nixl: to forget agent %s, which this connection is not: %w", stranger.Quote(name), wire.CodeDenied)
	}
	s.end(fmt.Errorf("%w: its agent has withdrawn its metadata", wire.CodeUnreachable))
	s.mu.Lock()
	s.name, s.blob, s.gone, s.why = "", nil, make(chan struct{}), nil
	s.mu.Unlock()
	return nil
}

// load takes an agent's metadata.
func (s *sent) load(blob []byte) error {
	m, err := plane.ParseMetadata(blob)
	switch {
	case err != nil:
		return err
	case !s.in.listed(m.Agent):
		return fmt.Errorf("nixl: metadata of agent %s, and no peer is listed as %s of that name: %w", stranger.Quote(m.Agent), ByListener, wire.CodeDenied)
	case s.name != "" && s.name != m.Agent:
		return fmt.Errorf("nixl: metadata of agent %s by the connection of %s: %w", stranger.Quote(m.Agent), stranger.Quote(s.name), wire.CodeDenied)
	case !m.Whole: // they add to what was sent, or are of no use
		return fmt.Errorf("nixl: partial metadata of agent %s: send all of it: %w", stranger.Quote(m.Agent), wire.CodeUnsupported)
	}
	deadline := time.NewTimer(s.in.takeover)
	defer deadline.Stop()
	for {
		s.in.mu.Lock()
		other := s.in.from[m.Agent]
		if !s.in.names[m.Agent] { // since a moment
			s.in.mu.Unlock()
			return fmt.Errorf("nixl: metadata of agent %s, which is listed no more: %w", stranger.Quote(m.Agent), wire.CodeDenied)
		}
		if other == nil || other == s {
			s.mu.Lock()
			s.name, s.blob = m.Agent, blob
			s.mu.Unlock()
			s.in.from[m.Agent] = s
			s.in.mu.Unlock()
			s.c.Proved()
			s.in.log.Info("NIXL agent has sent its metadata", "nixl_agent", m.Agent, "from", s.c.RemoteAddr().String())
			return nil
		}
		other.mu.Lock()
		gone := other.gone
		other.mu.Unlock()
		s.in.mu.Unlock()
		select {
		case <-gone:
		case <-deadline.C:
			return fmt.Errorf("nixl: metadata of agent %s, and another one of that name lives at %v: %w", stranger.Quote(m.Agent), other.c.RemoteAddr(), wire.CodeExists)
		}
	}
}

// end makes the agent one that is gone.
func (s *sent) end(why error) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in.from[s.name] == s {
		delete(s.in.from, s.name)
	}
	if s.why == nil {
		s.why = why
		close(s.gone)
	}
}

// sent is an agent that has sent its metadata.
func (in *inbox) sent(agent string) (source, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if s := in.from[agent]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: listener %s: %w", wire.CodeUnreachable, in.addr, plane.ErrAbsent)
}

// metadata implements source.
func (s *sent) metadata(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil && s.blob == nil {
		return nil, fmt.Errorf("%w: listener %s: %w", wire.CodeUnreachable, s.in.addr, plane.ErrAbsent) // withdrawn
	}
	return s.blob, s.why
}

// give implements source. An agent without a listener of its own never looks at it: it asks
// for ours, or gets them in another way.
func (s *sent) give(blob []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.c.SetWriteDeadline(time.Now().Add(s.in.wait))
	_, err := s.c.Write(plane.Frame{Verb: plane.Load, Body: blob}.Append(nil))
	return err
}

// close implements source: the connection is the agent's, which may be loaded anew.
func (s *sent) close() {}
