package door

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

	"meridian/blocks/quota"
	"meridian/internal/halfopen"
)

// Config is what a Door needs.
type Config struct {
	// Places are those of connections, of which each takes one.
	Places *Shares
	// Admit says who a source address is, or why it is turned away.
	Admit func(source netip.Addr) (peer string, err error)
	// Wrap makes what a connection is from when its source was admitted; nil: what was
	// accepted.
	Wrap func(net.Conn) net.Conn
	// Run has serve run, which ends with the connection; nil, or false: a goroutine of its
	// own does.
	Run func(c *Conn, serve func()) bool
	// Serve has a connection until it returns; then it is closed.
	Serve func(c *Conn)
	// Refused hears of each connection that was turned away or put out.
	Refused func(peer string, err error)
}

// acceptPause is how long Accept rests after an error, such as too many open files.
const acceptPause = 50 * time.Millisecond

// Door is a set of listeners and what came through them.
type Door struct {
	cfg  Config
	done chan struct{}
	wg   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	conns     map[*Conn]struct{}
}

// Conn is a connection that was let in.
type Conn struct {
	net.Conn
	Peer string

	door   *Door
	source quota.Holder
	share  Part
	place  *halfopen.Conn

	out chan struct{} // closed when it is put out

	mu  sync.Mutex
	why error // why it was put out
}

// New makes a door without listeners.
func New(cfg Config) *Door {
	if cfg.Places == nil {
		cfg.Places = NewCommon(nil).Of(quota.DataConns)
	}
	return &Door{cfg: cfg, done: make(chan struct{}), conns: map[*Conn]struct{}{}}
}

// Listen opens a port and serves it.
func (d *Door) Listen(ctx context.Context, addr string) (netip.AddrPort, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if !d.Open(l) {
		_ = l.Close()
		return netip.AddrPort{}, net.ErrClosed
	}
	return sourceOf(l.Addr()), nil
}

// Open serves a listener until Close; false: the door is closed.
func (d *Door) Open(l net.Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.listeners = append(d.listeners, l)
	d.wg.Go(func() { d.accept(l) })
	return true
}

func (d *Door) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			d.enter(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // such as no descriptor: they come back
			select {
			case <-d.done:
				return
			case <-time.After(acceptPause):
			}
		}
	}
}

// sourceOf is the address of the other end, an IPv4 one as such also where the
// socket is IPv6.
func sourceOf(a net.Addr) netip.AddrPort {
	ap, _ := netip.ParseAddrPort(a.String())
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func (d *Door) enter(nc net.Conn) {
	from := sourceOf(nc.RemoteAddr()).Addr()
	peer, err := d.cfg.Admit(from)
	if err == nil && d.cfg.Wrap != nil {
		nc = d.cfg.Wrap(nc)
	}
	c := &Conn{Conn: nc, Peer: peer, door: d, source: quota.SourceOf(from), out: make(chan struct{})}
	if err == nil {
		err = d.room(c)
	}
	if err == nil { // a recheck may have passed before the connection was there
		var now string
		if now, err = d.cfg.Admit(from); err == nil && now != peer {
			err = net.ErrClosed
		}
		if err != nil {
			c.leave()
		}
	}
	if err != nil {
		_ = nc.Close()
		d.cfg.Refused(peer, err)
		return
	}
	boundUnsent(nc)
	d.wg.Add(1)
	d.run(c, func() {
		defer d.wg.Done()
		d.cfg.Serve(c)
		c.leave()
	})
}

func (d *Door) run(c *Conn, serve func()) {
	if d.cfg.Run == nil || !d.cfg.Run(c, serve) {
		go serve()
	}
}

// room gives a connection its place. One that must make room for it, of this door or of
// another one, is closed here, and its place is the newcomer's.
func (d *Door) room(c *Conn) error {
	for {
		err := d.tryRoom(c)
		full, ok := errors.AsType[*quota.Error](err)
		if !ok {
			return err
		}
		source := ""
		if full.Holder == c.source {
			source = c.source.Name
		}
		if !d.cfg.Places.silent.MakeRoom(now(), source, fmt.Errorf("a silent connection made room for another: %w", err)) {
			return err
		}
	}
}

func (d *Door) tryRoom(c *Conn) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	if c.share, err = d.cfg.Places.Take(c.source, 1); err != nil {
		return err
	}
	d.conns[c] = struct{}{}
	c.place = d.cfg.Places.silent.Enter(now(), c.source.Name, c.putOut)
	return nil
}

// putOut closes a connection whose place somebody else needs. Its Serve may still
// run for a moment, and counts no more.
func (c *Conn) putOut(why error) {
	c.mu.Lock()
	if c.why == nil {
		close(c.out)
	}
	c.why = why
	c.mu.Unlock()
	_ = c.Conn.Close()
	c.door.forget(c)
}

// Why is the reason for which the door closed the connection; nil: it did not.
func (c *Conn) Why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// Source is whose share the connection takes.
func (c *Conn) Source() quota.Holder { return c.source }

// Proved says that the connection has sent a valid request: it keeps its place.
func (c *Conn) Proved() { c.place.Leave() }

// Spoke says that the connection has sent a valid message, and will be closed soon.
func (c *Conn) Spoke() { c.place.Spoke(now()) }

// Yield says that nothing more is expected of the connection.
func (c *Conn) Yield() { c.place.Yield() }

// CloseWrite ends this side's half, where the transport has halves.
func (c *Conn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

func (c *Conn) leave() {
	_ = c.Conn.Close()
	c.place.Leave()
	c.door.forget(c)
}

// forget gives the connection's place back, once.
func (d *Door) forget(c *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, here := d.conns[c]; !here {
		return
	}
	delete(d.conns, c)
	c.share.Give()
}

// began is what all doors of this process count their time from.
var began = time.Now()

func now() time.Duration { return time.Since(began) }

// Recheck asks Admit again for each connection, after it has other answers, and closes
// those that would be turned away now.
func (d *Door) Recheck() { d.recheck(false) }

// Identify is Recheck that also closes the connections of those who would be taken for
// somebody else now: what a connection may do hangs on whose it is.
func (d *Door) Identify() { d.recheck(true) }

func (d *Door) recheck(others bool) {
	d.mu.Lock()
	conns := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	for _, c := range conns {
		peer, err := d.cfg.Admit(sourceOf(c.RemoteAddr()).Addr())
		if err == nil && others && peer != c.Peer {
			err = net.ErrClosed
		}
		if err != nil {
			c.place.Leave()
			c.putOut(err)
		}
	}
}

// Len is how many connections are open.
func (d *Door) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

// Shut closes the listeners; what came in stays.
func (d *Door) Shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, l := range d.listeners {
		_ = l.Close()
	}
	d.listeners = nil
}

// Close closes listeners and connections, and returns when no Serve runs any more.
func (d *Door) Close() {
	d.Shut()
	d.mu.Lock()
	select {
	case <-d.done:
	default:
		close(d.done)
	}
	for c := range d.conns {
		_ = c.Conn.Close()
	}
	d.mu.Unlock()
	d.wg.Wait()
}
