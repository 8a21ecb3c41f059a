package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
)

func newTransferCmd(a *app) *cobra.Command {
	var limit uint32
	var from string
	var running bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List running and recent transfers",
		Long: `Lists transfers, running ones first, then the newest: bytes, items, peer,
direction, class, the transport that carried it, how long it took and how it
ended.`,
		Example:     "  mrdn transfer list\n  mrdn transfer list --peer prefill-1 --running",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.Flags().Uint32Var(&limit, "limit", 100, "at most so many")
	c.Flags().StringVar(&from, "peer", "", "only those of this peer")
	c.Flags().BoolVar(&running, "running", false, "only those that are under way")
	c.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		if limit == 0 {
			return nil, usage("--limit 0: it must be above 0")
		}
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.ListTransfers(ctx, &adminpb.ListTransfersRequest{Limit: limit, Peer: from, RunningOnly: running})
			if err != nil {
				return nil, err
			}
			return transfersOf(r), nil
		})
	})
	return group(a, "transfer", "Blocks on their way, and those that arrived", "  mrdn transfer list", c)
}

type transfer struct {
	ID          uint64 `json:"id"`
	Running     bool   `json:"running"`
	Fabric      string `json:"fabric"`
	Peer        string `json:"peer"`
	Direction   string `json:"direction"`
	Op          string `json:"op"`
	Class       uint32 `json:"class"`
	Via         string `json:"via"`
	Bytes       uint64 `json:"bytes"`
	Items       uint32 `json:"items"`
	FailedItems uint32 `json:"failed_items"`
	AgeMS       uint64 `json:"age_ms"`
	DurationNS  uint64 `json:"duration_ns"`
	Code        uint32 `json:"code"`
	CodeName    string `json:"code_name,omitempty"`
}

type transfersResult struct {
	Transfers []transfer `json:"transfers"`
}

func transfersOf(r *adminpb.ListTransfersResponse) transfersResult {
	out := transfersResult{[]transfer{}}
	for _, t := range r.GetTransfers() {
		out.Transfers = append(out.Transfers, transfer{
			ID: t.GetId(), Running: t.GetRunning(), Fabric: t.GetFabric(), Peer: t.GetPeer(),
			Direction: enumWord(t.GetDirection().String(), "DIRECTION_"), Op: t.GetOp(), Class: t.GetClass(), Via: t.GetVia(),
			Bytes: t.GetBytes(), Items: t.GetItems(), FailedItems: t.GetFailedItems(), AgeMS: t.GetAgeMs(),
			DurationNS: t.GetDurationNs(), Code: t.GetCode(), CodeName: codeName(t.GetCode()),
		})
	}
	return out
}

func (r transfersResult) grid(wide bool) grid {
	g := grid{head: []string{"ID", "PEER", "DIR", "OP", "VIA", "BYTES", "ITEMS", "TOOK", "RESULT"}}
	if wide {
		g.head = append(g.head, "FABRIC", "CLASS", "FAILED", "RATE", "AGE")
	}
	for _, t := range r.Transfers {
		took, end := duration(time.Duration(t.DurationNS)), "ok"
		switch {
		case t.Running:
			took, end = duration(time.Duration(t.AgeMS)*time.Millisecond), "running"
		case t.CodeName != "":
			end = t.CodeName
		}
		row := []string{number(t.ID), t.Peer, t.Direction, t.Op, t.Via, config.FormatBytes(t.Bytes), number(t.Items), took, end}
		if wide {
			row = append(row, t.Fabric, number(t.Class), number(t.FailedItems), rate(t.Bytes, t.DurationNS), duration(time.Duration(t.AgeMS)*time.Millisecond))
		}
		g.rows = append(g.rows, row)
	}
	if len(g.rows) == 0 {
		g.note = "no transfers"
	}
	return g
}

// rate is in GB/s, as the probes' is: 10^9 bytes a second.
func rate(bytes, ns uint64) string {
	if ns == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f GB/s", float64(bytes)/float64(ns))
}
