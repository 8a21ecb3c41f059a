package main

import (
	"context"
	"errors"

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
	if errors.Is(err, wire.CodeUnreachable) {
		return nil, unreachable(err, "is meridiand running on this host? --engine or MERIDIAN_ENGINE_SOCKET names its socket")
	}
	if err != nil {
		return nil, err
	}
	ns, err := conn.Open(ctx, m)
	if err != nil {
		_ = conn.Close()
		f := asCommandFailure(err)
		if f.code == wire.CodeNSUnknown {
			f.hint = "the daemon must list the tenant in security.tenants"
		}
		return nil, f
	}
	return &engineSession{conn, ns, m.Namespace()}, nil
}

func (s *engineSession) Namespace() wire.Namespace { return s.id }
func (s *engineSession) Close() error              { return s.conn.Close() }

func (s *engineSession) Put(ctx context.Context, key wire.Key, tier wire.Tier, body []byte) error {
	return s.conn.Put(ctx, []client.Block{{NS: s.ns, Key: key, Tier: tier, Body: body}})[0]
}

func (s *engineSession) Get(ctx context.Context, key wire.Key, fetch bool) (wire.Header, []byte, error) {
	l, err := s.conn.Acquire(ctx, s.ns, []wire.Key{key}, client.AcquireOptions{Fetch: fetch, Transient: fetch})
	if err != nil {
		return wire.Header{}, nil, err
	}
	defer l.Release()
	b := &l.Blocks[0]
	if b.Err != nil {
		return wire.Header{}, nil, b.Err
	}
	body := make([]byte, len(b.Body))
	if err := b.CopyTo(body); err != nil {
		return wire.Header{}, nil, err
	}
	return b.Head, body, nil
}
