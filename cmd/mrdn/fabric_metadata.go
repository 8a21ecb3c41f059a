package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
)

func newFabricMetadataCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "metadata [FABRIC]",
		Short: "List what agents keep at the daemon's hubs, and who put it there",
		Long: `Lists the metadata that NIXL agents keep at this daemon's hubs (kind nixl-hub):
the agent whose they are, the address and the process that put them, and since
when. Those of an agent that is gone end soon.`,
		Example:     "  mrdn fabric metadata\n  mrdn fabric metadata hub -o json",
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(ctx context.Context, args []string) (result, error) {
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.ListMetadata(ctx, &adminpb.ListMetadataRequest{Fabric: strings.Join(args, "")})
			if err != nil {
				return nil, err
			}
			return metadataOf(r), nil
		})
	})
	return c
}

type metadataEntry struct {
	Fabric string `json:"fabric"`
	Name   string `json:"name"`
	Label  string `json:"label"`
	From   string `json:"from"`
	PID    uint32 `json:"pid"`
	AgeMS  uint64 `json:"age_ms"`
	Bytes  uint64 `json:"bytes"`
	Alive  bool   `json:"alive"`
}

type metadataResult struct {
	Entries []metadataEntry `json:"entries"`
	Count   uint32          `json:"count"`
}

func metadataOf(r *adminpb.ListMetadataResponse) metadataResult {
	out := metadataResult{Entries: []metadataEntry{}, Count: r.GetCount()}
	for _, e := range r.GetEntries() {
		out.Entries = append(out.Entries, metadataEntry{e.GetFabric(), e.GetName(), e.GetLabel(), e.GetFrom(), e.GetPid(), e.GetAgeMs(), e.GetBytes(), e.GetAlive()})
	}
	return out
}

func (r metadataResult) grid(bool) grid {
	g := grid{head: []string{"NAME", "LABEL", "FABRIC", "FROM", "PID", "AGE", "BYTES", "STATE"}}
	for _, e := range r.Entries {
		state := "alive"
		if !e.Alive {
			state = "gone"
		}
		age := time.Duration(e.AgeMS) * time.Millisecond
		g.rows = append(g.rows, []string{e.Name, e.Label, e.Fabric, e.From, number(e.PID), duration(age), number(e.Bytes), state})
	}
	switch n := len(r.Entries); {
	case n == 0:
		g.note = "no agent keeps metadata here"
	case uint32(n) < r.Count:
		g.note = fmt.Sprintf("%d of %d are shown", n, r.Count)
	}
	return g
}
