package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
)

func newStatusCmd(a *app) *cobra.Command {
	var brief, wait bool
	var waitFor time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Say who the daemon is, whether it is ready, and how full it is",
		Long: `Shows the daemon's identity, readiness, listeners and arena. The exit code is 1
when it is not ready, and the reasons are listed.

With --wait it asks again until the daemon is ready or --wait-duration is over;
--timeout bounds each question then.`,
		Example:     "  mrdn status\n  mrdn status --brief\n  mrdn status --wait --wait-duration 5m",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.Flags().BoolVar(&brief, "brief", false, "one line, for probes")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the daemon is ready")
	c.Flags().DurationVar(&waitFor, "wait-duration", time.Minute, "how long to wait")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !wait {
			return a.command(func(ctx context.Context, _ []string) (result, error) { return a.status(ctx, brief) })(c, nil)
		}
		if waitFor <= 0 {
			return usage("--wait-duration %s: it must be above 0", waitFor)
		}
		r, err := a.waitReady(c.Context(), brief, waitFor)
		if r != nil {
			if e := a.render(r); e != nil {
				return e
			}
		}
		if err != nil {
			return asCommandFailure(err)
		}
		return nil
	}
	return c
}

// status asks once.
func (a *app) status(ctx context.Context, brief bool) (result, error) {
	return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
		r, err := adm.Status(ctx, &adminpb.StatusRequest{})
		if err != nil {
			return nil, err
		}
		s := statusOf(r)
		if !s.Ready {
			err = failed("mrdn doctor looks for causes", "%s is not ready: %s", s.Name, s.reasons())
		}
		if brief {
			return briefResult{s.Name, s.Ready, s.Drain, s.Reasons}, err
		}
		return s, err
	})
}

// waitReady asks until the daemon is ready. Until then neither an absent
// daemon nor one that is not ready is a failure.
func (a *app) waitReady(ctx context.Context, brief bool, total time.Duration) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	pause := a.pollEach
	if pause == 0 {
		pause = 250 * time.Millisecond
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var last result
	var why *failure
	for {
		once, done := context.WithTimeout(ctx, a.timeout)
		r, err := a.status(once, brief)
		done()
		if err == nil {
			return r, nil
		}
		f := asCommandFailure(err)
		if f.exit == exitUsage || f.exit == exitRefused {
			return r, f
		}
		if why == nil || (ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded)) { // else it failed only because the time was up
			last, why = r, f
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text := "stopped waiting"
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				text = "waited " + total.String()
			}
			return last, &failure{fmt.Errorf("%s: %w", text, why.err), why.hint, why.exit, why.code}
		}
	}
}

type reason struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

type port struct {
	Kind    string `json:"kind"`
	Address string `json:"address"`
}

type tierUsage struct {
	Tier      string `json:"tier"`
	Blocks    uint64 `json:"blocks"`
	Bytes     uint64 `json:"bytes"`
	Evictions uint64 `json:"evictions"`
}

type arenaUsage struct {
	CapacityBytes    uint64      `json:"capacity_bytes"`
	CapacityNote     string      `json:"capacity_note,omitempty"`
	UsedBytes        uint64      `json:"used_bytes"`
	ReservedBytes    uint64      `json:"reserved_bytes"`
	LeasedBytes      uint64      `json:"leased_bytes"`
	QuarantinedBytes uint64      `json:"quarantined_bytes"`
	Blocks           uint64      `json:"blocks"`
	Leases           uint64      `json:"leases"`
	Segments         uint32      `json:"segments"`
	Tiers            []tierUsage `json:"tiers"`
}

type statusResult struct {
	Name            string        `json:"name"`
	Agent           string        `json:"agent"`
	Incarnation     uint64        `json:"incarnation"`
	Version         string        `json:"version"`
	WireVersion     uint32        `json:"wire_version"`
	LinkVersion     uint32        `json:"link_version"`
	PID             uint32        `json:"pid"`
	UptimeMS        uint64        `json:"uptime_ms"`
	Ready           bool          `json:"ready"`
	Reasons         []reason      `json:"reasons"`
	Drain           string        `json:"drain"`
	Ports           []port        `json:"ports"`
	Arena           arenaUsage    `json:"arena"`
	PeersReady      uint32        `json:"peers_ready"`
	PeersConfigured uint32        `json:"peers_configured"`
	EngineSessions  uint32        `json:"engine_sessions"`
	Engines         []engineUsage `json:"engines"`
	Namespaces      uint32        `json:"namespaces"`
	ConfigPath      string        `json:"config_path,omitempty"`
}

// engineUsage is one engine that is connected: a session or a group of sessions.
type engineUsage struct {
	Name       string `json:"name"`
	Sessions   uint32 `json:"sessions"`
	Namespaces uint32 `json:"namespaces"`
	Requests   uint32 `json:"requests"`
}

func statusOf(r *adminpb.StatusResponse) statusResult {
	s := statusResult{
		Name: r.GetName(), Agent: r.GetAgent(), Incarnation: r.GetIncarnation(), Version: r.GetVersion(),
		WireVersion: r.GetWireVersion(), LinkVersion: r.GetLinkVersion(), PID: r.GetPid(), UptimeMS: r.GetUptimeMs(),
		Ready: r.GetReady(), Reasons: []reason{}, Engines: []engineUsage{}, Drain: enumWord(r.GetDrain().String(), "DRAIN_STATE_"), Ports: []port{},
		PeersReady: r.GetPeersReady(), PeersConfigured: r.GetPeersConfigured(), EngineSessions: r.GetEngineSessions(),
		Namespaces: r.GetNamespaces(), ConfigPath: r.GetConfigPath(),
	}
	for _, e := range r.GetEngines() {
		s.Engines = append(s.Engines, engineUsage{e.GetName(), e.GetSessions(), e.GetNamespaces(), e.GetRequests()})
	}
	for _, x := range r.GetReasons() {
		s.Reasons = append(s.Reasons, reason{x.GetId(), x.GetText()})
	}
	for _, p := range r.GetPorts() {
		s.Ports = append(s.Ports, port{p.GetKind(), p.GetAddress()})
	}
	u := r.GetArena()
	s.Arena = arenaUsage{
		CapacityBytes: u.GetCapacityBytes(), CapacityNote: u.GetCapacityNote(), UsedBytes: u.GetUsedBytes(),
		ReservedBytes: u.GetReservedBytes(), LeasedBytes: u.GetLeasedBytes(), QuarantinedBytes: u.GetQuarantinedBytes(),
		Blocks: u.GetBlocks(), Leases: u.GetLeases(), Segments: u.GetSegments(), Tiers: []tierUsage{},
	}
	for _, t := range u.GetTiers() {
		s.Arena.Tiers = append(s.Arena.Tiers, tierUsage{tierName(t.GetTier()), t.GetBlocks(), t.GetBytes(), t.GetEvictions()})
	}
	return s
}

func (s statusResult) reasons() string { return reasonText(s.Reasons) }

func reasonText(rs []reason) string {
	if len(rs) == 0 {
		return "no reason given"
	}
	parts := make([]string, len(rs))
	for i, r := range rs {
		parts[i] = r.ID + " (" + r.Text + ")"
	}
	return strings.Join(parts, ", ")
}

func (s statusResult) grid(wide bool) grid {
	state := "ready"
	if !s.Ready {
		state = "not ready"
	}
	rows := [][]string{
		{"name", s.Name}, {"state", state},
	}
	for _, r := range s.Reasons {
		rows = append(rows, []string{"  " + r.ID, r.Text})
	}
	rows = append(rows, [][]string{
		{"drain", s.Drain},
		{"agent", short(s.Agent, wide)},
		{"version", fmt.Sprintf("%s (MRDN %d, link %d)", s.Version, s.WireVersion, s.LinkVersion)},
		{"uptime", duration(time.Duration(s.UptimeMS) * time.Millisecond)},
		{"peers", fmt.Sprintf("%d of %d ready", s.PeersReady, s.PeersConfigured)},
		{"engines", fmt.Sprintf("%d, of %d sessions", len(s.Engines), s.EngineSessions)},
	}...)
	if wide {
		for _, e := range s.Engines {
			rows = append(rows, []string{"  " + e.Name, fmt.Sprintf("%d sessions, %d namespaces, %d requests", e.Sessions, e.Namespaces, e.Requests)})
		}
	}
	rows = append(rows, []string{"namespaces", number(s.Namespaces)})
	for _, p := range s.Ports {
		rows = append(rows, []string{p.Kind, p.Address})
	}
	rows = append(rows, s.Arena.rows(wide)...)
	if wide {
		rows = append(rows, []string{"incarnation", number(s.Incarnation)}, []string{"pid", number(s.PID)}, []string{"config", s.ConfigPath})
	}
	return grid{rows: rows}
}

func (u arenaUsage) rows(wide bool) [][]string {
	rows := [][]string{
		{"arena", fmt.Sprintf("%s of %s in %d blocks", config.FormatBytes(u.UsedBytes), config.FormatBytes(u.CapacityBytes), u.Blocks)},
	}
	for _, t := range u.Tiers {
		rows = append(rows, []string{"  " + t.Tier, fmt.Sprintf("%s in %d blocks, %d evicted", config.FormatBytes(t.Bytes), t.Blocks, t.Evictions)})
	}
	if wide {
		rows = append(rows, [][]string{
			{"reserved", config.FormatBytes(u.ReservedBytes)},
			{"leased", fmt.Sprintf("%s by %d leases", config.FormatBytes(u.LeasedBytes), u.Leases)},
			{"quarantined", config.FormatBytes(u.QuarantinedBytes)},
			{"segments", number(u.Segments)},
			{"capacity", u.CapacityNote},
		}...)
	}
	return rows
}

type briefResult struct {
	Name    string   `json:"name"`
	Ready   bool     `json:"ready"`
	Drain   string   `json:"drain"`
	Reasons []reason `json:"reasons"`
}

func (b briefResult) grid(bool) grid {
	if b.Ready {
		return grid{rows: [][]string{{b.Name, "ready", b.Drain}}}
	}
	return grid{rows: [][]string{{b.Name, "not ready", b.Drain, reasonText(b.Reasons)}}}
}

// enumWord is the word of a protobuf enum's value: READY for PEER_STATE_READY,
// in lower case.
func enumWord(name, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(name, prefix))
}
