package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/agent/adminpb"
	"meridian/fabric"
	"meridian/wire"
)

const (
	probeTimeout = 5 * time.Second // of one path
	probeWidth   = 16              // paths of one call that are probed side by side
	probeAnswer  = time.Second     // before the caller's deadline, in which the answer reaches it
)

// ProbeFabric moves one checked block over each path asked for. Each path has a bound of
// its own, so that one that hangs takes no other's time.
func (s *adminServer) ProbeFabric(ctx context.Context, req *adminpb.ProbeFabricRequest) (*adminpb.ProbeFabricResponse, error) {
	out := &adminpb.ProbeFabricResponse{}
	var fabrics, peers []string
	var paths []path
	for _, name := range s.a.fabrics.Names() {
		f, _ := s.a.fabrics.Get(name)
		pr, ok := f.(fabric.Prober)
		if !ok {
			continue
		}
		row := &adminpb.Probe{}
		row.Fabric, row.Peer = fabric.SplitName(name)
		if row.Peer != "" {
			peers = append(peers, row.Peer)
		}
		fabrics = append(fabrics, row.Fabric)
		if _, made := f.(fabric.Peered); made && row.Peer == "" {
			continue // its peers have entries of their own; without peers there is no path
		}
		if (req.Fabric != "" && req.Fabric != row.Fabric) || (req.Peer != "" && req.Peer != row.Peer) {
			continue
		}
		paths, out.Probes = append(paths, path{name: name, pr: pr}), append(out.Probes, row)
	}
	switch {
	case len(out.Probes) > 0:
	case req.Fabric != "" && !slices.Contains(fabrics, req.Fabric):
		return nil, unknownName("fabric that can be probed", req.Fabric, fabrics)
	case req.Peer != "":
		return nil, unknownName("peer that can be probed", req.Peer, peers)
	default:
		return nil, adminError(fmt.Errorf("no path of this daemon can be probed: %w", wire.CodeAbsent))
	}
	s.a.probePaths(ctx, paths, out.Probes)
	return out, nil
}

// probePaths fills in a row for each path.
func (a *Agent) probePaths(ctx context.Context, paths []path, rows []*adminpb.Probe) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-min(probeAnswer, time.Until(end)/2)))
		defer cancel()
	}
	places := make(chan struct{}, probeWidth)
	var wg sync.WaitGroup
	for i, p := range paths {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil {
			why := wire.CodeCancelled
			if errors.Is(err, context.DeadlineExceeded) {
				why = wire.CodeDeadline
			}
			rows[i].Code, rows[i].Text = uint32(why), "not tried: the time of the call was over"
			continue
		}
		wg.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			row := rows[i]
			via, gbps, err := a.mover.Probe(ctx, p.name, p.pr)
			row.Ok, row.Via, row.GbytesPerSecond = err == nil, via, gbps
			if err != nil {
				row.Code, row.Text = uint32(wire.CodeOf(err)), err.Error()
			}
		})
	}
	wg.Wait()
}
