package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"meridian/agent/adminpb"
	"meridian/fabric"
	"meridian/wire"
)

// ListRoutes lists the rules in force.
func (s *adminServer) ListRoutes(context.Context, *adminpb.ListRoutesRequest) (*adminpb.ListRoutesResponse, error) {
	out := &adminpb.ListRoutesResponse{}
	rules, added := s.a.routes.Counts(), int(s.a.added.Load())
	for i := range rules {
		r := &rules[i]
		origin := routeOfFile
		switch {
		case i < added:
			origin = routeAdded
		case i == len(rules)-1 && s.a.cfg.Disagg.Enabled:
			origin = routeOfDisagg
		}
		out.Routes = append(out.Routes, &adminpb.RouteState{Route: pbRoute(&r.Route), Text: r.Route.String(), Taken: r.Taken, Passed: r.Passed, Origin: origin})
	}
	return out, nil
}

// tierKeys are the tiers as a [[route]] names them.
var tierKeys = [...]string{"think_complete", "think_active", "output_critical"}

func pbRoute(r *fabric.Route) *adminpb.Route {
	out := &adminpb.Route{From: r.From, Peer: r.Peer, MinBytes: r.MinBytes, MaxBytes: r.MaxBytes, Fabric: r.Fabric, Require: r.Require}
	var tiers []string
	for _, t := range r.Tiers {
		tiers = append(tiers, tierKeys[t])
	}
	out.Tier = strings.Join(tiers, ",")
	if r.NS != (wire.Namespace{}) {
		out.Namespace = r.NS.String()
	}
	return out
}

// query is a question as the routes take it.
func (s *adminServer) query(q *adminpb.RouteQuery) (out fabric.Query, key wire.Key, err error) {
	out = fabric.Query{Peer: q.GetPeer(), AnyPeer: q.GetPeer() == "", Bytes: q.GetBytes()}
	out.From.Fabric, out.From.Peer = fabric.SplitName(q.GetFrom())
	if q.GetTier() != adminpb.Tier_TIER_UNSPECIFIED {
		out.Tier = wire.Tier(q.GetTier() - 1)
	}
	if q.GetNamespace() != "" {
		if out.NS, err = wire.ParseNamespace(q.GetNamespace()); err != nil {
			return out, key, fmt.Errorf("%w: %w", err, wire.CodeInvalid)
		}
	}
	if q.GetKey() != "" {
		v, err := s.stat(q.GetKey())
		if err != nil {
			return out, key, err
		}
		key, out.NS, out.Bytes = v.Key, v.NS, uint64(v.Head.BodyLen)
		if out.Tier = v.Tier; out.From.Fabric != "" {
			out.Tier = v.Head.Tier
		}
	}
	if out.From.Fabric != "" {
		f, ok := s.a.fabrics.Get(q.GetFrom())
		if _, peered := f.(fabric.Peered); !ok || out.From.Peer == "" && !peered {
			return out, key, unknownName("fabric whose peers bring blocks", q.GetFrom(), s.peered())
		}
	}
	return out, key, nil
}

// peered are the names of fabrics that have peers.
func (s *adminServer) peered() (names []string) {
	for name, f := range s.a.whole {
		if _, ok := f.(fabric.Peered); ok {
			names = append(names, name)
		}
	}
	return names
}

// ExplainRoute says where a block would go, and why.
func (s *adminServer) ExplainRoute(_ context.Context, req *adminpb.RouteQuery) (*adminpb.ExplainRouteResponse, error) {
	q, key, err := s.query(req)
	if err != nil {
		return nil, adminOrOwn(err)
	}
	e := s.a.routes.Explain(q)
	out := &adminpb.ExplainRouteResponse{}
	for _, st := range e.Steps {
		out.Steps = append(out.Steps, &adminpb.RouteStep{Text: st.Route.String(), Chosen: st.Chosen, Reason: st.Reason})
	}
	switch {
	case e.Err != nil:
		out.Code, out.Text = uint32(wire.CodeOf(e.Err)), e.Err.Error()
	case req.GetKey() != "":
		out.Fabric, out.Peer = fabric.SplitName(s.a.mover.Home(e.Choice, q.NS, key))
	default:
		out.Fabric, out.Peer = fabric.SplitName(e.Choice.Name)
	}
	if e.Err == nil && e.Choice.Fallback {
		out.Wanted, out.Text = e.Choice.Wanted, e.Choice.Why.Error()
	}
	return out, nil
}

// adminOrOwn is an error of the API as it is, and any other as one of it.
func adminOrOwn(err error) error {
	if adminpb.Detail(err) != nil {
		return err
	}
	return adminError(err)
}

// TestRoute moves one checked block over the path to which a block would go.
func (s *adminServer) TestRoute(ctx context.Context, req *adminpb.RouteQuery) (*adminpb.TestRouteResponse, error) {
	q, key, err := s.query(req)
	if err != nil {
		return nil, adminOrOwn(err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out := &adminpb.TestRouteResponse{}
	tries, err := s.a.mover.TestRoute(ctx, q, key)
	for _, t := range tries {
		row := &adminpb.RouteAttempt{Ok: t.Err == nil, Via: t.Via, DurationNs: uint64(t.Took), GbytesPerSecond: t.GBps}
		row.Fabric, row.Peer = fabric.SplitName(t.Name)
		if t.Err != nil {
			row.Code, row.Text = uint32(wire.CodeOf(t.Err)), t.Err.Error()
		}
		out.Attempts = append(out.Attempts, row)
	}
	if err != nil {
		out.Code, out.Text = uint32(wire.CodeOf(err)), err.Error()
	}
	return out, nil
}

// AddRoute puts a rule above all others.
func (s *adminServer) AddRoute(ctx context.Context, req *adminpb.AddRouteRequest) (*adminpb.AddRouteResponse, error) {
	r := req.GetRoute()
	keys := map[string]any{}
	toml := "[[route]]\n"
	add := func(key string, set bool, v any, text string) {
		if set {
			keys[key] = v
			toml += key + " = " + text + "\n"
		}
	}
	for _, k := range []struct{ key, v string }{
		{"from", r.GetFrom()}, {"tier", r.GetTier()}, {"namespace", r.GetNamespace()}, {"peer", r.GetPeer()},
	} {
		add(k.key, k.v != "", k.v, strconv.Quote(k.v))
	}
	for _, k := range []struct {
		key string
		v   uint64
	}{{"min_bytes", r.GetMinBytes()}, {"max_bytes", r.GetMaxBytes()}} {
		add(k.key, k.v != 0, int64(min(k.v, 1<<62)), strconv.FormatUint(k.v, 10))
	}
	add("fabric", true, r.GetFabric(), strconv.Quote(r.GetFabric()))
	add("require", r.GetRequire(), true, "true")
	if err := s.a.addRoute(ctx, keys); err != nil {
		return nil, adminError(err)
	}
	return &adminpb.AddRouteResponse{Toml: toml}, nil
}
