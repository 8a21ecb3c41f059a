package transfer

import (
	"bytes"
	"context"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// Tried is a path that a test went.
type Tried struct {
	Name string // registry name
	Via  string
	GBps float64
	Took time.Duration
	Err  error
}

// Home is the registry name of where a block goes by a choice of the routes.
func (m *Mover) Home(c fabric.Choice, ns wire.Namespace, key wire.Key) string {
	return m.home(c, ns, key).name
}

// TestRoute moves one checked block of its own over the path to which a block would go,
// and where that fails over the next one, until one works. The error is why there is no
// further path.
func (m *Mover) TestRoute(ctx context.Context, q fabric.Query, key wire.Key) (tried []Tried, err error) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	for {
		c, err := m.cfg.Routes.Pick(q)
		if err != nil {
			return tried, err
		}
		to := m.home(c, q.NS, key)
		t := Tried{Name: to.name}
		began := time.Now()
		if p, ok := to.fabric.(fabric.Prober); ok {
			t.Via, t.GBps, t.Err = m.Probe(ctx, to.name, p)
		} else {
			t.Via, t.Err = m.exchange(ctx, to)
		}
		t.Took = time.Since(began)
		tried = append(tried, t)
		if t.Err == nil || ctx.Err() != nil {
			return tried, fabric.ContextError(ctx, "")
		}
		q.Failed = alsoFailed(q.Failed, to.route, t.Err)
	}
}

// exchange pushes a block of a namespace of its own to a fabric that is no Prober, pulls
// it back and drops it.
func (m *Mover) exchange(ctx context.Context, to destination) (via string, err error) {
	ns := wire.Manifest{Tenant: "meridian", Model: "route test", Role: "probe", BlockBytes: 1 << 16}.Namespace()
	payload, err := wire.AppendPayload(nil, wire.ThinkComplete, bytes.Repeat([]byte("route"), 1<<12))
	if err != nil {
		return "", err
	}
	it := []fabric.Item{{NS: ns, Key: wire.KeyOf(ns, []byte("test")), M: fabric.Mem{B: payload}, Att: wire.AttestProducer}}
	m.call(ctx, what{to.name, to.fabric, false, OpProbe}, it, func(ctx context.Context) { to.fabric.Push(ctx, it) })
	if err := arrived(&it[0]); err != nil {
		return it[0].Via, err
	}
	it[0].M.B = make([]byte, len(payload))
	m.call(ctx, what{to.name, to.fabric, true, OpProbe}, it, func(ctx context.Context) {
		to.fabric.Pull(ctx, it)
		check(to.name, it)
	})
	via, err = it[0].Via, it[0].Err
	if err == nil && !bytes.Equal(it[0].M.B, payload) {
		err = wire.CodeChecksum
	}
	if d, ok := to.fabric.(fabric.Dropper); ok {
		d.Drop(ctx, it)
	}
	return via, err
}
