package nixl

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/wire"
)

// exchangeTime bounds a connection, and each question to a listener and its answer. A
// listener is one thread, which looks every 100 ms.
const exchangeTime = 5 * time.Second

// listener is a connection to the listener of a NIXL agent, which tells its metadata and
// takes ours. While it stands the agent lives.
type listener struct {
	c net.Conn
	r *bufio.Reader
}

func dialListener(ctx context.Context, addr string) (*listener, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	d := net.Dialer{KeepAliveConfig: plane.Alive}
	c, err := d.DialContext(ctx, "tcp4", addr) // NIXL listens at IPv4 only
	if err != nil {
		return nil, fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
	}
	return &listener{c, bufio.NewReader(c)}, nil
}

func (l *listener) close() { _ = l.c.Close() }

func (l *listener) write(f plane.Frame) error {
	if err := l.c.SetDeadline(time.Now().Add(exchangeTime)); err != nil {
		return err
	}
	_, err := l.c.Write(f.Append(nil))
	return err
}

// metadata asks for the agent's.
func (l *listener) metadata(context.Context) ([]byte, error) {
	if err := l.write(plane.Frame{Verb: plane.Send}); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
	}
	f, err := plane.ReadFrame(l.r, nil)
	switch code := wire.CodeOf(err); {
	case code == wire.CodeLength, code == wire.CodeInvalid, code == wire.CodeUnsupported:
		return nil, fmt.Errorf("the listener's answer: %w: %w", wire.CodeInvalid, err)
	case err != nil:
		return nil, fmt.Errorf("%w: the listener's answer: %w", wire.CodeUnreachable, err)
	case f.Verb != plane.Load:
		return nil, fmt.Errorf("nixl: the listener answered no metadata: %w", wire.CodeInvalid)
	}
	return f.Body, nil
}

// give hands ours over.
func (l *listener) give(blob []byte) error {
	return l.write(plane.Frame{Verb: plane.Load, Body: blob})
}
