package client

import (
	"context"

	"meridian/wire"
	"meridian/wire/link"
)

// Open opens the namespace of a manifest. Keys of its blocks are
// wire.KeyOf(m.Namespace(), hash). *OpenError: NS_UNKNOWN, also where the tenant
// is not allowed; GEOMETRY with the field that differs; MANIFEST; TOO_MANY; BUSY, of
// a daemon that gives the staging ring with the namespace.
func (e *Engine) Open(ctx context.Context, m wire.Manifest) (NS, error) {
	if err := m.Check(); err != nil {
		return 0, err
	}
	c, err := e.take(ctx, "open")
	if err != nil {
		return 0, err
	}
	if err := send(e, c, link.TypeOpen, link.Open{Manifest: m.Append(nil)}); err != nil {
		e.putBack(c)
		return 0, err
	}
	if err := e.wait(ctx, c); err != nil {
		return 0, err
	}
	defer e.putBack(c)
	if c.got != link.TypeOpened {
		if err := ended("open", &c.end); err != nil {
			return 0, err
		}
		return 0, protocolError(wire.CodeState, "OPEN was not answered")
	}
	o := &c.opened
	if o.Status != wire.CodeOK {
		return 0, &OpenError{Code: o.Status, Field: o.Field, Ours: o.Theirs, Theirs: o.Ours, RetryMS: c.end.RetryMS, Text: c.end.Text}
	}
	return NS(o.NS), nil
}

// Found is what Has knows of one key.
type Found struct {
	Err  error // ABSENT: nobody has it
	Here bool  // in this daemon's arena; else another holder has it
	Tier wire.Tier
	Att  wire.Attest
	Head wire.Header
}

// Has asks which blocks exist; with remote, those that are not here are looked
// for at other holders. Nothing is granted: what exists may be gone in a moment.
func (e *Engine) Has(ctx context.Context, ns NS, keys []wire.Key, remote bool) ([]Found, error) {
	if err := e.tooMany("has", len(keys)); err != nil {
		return nil, err
	}
	c, err := e.take(ctx, "has")
	if err != nil {
		return nil, err
	}
	o := AcquireOptions{Fetch: remote}
	c.wants = wantsOf(c.wants, ns, keys, o.flags())
	if err := send(e, c, link.TypeHas, link.Has{DeadlineMS: deadlineMS(ctx, 0), Items: c.wants}); err != nil {
		e.putBack(c)
		return nil, err
	}
	if err := e.wait(ctx, c); err != nil {
		return nil, err
	}
	defer e.putBack(c)
	if err := ended("has", &c.end); err != nil {
		return nil, err
	}
	if c.got != link.TypeTable || len(c.table.Items) != len(keys) {
		return nil, protocolError(wire.CodeState, "HAS of %d items was answered with %d", len(keys), len(c.table.Items))
	}
	found := make([]Found, len(keys))
	for i := range c.table.Items {
		h := &c.table.Items[i]
		if found[i].Err = itemError(h.Status); h.Status != wire.CodeOK {
			continue
		}
		head, err := wire.ParseHeader(h.Head[:], wire.Strict, wire.MaxBody)
		found[i] = Found{Err: err, Here: h.Gen != 0, Tier: h.Tier, Att: h.Att, Head: head}
	}
	return found, nil
}
