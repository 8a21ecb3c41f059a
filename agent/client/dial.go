package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"meridian/wire"
	"meridian/wire/link"
)

// sendTimeout is how long the daemon may take for all bytes of a request before the
// connection counts as broken.
const sendTimeout = 5 * time.Second

// Options of DialEngine. The zero value is good.
type Options struct {
	// OnPhase gets the daemon's advice about requests, in order, on one goroutine
	// of its own; it may call the Engine.
	OnPhase func(Phase)
	// OnEvicted gets the blocks of running requests that the daemon evicted, on the
	// same goroutine. Only in a group.
	OnEvicted func([]Evicted)
	// Group makes the connection a session of an engine with several. Without it the
	// connection is an engine, and there are no calls that need a group.
	Group *Group
}

// DialEngine connects to the block socket at path and exchanges HELLO. A daemon
// that refuses is a *ClosedError with its code: AUTH, TOO_MANY, DRAINING,
// LINK_VERSION; UNREACHABLE where there is none.
func DialEngine(ctx context.Context, path string, o Options) (*Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, contextError("dial", err)
	}
	s, err := dialSocket(path)
	if err != nil {
		closed := &ClosedError{Code: wire.CodeUnreachable, Cause: err}
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			closed.Text = "nothing listens at " + path
		}
		return nil, closed
	}
	stop := context.AfterFunc(ctx, s.shutdown)
	e := newEngine(s, o)
	hello, err := e.hello()
	if !stop() && err == nil {
		err = io.EOF // the context shut the socket down behind HELLO's back
	}
	if err != nil {
		s.close()
		if ctxErr := ctx.Err(); ctxErr != nil {
			return nil, contextError("dial", ctxErr)
		}
		var closed *ClosedError
		if errors.As(err, &closed) {
			return nil, err
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, &ClosedError{Code: codeOf(err), Cause: err}
	}
	e.start(hello)
	return e, nil
}

// hello sends ours and reads theirs, and not a byte further.
func (e *Engine) hello() (link.Hello, error) {
	if err := e.sock.receiveTimeout(link.HelloTimeout); err != nil {
		return link.Hello{}, err
	}
	ours := link.Hello{Min: link.Version, Max: link.Version, Features: link.FeatureLocal | link.FeatureRing | link.FeaturePlain,
		Limits: link.Limits{Reqs: link.MaxReqs, Items: link.MaxItems, Frame: link.MaxControl},
		Auth:   []link.TLV{{Type: link.AuthPeer}}}
	e.options.Group.offer(&ours)
	_, _ = rand.Read(ours.Nonce[:]) // never fails
	sent := e.sock.write(link.AppendMessage(nil, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical}, ours))
	// A daemon that refused has closed already; its ERROR says more than EPIPE.
	ev, err := e.firstFrame()
	if err != nil {
		if sent != nil {
			err = sent
		}
		return link.Hello{}, err
	}
	if ev.Frame.Type == link.TypeError {
		return link.Hello{}, refused(ev.Payload)
	}
	theirs, err := link.Parse[link.Hello](ev.Payload)
	if err != nil {
		return theirs, err
	}
	if _, err := ours.Agree(theirs); err != nil {
		return theirs, err
	}
	if theirs.Features&link.FeatureLocal == 0 {
		return theirs, protocolError(wire.CodeUnsupported, "this is no engine's socket: HELLO has no feature LOCAL")
	}
	if err := e.join(theirs); err != nil {
		return theirs, err
	}
	e.plain = ours.Features&theirs.Features&link.FeaturePlain != 0
	e.split.Plain = e.plain
	return theirs, e.sock.receiveTimeout(leadTime)
}

// firstFrame reads HELLO or ERROR.
func (e *Engine) firstFrame() (link.Event, error) {
	buf := make([]byte, 4096)
	for {
		n, fds, err := e.sock.receive(buf[:min(len(buf), e.split.Need())], nil, 0)
		closeAll(fds)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return link.Event{}, protocolError(wire.CodeHelloTimeout, "no HELLO from the daemon")
		}
		if err != nil {
			return link.Event{}, err
		}
		_, ev, err := e.split.Next(buf[:n])
		if err != nil {
			return ev, err
		}
		if ev.Kind == link.EventMessage {
			return ev, nil
		}
	}
}

// refused makes the error of an ERROR frame.
func refused(p []byte) error {
	x, err := link.Parse[link.Error](p)
	if err != nil {
		return err
	}
	text := x.Text
	if x.Offset > 0 {
		text = fmt.Sprintf("%s (at byte %d of what was sent)", text, x.Offset)
	}
	return &ClosedError{Code: x.Code, Text: text}
}

// codeOf is the code that an error matches: LANE_LOST where it matches none.
func codeOf(err error) wire.Code {
	var c wire.Code
	if errors.As(err, &c) {
		return c
	}
	return wire.CodeLaneLost
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was done with it
	}
}
