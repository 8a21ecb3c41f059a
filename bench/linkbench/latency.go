package linkbench

import (
	"context"
	"fmt"
	"time"

	"meridian/agent/client"
	"meridian/bench/measure"
	"meridian/fabric"
	"meridian/wire"
)

// mapped measures an engine's ACQUIRE of a batch with the release of the one
// before, compared with the bare round trip.
func (r *run) mapped(ctx context.Context, size uint32, set uint64) (Mapped, error) {
	m := Mapped{BlockBytes: size, Batch: mappedBatch}
	e, err := client.DialEngine(ctx, r.addrs.Engine, client.Options{})
	if err != nil {
		return m, err
	}
	defer func() { _ = e.Close() }()
	ns, err := e.Open(ctx, manifest(size))
	if err != nil {
		return m, err
	}
	ks := keys(size, set)
	var lease client.Lease
	var took, echo []time.Duration
	for round := -1; round < r.opt.Rounds; round++ {
		var t []time.Duration
		for end := time.Now().Add(r.opt.Round / 2); time.Now().Before(end); {
			began := time.Now()
			if err := e.AcquireInto(ctx, &lease, ns, ks, client.AcquireOptions{}); err != nil {
				return m, err
			}
			t = append(t, time.Since(began))
			for i := range lease.Blocks {
				if b := &lease.Blocks[i]; b.Err != nil || len(b.Body) != int(size) {
					return m, fmt.Errorf("mapped read: block %d: %d bytes, %w", i, len(b.Body), b.Err)
				}
			}
			lease.Release()
		}
		bare, err := roundTrips(r.addrs.Echo, r.opt.Round/4)
		if err != nil {
			return m, err
		}
		if round >= 0 {
			took, echo = append(took, t...), append(echo, bare...)
		}
	}
	m.P50, m.P99 = measure.Quantile(took, 0.5).Seconds(), measure.Quantile(took, 0.99).Seconds()
	m.EchoP50, m.EchoP99 = measure.Quantile(echo, 0.5).Seconds(), measure.Quantile(echo, 0.99).Seconds()
	return m, nil
}

// overtaking measures urgent pulls alone, then while the holder offloads to
// this side as fast as it can, then the same without urgency.
func (r *run) overtaking(ctx context.Context, size uint32) (Overtaken, error) {
	o := Overtaken{BlockBytes: size, Batch: mappedBatch}
	p := r.newPuller(size, o.Batch, 0)
	d := time.Duration(r.opt.Rounds) * r.opt.Round
	pull := func(class fabric.Class) ([]time.Duration, error) {
		c := fabric.WithClass(ctx, class)
		_, took, err := during(1, d, int(size)*o.Batch, func(int) error { return p.pull(c) })
		return took, err
	}
	idle, err := pull(fabric.ClassUrgent)
	if err != nil {
		return o, err
	}
	if _, err := r.ask(ctx, command{Offload: true, Size: size, Set: r.opt.Set}); err != nil {
		return o, err
	}
	began := time.Now()
	loaded, err := pull(fabric.ClassUrgent)
	if err != nil {
		return o, err
	}
	plain, err := pull(fabric.ClassBulk)
	if err != nil {
		return o, err
	}
	a, err := r.ask(ctx, command{Quiet: true})
	if err != nil {
		return o, err
	}
	o.OffloadGBs = float64(a.Bytes) / time.Since(began).Seconds() / 1e9
	o.IdleP50, o.IdleP99 = measure.Quantile(idle, 0.5).Seconds(), measure.Quantile(idle, 0.99).Seconds()
	o.LoadedP50, o.LoadedP99 = measure.Quantile(loaded, 0.5).Seconds(), measure.Quantile(loaded, 0.99).Seconds()
	o.UnorderedP99 = measure.Quantile(plain, 0.99).Seconds()
	if o.OffloadGBs == 0 {
		return o, fmt.Errorf("no offload got through: %w", wire.CodeFull)
	}
	return o, nil
}
