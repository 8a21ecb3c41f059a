package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"meridian/agent"
	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
)

// awaitReady waits until a daemon's /readyz says so.
func awaitReady(ctx context.Context, base string) error {
	var last string
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		code, body, err := get(ctx, base+"/readyz")
		if err == nil && code == http.StatusOK {
			return nil
		}
		if last = string(body); err != nil {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %s", last)
		case <-t.C:
		}
	}
}

func get(ctx context.Context, url string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	return res.StatusCode, b, err
}

// varz reads a daemon's own numbers.
func varz(ctx context.Context, base string) (agent.Varz, error) {
	var v agent.Varz
	_, b, err := get(ctx, base+"/varz")
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(b, &v)
}

// watchEvery is how often a run looks at what the decode daemon has moved.
const watchEvery = 500 * time.Millisecond

// gauge is what a daemon has moved, for the progress line.
type gauge struct {
	base   string
	at     time.Time
	pulled uint64
	rate   float64 // GB/s since the look before
	last   agent.Varz
}

func (g *gauge) look(ctx context.Context) {
	v, err := varz(ctx, g.base)
	if err != nil {
		return // the run itself will say so
	}
	var in uint64
	for _, m := range v.Moved {
		if m.Direction == "in" {
			in += m.Bytes
		}
	}
	now := time.Now()
	if !g.at.IsZero() {
		g.rate = float64(in-g.pulled) / now.Sub(g.at).Seconds() / 1e9
	}
	g.at, g.pulled, g.last = now, in, v
}

// progressText is the line that shows how far a run is.
func progressText(finished, all int, left float64, g *gauge) string {
	return fmt.Sprintf("%d/%d, %.0f s left; %s", finished, all, left, g.text())
}

func (g *gauge) text() string {
	return fmt.Sprintf("%s pulled, %s, %s offloaded",
		config.FormatBytes(g.pulled), rate(g.rate), config.FormatBytes(g.last.Offload.Bytes))
}

// settled waits until nothing is in flight, leased or reserved at a daemon any
// more, for at most settleTime, and returns its last numbers either way.
func settled(ctx context.Context, base string) (agent.Varz, error) {
	deadline := time.Now().Add(settleTime)
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		v, err := varz(ctx, base)
		if err != nil {
			return v, err
		}
		open := 0
		for _, n := range openCounts(v) {
			open += n
		}
		if open == 0 || time.Now().After(deadline) {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-t.C:
		}
	}
}

// openCounts are the counts that must be zero when nobody asks for anything.
func openCounts(v agent.Varz) map[string]int {
	b, moving := v.Blocks, 0
	for _, f := range v.Fabrics {
		moving += f.Calls + f.Served
	}
	return map[string]int{
		"leases": b.Leases, "reserved slots": b.Reserved, "quarantined slots": b.Quarantined, "leaked slots": b.Leaked,
		"transient blocks": b.Transient, "orphaned sessions": b.Orphans, "engine sessions": v.Engine.Sessions,
		"tracked requests": int(v.Engine.Scheduler.Tracked()), "transfers in": v.TransfersIn, "transfers out": v.TransfersOut,
		"waiting offloads": v.Offload.Waiting, "requests on fabrics": moving,
	}
}

// pulls are the pulls that a daemon made, from its list of transfers.
func pulls(ctx context.Context, socket string) (durations []time.Duration, busy time.Duration, bytes uint64, err error) {
	a, err := client.DialAdmin(ctx, socket)
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() { _ = a.Close() }()
	res, err := a.ListTransfers(ctx, &adminpb.ListTransfersRequest{Limit: 1 << 20})
	if err != nil {
		return nil, 0, 0, err
	}
	type span struct{ from, to time.Duration }
	var spans []span
	for _, t := range res.Transfers {
		if t.Op != "pull" || t.Direction != adminpb.Direction_DIRECTION_IN || t.Running {
			continue
		}
		d := time.Duration(t.DurationNs)
		durations = append(durations, d)
		bytes += t.Bytes
		from := -time.Duration(t.AgeMs) * time.Millisecond
		spans = append(spans, span{from, from + d})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.from - b.from) })
	end := time.Duration(-1 << 62)
	for _, s := range spans {
		if s.to <= end {
			continue
		}
		busy += s.to - max(s.from, end)
		end = s.to
	}
	return durations, busy, bytes, nil
}
