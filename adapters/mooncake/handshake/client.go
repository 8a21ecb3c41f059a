package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/internal/stranger"
	"meridian/wire"
)

// Bounds of a call, where its context has no earlier end.
const (
	ConnectTime = 5 * time.Second
	CallTime    = 10 * time.Second // from the connection to the whole answer
)

// Client asks peers. The zero Client works.
type Client struct {
	// Own is this side's descriptor, which a metadata request carries; nil: none.
	Own func() segment.Descriptor
	// Dial opens a connection; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Get is the descriptor of the segment with the name, HOST:PORT, and the name's host,
// where its data connections go unless the descriptor says otherwise.
func (c *Client) Get(ctx context.Context, name string) (segment.Descriptor, string, error) {
	host, _, err := segment.SplitName(name)
	if err != nil {
		return segment.Descriptor{}, "", err
	}
	request := []byte("{}")
	if c.Own != nil {
		own := c.Own()
		request = own.Append(nil)
	}
	b, err := c.call(ctx, name, TypeMetadata, request)
	if err != nil {
		return segment.Descriptor{}, "", err
	}
	d, err := segment.Parse(b)
	if err != nil {
		return segment.Descriptor{}, "", fmt.Errorf("%s: %w", name, err)
	}
	return d, host, nil
}

// Notify hands a message to the application behind a name. DENIED: it was refused.
func (c *Client) Notify(ctx context.Context, name string, n Notify) error {
	b, err := c.call(ctx, name, TypeNotify, text(n))
	if err != nil {
		return err
	}
	var answer Notify
	if err := object(b, &answer); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if answer.Text == "" {
		return fmt.Errorf("%s refused a notify of %d bytes: %w", name, len(n.Text), wire.CodeDenied)
	}
	return nil
}

// Probe asks whether anybody answers at a name. LANE_LOST may also be an engine before
// 0.3.10.post2, which does not know the question.
func (c *Client) Probe(ctx context.Context, name string) error {
	b, err := c.call(ctx, name, TypeProbe, []byte("{}"))
	if err != nil {
		return err
	}
	var answer probeAnswer
	if err := object(b, &answer); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if answer.Status != success {
		return fmt.Errorf("%s answers a probe with status %s, want %q: %w", name, stranger.Quote(answer.Status), success, wire.CodeUnreachable)
	}
	return nil
}

// call is one request and its answer.
func (c *Client) call(ctx context.Context, name string, t Type, request []byte) ([]byte, error) {
	host, port, err := segment.SplitName(name)
	if err != nil {
		return nil, err
	}
	if len(request) >= MaxFrame {
		return nil, fmt.Errorf("handshake: a %s request of %d bytes, limit %d: %w", t, len(request), MaxFrame-1, wire.CodeTooLarge)
	}
	conn, err := c.dial(ctx, segment.Name(host, port))
	if err != nil {
		return nil, fmt.Errorf("handshake with %s: %w: %w", name, dialCode(err), err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(CallTime))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	answer, err := exchange(conn, frame{typ: t, text: request})
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", wire.CodeOf(ctx.Err()), ctx.Err())
		}
		return nil, fmt.Errorf("%s request to %s: %w", t, name, err)
	}
	return answer, nil
}

func (c *Client) dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, ConnectTime)
	defer cancel()
	if c.Dial != nil {
		return c.Dial(ctx, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// dialCode is why there is no connection: the caller gave up, or nobody is there.
func dialCode(err error) wire.Code {
	if errors.Is(err, context.Canceled) {
		return wire.CodeCancelled
	}
	return wire.CodeUnreachable
}

func exchange(conn net.Conn, request frame) ([]byte, error) {
	if _, err := conn.Write(request.append(nil)); err != nil {
		return nil, &stepError{"sending the request", err}
	}
	answer, err := readFrame(conn, nil)
	if err != nil {
		return nil, err
	}
	if answer.typ != request.typ || answer.old {
		return nil, fmt.Errorf("handshake: answered as %s: %w", answer.typ, wire.CodeState)
	}
	return answer.text, nil
}
