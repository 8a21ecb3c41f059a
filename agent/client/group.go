package client

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"meridian/wire"
	"meridian/wire/link"
)

// Group says that the connection is a session of an engine that has several, such as
// one of a scheduler and one of each rank: sessions of one user with the same Agent and
// Inc. They have their namespaces, timed leases, generation requests and share of the
// daemon's memory together, and each gets the daemon's advice.
type Group struct {
	Agent [16]byte // of the engine's own choice, not zero
	Inc   uint64   // not zero; another one after each start of the engine

	// Secret keeps others of the same user out: all sessions say the same one. The
	// first session of the group may ask the daemon to make it (AskSecret), and hand
	// it to the others; see Engine.GroupSecret.
	Secret    *[link.GroupSecret]byte
	AskSecret bool
}

// offer puts the group into HELLO.
func (g *Group) offer(h *link.Hello) {
	if g == nil {
		return
	}
	h.Features |= link.FeatureGroup
	h.Agent, h.Inc = g.Agent, g.Inc
	switch {
	case g.Secret != nil:
		h.Auth = append(h.Auth, link.TLV{Type: link.AuthGroup, Value: g.Secret[:]})
	case g.AskSecret:
		h.Auth = append(h.Auth, link.TLV{Type: link.AuthGroup})
	}
}

// join takes what the daemon's HELLO says of the group.
func (e *Engine) join(h link.Hello) error {
	g := e.options.Group
	if e.grouped = g != nil && h.Features&link.FeatureGroup != 0; !e.grouped {
		return nil
	}
	if g.Secret != nil {
		e.secret = *g.Secret
	}
	if g.Secret != nil || !g.AskSecret {
		return nil
	}
	v, ok := h.Find(link.AuthGroup)
	if !ok || len(v) != link.GroupSecret {
		return protocolError(wire.CodeAuth, "a group secret was asked for, and the daemon sent %d bytes", len(v))
	}
	e.secret = [link.GroupSecret]byte(v)
	return nil
}

// Grouped tells whether the daemon knows the group. One that is older takes the
// connection for an engine by itself, and calls that need a group are UNSUPPORTED.
func (e *Engine) Grouped() bool { return e.grouped }

// GroupSecret is the secret of the group, for its other sessions; ok is false where it
// has none.
func (e *Engine) GroupSecret() (secret [link.GroupSecret]byte, ok bool) {
	return e.secret, e.secret != [link.GroupSecret]byte{}
}

// needGroup refuses a call that is made of messages which only a group has.
func (e *Engine) needGroup(op string) error {
	switch {
	case e.grouped:
		return nil
	case e.options.Group == nil:
		return &RequestError{Op: op, Code: wire.CodeUnsupported, Text: "this connection belongs to no group: Options.Group is nil"}
	}
	return &RequestError{Op: op, Code: wire.CodeUnsupported, Text: "the daemon does not know groups: it is older than this client"}
}

// Process hands a pidfd of this engine's process to a daemon that cannot see the
// process by itself, as one in another PID namespace: it then grants leases that hold
// until the process is gone. The descriptor stays the caller's. INVALID: it is no
// pidfd.
func (e *Engine) Process(ctx context.Context, pidfd int) error {
	if err := e.needGroup("process"); err != nil {
		return err
	}
	c, err := e.take(ctx, "process")
	if err != nil {
		return err
	}
	if err := e.sendDescriptor(ctx, c, pidfd); err != nil {
		e.putBack(c)
		return err
	}
	if err := e.wait(ctx, c); err != nil {
		return err
	}
	err = ended(c.op, &c.end)
	e.putBack(c)
	return err
}

// sendDescriptor sends PROCESS when nothing else waits for the socket: a descriptor
// travels with the first byte of a system call.
func (e *Engine) sendDescriptor(ctx context.Context, c *call, fd int) error {
	for {
		sent, err := e.offerDescriptor(c, fd)
		if sent || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return contextError(c.op, err)
		}
		e.sock.writable(pushPause)
	}
}

// offerDescriptor is one try, without waiting.
func (e *Engine) offerDescriptor(c *call, fd int) (sent bool, err error) {
	e.wmu.Lock()
	defer e.wmu.Unlock()
	if e.err != nil {
		return false, e.err
	}
	e.appendReleases()
	if e.flush(); len(e.out) > 0 {
		return false, nil
	}
	req := e.nextReq(c.slot)
	b := link.AppendLocal(nil, e.plain, link.Frame{Type: link.TypeProcess, Req: req}, link.Empty{})
	c.state.Store(waiting)
	c.req.Store(req) // the answer may be here before send returns
	n, err := unix.SendmsgN(e.sock.fd, b, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	if err != nil {
		c.req.Store(0)
		if err == unix.EAGAIN || err == unix.EINTR {
			err = nil
		}
		return false, os.NewSyscallError("sendmsg", err)
	}
	e.out = append(e.out, b[n:]...)
	e.flush()
	return true, nil
}
