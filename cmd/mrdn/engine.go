package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"meridian/agent/client"
	"meridian/wire"
)

// engineSession is an engine over the daemon's socket.
type engineSession struct {
	conn *client.Engine
	ns   client.NS
	id   wire.Namespace
}

// dialEngine connects to an engine socket and opens the namespace of m.
func dialEngine(ctx context.Context, path string, m wire.Manifest) (engine, error) {
	conn, err := client.DialEngine(ctx, path, client.Options{})
	var closed *client.ClosedError
	switch {
	case err == nil:
	case errors.Is(err, wire.CodeUnreachable):
		return nil, engineSocket.unreachable(path, err)
	case errors.Is(err, wire.CodeAuth):
		f := asCommandFailure(err)
		f.hint = "the daemon takes engines of its own user, of root and of security.uids"
		return nil, f
	case errors.As(err, &closed) && slices.Contains(foreign, closed.Code):
		return nil, engineSocket.mistaken(path, err)
	default:
		return nil, err
	}
	ns, err := conn.Open(ctx, m)
	if err != nil {
		_ = conn.Close()
		f := asCommandFailure(err)
		if f.code == wire.CodeNSUnknown {
			f.err = fmt.Errorf("the daemon has no tenant %q: %w", m.Tenant, f.err)
			f.hint = "--tenant must be one that the daemon's configuration lists in security.tenants"
		}
		return nil, f
	}
	return &engineSession{conn, ns, m.Namespace()}, nil
}

// foreign are the codes of a HELLO that was answered by something else than an
// engine's socket.
var foreign = []wire.Code{wire.CodeLaneLost, wire.CodeLinkMagic, wire.CodeUnsupported, wire.CodeLength, wire.CodeCRC, wire.CodeHelloTimeout}

func (s *engineSession) Namespace() wire.Namespace { return s.id }
func (s *engineSession) Close() error              { return s.conn.Close() }

func (s *engineSession) Put(ctx context.Context, key wire.Key, tier wire.Tier, body []byte) error {
	return s.conn.Put(ctx, []client.Block{{NS: s.ns, Key: key, Tier: tier, Body: body}})[0]
}

// explained replaces the hint of a code where it speaks to an engine and not to
// the user of a command.
func explained(err error) error {
	f := asCommandFailure(err)
	switch f.code {
	case wire.CodeAbsent:
		f.err = fmt.Errorf("the block is not here, and no peer that was asked has it: %w", f.err)
		f.hint = "the flags of the manifest (--tenant, --model and so on) must be those of the put; mrdn block ls lists what is here"
	case wire.CodeLaneLost:
		f.hint = "the daemon ended the connection: its log says why"
	}
	return f
}

func (s *engineSession) Get(ctx context.Context, key wire.Key, fetch bool) (wire.Header, []byte, error) {
	l, err := s.conn.Acquire(ctx, s.ns, []wire.Key{key}, client.AcquireOptions{Fetch: fetch, Transient: fetch})
	if err != nil {
		return wire.Header{}, nil, err
	}
	defer l.Release()
	b := &l.Blocks[0]
	switch {
	case b.Err != nil && l.Why != "":
		return wire.Header{}, nil, fmt.Errorf("%s: %w", l.Why, b.Err)
	case b.Err != nil:
		return wire.Header{}, nil, b.Err
	}
	body := make([]byte, len(b.Body))
	if err := b.CopyTo(body); err != nil {
		return wire.Header{}, nil, err
	}
	return b.Head, body, nil
}
