package link

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks/quota"
	"meridian/internal/halfopen"
	"meridian/wire"
	proto "meridian/wire/link"
)

// origin is where a connection comes from.
type origin struct {
	addr   string // for people: host and port, or process and user
	source string // whose share of half-open connections it takes: a host, or a user
	local  bool   // it comes from this host
}

// arrival is an accepted connection whose HELLOs are not through.
type arrival struct {
	net.Conn
	origin
	via     string
	place   *halfopen.Conn
	share   *quota.Hold
	evicted atomic.Pointer[error]
}

// evict takes the connection's place away: its reader ends at once.
func (a *arrival) evict(why error) {
	a.share.Give()
	why = fmt.Errorf("this connection was silent for longest: %w", why)
	a.evicted.Store(&why)
	_ = a.SetReadDeadline(time.Unix(1, 0))
}

// leave gives the connection's place back. It may be called again.
func (a *arrival) leave() {
	a.place.Leave()
	a.share.Give()
}

// enter gives a connection a place. Where the source, or all of them, has as many
// as it may, the oldest silent one makes room; else it is the new one that gets
// none.
func (n *Node) enter(a *arrival) (err error) {
	who := []quota.Holder{{Kind: quota.Source, Name: a.source}, quota.Total}
	for range 3 {
		if a.share, err = n.cfg.Quota.Take(quota.HalfOpen, 1, who...); err == nil {
			a.place = n.places.Enter(n.cfg.Clock(), a.source, a.evict)
			return nil
		}
		of := a.source
		if full, ok := errors.AsType[*quota.Error](err); ok && full.Holder.Kind == quota.All {
			of = ""
		}
		if !n.places.MakeRoom(n.cfg.Clock(), of, err) {
			return err
		}
	}
	return err
}

// accept takes connections until the listener is closed.
func (n *Node) accept(l net.Listener, via string) {
	defer n.running.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			if n.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			n.cfg.Log.Warn("link accept", "err", err)
			select { // out of descriptors: give some time to free them
			case <-n.ctx.Done():
				return
			case <-time.After(redialMin):
			}
			continue
		}
		n.take(c, via)
	}
}

// take gives a connection a place and begins its HELLOs, or refuses it.
func (n *Node) take(c net.Conn, via string) {
	if !n.beginOpening(c) {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Now().Add(proto.HelloTimeout))
	a := &arrival{Conn: c, via: via}
	var err error
	if a.origin, err = n.originOf(c, via); err == nil {
		err = n.enter(a)
	}
	if err != nil {
		n.turnAway(a, err)
		return
	}
	go func() {
		defer n.running.Done()
		defer n.endOpening(c)
		n.welcome(a)
	}()
}

// originOf tells where a connection comes from; on a Unix socket it must come
// from a user that may connect.
func (n *Node) originOf(c net.Conn, via string) (origin, error) {
	if via == viaUnix {
		cred, err := credentials(c)
		if err != nil {
			return origin{addr: viaUnix, source: viaUnix, local: true}, err
		}
		o := origin{addr: fmt.Sprintf("process %d of user %d", cred.Pid, cred.Uid), source: fmt.Sprintf("user %d", cred.Uid), local: true}
		return o, n.mayUse(cred.Uid)
	}
	o := origin{addr: c.RemoteAddr().String(), source: c.RemoteAddr().Network(), local: true}
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		o.source, o.local = quota.SourceOf(tcp.AddrPort().Addr()).Name, tcp.IP.IsLoopback()
	}
	return o, nil
}

// mayUse says whether a user may use the Unix socket.
func (n *Node) mayUse(uid uint32) error {
	if uid == uint32(os.Getuid()) || slices.Contains(n.cfg.UIDs, uid) {
		return nil
	}
	return fmt.Errorf("user %d may not connect: security.uids does not list it: %w", uid, wire.CodeAuth)
}

// credentials reads who is at the other end of a Unix socket.
func credentials(c net.Conn) (*unix.Ucred, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("no credentials on this connection: %w", wire.CodeAuth)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w: %w", err, wire.CodeAuth)
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, cerr); err != nil {
		return nil, fmt.Errorf("peer credentials: %w: %w", err, wire.CodeAuth)
	}
	return cred, nil
}

// turnAway says no to a connection that gets no place. A bounded number of them
// is waited for while they read why; the others are told by what fits into an
// empty socket, which waits for nobody. It ends what take began.
func (n *Node) turnAway(a *arrival, err error) {
	n.refused(refusal{origin: a.origin, err: err})
	h := &hello{conn: a.Conn, base: a.Conn, via: a.via}
	end := func() {
		_ = a.Close()
		n.endOpening(a.Conn)
		n.running.Done()
	}
	select {
	case n.turningAway <- struct{}{}:
	default:
		if a.via != viaTLS {
			h.say(err)
		}
		end()
		return
	}
	go func() {
		defer func() { <-n.turningAway }()
		defer end()
		if a.via == viaTLS {
			tc := tls.Server(a.Conn, n.roster.Load().tls.server())
			if tc.Handshake() != nil {
				return
			}
			h.conn = tc
		}
		h.refuse(err)
	}()
}

// welcome brings an accepted connection through HELLO and to its session.
func (n *Node) welcome(a *arrival) {
	defer a.leave()
	n.tune(a.Conn)
	h := &hello{conn: a.Conn, base: a.Conn, via: a.via, origin: a.origin, spoke: func() { a.place.Spoke(n.cfg.Clock()) }}
	err := n.receivePeer(h)
	if err == nil {
		return
	}
	if why := a.evicted.Load(); why != nil {
		err = *why
	} else if h.sp.Offset() == 0 && leftAtOnce(err) {
		// A probe of the port, as load balancers and port scans make: nobody
		// asked for anything, so nothing was refused.
		n.cfg.Log.Debug("link connection closed before it said anything", "from", a.addr)
		_ = a.Close()
		return
	}
	n.refused(refusal{origin: a.origin, claimed: h.claimed, entry: h.entry, err: err})
	told := true
	if a.via == viaTLS && h.conn == a.Conn {
		_ = a.SetDeadline(time.Now().Add(proto.DrainError)) // the TLS handshake has failed, and has said so
	} else {
		told = h.say(err)
	}
	// While it reads why, it keeps its place, and makes room for another that needs it.
	a.place.Yield()
	if told && a.evicted.Load() == nil {
		h.end()
	}
	_ = a.Close()
}

// receivePeer is the acceptor's handshake, that of TLS included.
func (n *Node) receivePeer(h *hello) error {
	if h.via == viaTLS {
		tc := tls.Server(h.base, n.roster.Load().tls.server())
		if err := tc.Handshake(); err != nil {
			return fmt.Errorf("tls: %w: %w", err, wire.CodeAuth)
		}
		h.conn = tc
	}
	return n.acceptHello(h)
}

// leftAtOnce says whether a connection ended from the other side.
func leftAtOnce(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
