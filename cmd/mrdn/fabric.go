package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
)

func newFabricCmd(a *app) *cobra.Command {
	return group(a, "fabric", "The ways on which blocks travel", "  mrdn fabric list\n  mrdn fabric probe link", newFabricListCmd(a), newFabricRoutesCmd(a), newFabricProbeCmd(a), newFabricTopologyCmd(a), newFabricMetadataCmd(a), newFabricObjectCmd(a))
}

func newFabricListCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:         "list",
		Short:       "List the fabrics and what each can do",
		Long:        "Lists the daemon's fabrics: enabled or why not, the transports really used so\nfar, and what each is able to do.",
		Example:     "  mrdn fabric list\n  mrdn fabric list -o wide",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.ListFabrics(ctx, &adminpb.ListFabricsRequest{})
			if err != nil {
				return nil, err
			}
			return fabricsOf(r), nil
		})
	})
	return c
}

func newFabricProbeCmd(a *app) *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "probe [FABRIC]",
		Short: "Move one checked block over each path and time it",
		Long: `Moves one block over each path, checks its checksum at the far end, and prints
the transport that really carried it and the rate. The block is not kept. Over
a relay, which carries no blocks, the start of its target's memory is read. The
exit code is 1 when a path fails, and 5 when bytes arrived wrong. Up to 16 paths
are probed side by side, each for 5 seconds at most; name a peer for the rate
that its path has alone.`,
		Example:     "  mrdn fabric probe\n  mrdn fabric probe link --peer prefill-1",
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.Flags().StringVar(&to, "peer", "", "only to this peer")
	c.RunE = a.command(func(ctx context.Context, args []string) (result, error) {
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.ProbeFabric(ctx, &adminpb.ProbeFabricRequest{Fabric: strings.Join(args, ""), Peer: to})
			if err != nil {
				return nil, err
			}
			p := probesOf(r)
			return p, p.err()
		})
	})
	return c
}

type fabricInfo struct {
	Label        string   `json:"label"`
	Enabled      bool     `json:"enabled"`
	Reason       string   `json:"reason,omitempty"`
	Via          []string `json:"via"`
	Peers        []string `json:"peers"`
	Verified     bool     `json:"verified"`
	Persistent   bool     `json:"persistent"`
	OneSided     bool     `json:"one_sided"`
	TwoPhase     bool     `json:"two_phase"`
	Probes       bool     `json:"probes"`
	MaxItemBytes uint64   `json:"max_item_bytes"`
	MaxBatch     uint32   `json:"max_batch"`
}

type fabricsResult struct {
	Fabrics []fabricInfo `json:"fabrics"`
}

func fabricsOf(r *adminpb.ListFabricsResponse) fabricsResult {
	out := fabricsResult{[]fabricInfo{}}
	for _, f := range r.GetFabrics() {
		out.Fabrics = append(out.Fabrics, fabricInfo{
			Label: f.GetLabel(), Enabled: f.GetEnabled(), Reason: f.GetReason(), Via: list(f.GetVia()), Peers: list(f.GetPeers()),
			Verified: f.GetVerified(), Persistent: f.GetPersistent(), OneSided: f.GetOneSided(), TwoPhase: f.GetTwoPhase(),
			Probes: f.GetProbes(), MaxItemBytes: f.GetMaxItemBytes(), MaxBatch: f.GetMaxBatch(),
		})
	}
	return out
}

func (r fabricsResult) grid(wide bool) grid {
	g := grid{head: []string{"FABRIC", "ENABLED", "VIA", "PEERS", "VERIFIED", "REASON"}}
	if wide {
		g.head = append(g.head, "PERSISTENT", "ONE-SIDED", "TWO-PHASE", "MAX ITEM", "MAX BATCH")
	}
	for _, f := range r.Fabrics {
		verified := yesNo(f.Verified)
		if !f.Enabled {
			verified = "" // nothing comes over it
		}
		row := []string{f.Label, yesNo(f.Enabled), strings.Join(f.Via, ","), few(f.Peers, wide), verified, f.Reason}
		if wide {
			row = append(row, yesNo(f.Persistent), yesNo(f.OneSided), yesNo(f.TwoPhase), config.FormatBytes(f.MaxItemBytes), number(f.MaxBatch))
		}
		g.rows = append(g.rows, row)
	}
	if !wide {
		g.foldLast()
	}
	if len(g.rows) == 0 {
		g.note = "no fabrics"
	}
	return g
}

// few are the first names of a list, and how many more there are.
func few(names []string, wide bool) string {
	const most = 2
	if wide || len(names) <= most {
		return strings.Join(names, ",")
	}
	return fmt.Sprintf("%s +%d", strings.Join(names[:most], ","), len(names)-most)
}

type probe struct {
	Fabric          string  `json:"fabric"`
	Peer            string  `json:"peer"`
	OK              bool    `json:"ok"`
	Via             string  `json:"via"`
	GBytesPerSecond float64 `json:"gbytes_per_second"`
	Code            uint32  `json:"code"`
	CodeName        string  `json:"code_name,omitempty"`
	Text            string  `json:"text,omitempty"`
}

type probesResult struct {
	Probes []probe `json:"probes"`
}

func probesOf(r *adminpb.ProbeFabricResponse) probesResult {
	out := probesResult{[]probe{}}
	for _, p := range r.GetProbes() {
		out.Probes = append(out.Probes, probe{
			Fabric: p.GetFabric(), Peer: p.GetPeer(), OK: p.GetOk(), Via: p.GetVia(), GBytesPerSecond: p.GetGbytesPerSecond(),
			Code: p.GetCode(), CodeName: codeName(p.GetCode()), Text: p.GetText(),
		})
	}
	return out
}

// err: a probe that moved nothing proves nothing, so no path is a failure too.
func (r probesResult) err() error {
	if len(r.Probes) == 0 {
		return failed("mrdn fabric list shows the fabrics and their peers", "no path to probe")
	}
	bad := 0
	for _, p := range r.Probes {
		if p.OK {
			continue
		}
		bad++
		if exitOf(codeNumber(p.Code)) == exitIntegrity {
			return integrity("the path corrupts: check NIC, MTU and what lies between", "%s: %s", strings.TrimSuffix(p.Fabric+" to "+p.Peer, " to "), p.CodeName)
		}
	}
	if bad > 0 {
		return failed("mrdn peer list says more about a peer", "%d of %d paths failed", bad, len(r.Probes))
	}
	return nil
}

func (r probesResult) grid(bool) grid {
	g := grid{head: []string{"FABRIC", "PEER", "RESULT", "VIA", "RATE", "TEXT"}}
	for _, p := range r.Probes {
		row := []string{p.Fabric, p.Peer, "ok", p.Via, fmt.Sprintf("%.2f GB/s", p.GBytesPerSecond), p.Text}
		if !p.OK {
			row[2], row[4], row[5] = "failed", "", strings.TrimSpace(p.CodeName+" "+p.Text)
		}
		g.rows = append(g.rows, row)
	}
	g.foldLast()
	return g
}
