package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"meridian/agent/engine"
	"meridian/agent/transfer"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/scheduler"
	"meridian/wire"
	proto "meridian/wire/link"
)

// host is the daemon as an engine's session sees it.
type host struct{ a *Agent }

// OpenNamespace makes a manifest's namespace known here for as long as the engine
// has it open; peers are asked with the first request that names it.
func (h host) OpenNamespace(engine quota.Holder, m wire.Manifest) (wire.Namespace, func(), error) {
	return h.a.spaces.OpenEngine(engine, m)
}

// urgent is the class of what an engine, and so a user, waits for.
func urgent(ctx context.Context) context.Context { return fabric.WithClass(ctx, fabric.ClassUrgent) }

// Fetch pulls what is missing.
func (h host) Fetch(ctx context.Context, f engine.Fetch) []error {
	ctx, span := h.a.tracer.Start(ctx, "meridian.fetch")
	defer span.End()
	turn, _ := f.Turn.(*transfer.Turn)
	job := transfer.Job{Owner: f.Owner, NS: f.NS, Keys: f.Keys, Transient: f.Transient, Turn: turn, Each: f.Each}
	if f.Holder == (engine.Holder{}) {
		return h.a.mover.Fetch(urgent(ctx), job)
	}
	return h.a.mover.FetchFrom(urgent(ctx), job, transfer.Hint(f.Holder), f.Refs, f.Rest)
}

// TakeTurn puts a request behind those of its session that came before.
func (h host) TakeTurn(session, ticket uint64) engine.Turn {
	return h.a.mover.TakeTurn(urgent(context.Background()), session, ticket)
}

// FindRemote asks the other holders, or one. A holder that could not answer is told by
// its code: not to know is not to know that it is absent. INCARNATION: the one that was
// named is gone for good.
func (h host) FindRemote(ctx context.Context, ns wire.Namespace, at engine.Holder, keys []wire.Key) []proto.Have {
	out := make([]proto.Have, len(keys))
	for i, f := range h.a.mover.FindAt(ctx, ns, transfer.Hint(at), keys) {
		if at != (engine.Holder{}) && errors.Is(f.Err, wire.CodeIncarnation) {
			out[i].Status = wire.CodeIncarnation
			continue
		}
		if f.Err != nil {
			out[i].Status = wire.CodeOf(f.Err)
			continue
		}
		out[i] = proto.Have{Status: wire.CodeOK, Tier: f.Head.Tier, Att: f.Att, Len: f.Head.BodyLen}
		f.Head.Append(out[i].Head[:0])
	}
	return out
}

// Offload queues think blocks that went cold; with aggressive_think_eviction
// they are dropped instead, fabric or not.
func (h host) Offload(ns wire.Namespace, keys []wire.Key) {
	if h.a.cfg.KVMemory.AggressiveThinkEviction {
		h.a.store.Discard(ns, keys)
		return
	}
	if h.a.cfg.Disagg.Enabled {
		h.a.mover.Offer(ns, slices.Clone(keys))
	}
}

// storedHook writes prompt blocks through to the routed fabric before their
// PUT is acknowledged, where the config asks for it.
func (a *Agent) storedHook() func(context.Context, wire.Namespace, []wire.Key) {
	if !a.cfg.Disagg.Enabled || !a.cfg.Disagg.WriteThrough {
		return nil
	}
	return a.mover.Store
}

// engineObserver counts what engines do.
type engineObserver struct{ a *Agent }

func (o engineObserver) Request(t proto.Type, _ int, d time.Duration, code wire.Code) {
	if t == proto.TypeAcquire {
		o.a.metrics.acquireSeconds.Observe(d.Seconds())
	}
	if code != wire.CodeOK {
		o.a.metrics.failures.WithLabelValues(reasonOf(code)).Inc()
	}
}

func (o engineObserver) Refused(code wire.Code) {
	o.a.metrics.refusals.WithLabelValues(reasonOf(code)).Inc()
}

func (o engineObserver) Phase(e scheduler.Event) {
	if e.Kind == scheduler.ForceBudget {
		o.a.log.Debug("budget forced", "request", uint32(e.ID), "used", e.Used, "reason", e.Reason.String())
	}
}
