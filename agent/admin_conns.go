package agent

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"meridian/internal/halfopen"
)

// Connections of the admin API. A command makes one, for as long as it runs.
const (
	maxAdminConns = 128
	maxAdminUID   = 96              // of one user, so that root finds a place beside the daemon's own
	adminGreeting = 5 * time.Second // for a connection to begin HTTP/2
)

// adminListener bounds the connections of the admin API. Where there is no place, the
// oldest silent one makes room, or one none of whose calls runs.
type adminListener struct {
	net.Listener
	start  time.Time
	places halfopen.Table

	mu  sync.Mutex
	all int
	of  map[string]int // by user
}

func boundAdmin(ln net.Listener) *adminListener {
	return &adminListener{Listener: ln, start: time.Now(), of: map[string]int{}}
}

func (l *adminListener) now() time.Duration { return time.Since(l.start) }

// Accept implements net.Listener.
func (l *adminListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		in := &adminConn{Conn: c, of: l, user: userOf(c)}
		if !l.enter(in) {
			_ = c.Close()
			continue
		}
		in.turn = l.places.Enter(l.now(), in.user, func(error) { _ = in.end() })
		return in, nil
	}
}

var errAdminRoom = errors.New("a newer connection of the admin API needs the place")

// enter takes a place, if need be that of one for which no call runs. Each turn closes a
// connection, so it ends.
func (l *adminListener) enter(c *adminConn) bool {
	for {
		l.mu.Lock()
		source, full := "", l.all >= maxAdminConns
		if l.of[c.user] >= maxAdminUID {
			source, full = c.user, true
		}
		if !full {
			l.all++
			l.of[c.user]++
		}
		l.mu.Unlock()
		if !full {
			return true
		}
		if !l.places.MakeRoom(l.now(), source, errAdminRoom) {
			return false
		}
	}
}

func (l *adminListener) leave(c *adminConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[c.user]--; l.of[c.user] == 0 {
		delete(l.of, c.user)
	}
}

// userOf is the uid at the other end.
func userOf(c net.Conn) string {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return "unknown"
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return "unknown"
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil || err != nil {
		return "unknown"
	}
	return strconv.FormatUint(uint64(cred.Uid), 10)
}

// adminConn is a connection that has a place.
type adminConn struct {
	net.Conn
	of   *adminListener
	user string
	turn *halfopen.Conn
	once sync.Once

	mu    sync.Mutex
	calls int // that run
}

// adminAddr is how a call finds its connection: gRPC tells it the address.
type adminAddr struct {
	net.Addr
	conn *adminConn
}

// RemoteAddr implements net.Conn.
func (c *adminConn) RemoteAddr() net.Addr { return adminAddr{c.Conn.RemoteAddr(), c} }

// Close implements net.Conn.
func (c *adminConn) Close() error {
	c.turn.Leave()
	return c.end()
}

func (c *adminConn) end() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.of.leave(c) })
	return err
}

// call counts one that runs, until the function that it returns.
func (c *adminConn) call() (ended func()) {
	c.add(1)
	return func() { c.add(-1) }
}

func (c *adminConn) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls += n
	if c.calls > 0 {
		c.turn.Busy()
	} else {
		c.turn.Rest(c.of.now())
	}
}

func callOf(ctx context.Context) (ended func()) {
	if p, ok := peer.FromContext(ctx); ok {
		if at, ok := p.Addr.(adminAddr); ok {
			return at.conn.call()
		}
	}
	return func() {}
}

// countCalls are the options of a server whose listener is an adminListener.
func countCalls() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(adminGreeting),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			defer callOf(ctx)()
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			defer callOf(s.Context())()
			return next(srv, s)
		}),
	}
}
