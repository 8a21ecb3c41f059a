package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
)

func newConfigReloadCmd(a *app) *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use:   "reload",
		Short: "Let the daemon read its configuration again",
		Long: `The daemon reads its file again, as at SIGHUP, and takes over what can change
while it runs: peers, keys, certificates, tenants, shares (docs/config.md marks
the keys). Lists what was taken over and what needs a restart, and the warnings
that mrdn config check gives. A configuration with a problem is refused as a
whole, with exit code 1. Secrets are not shown.`,
		Example:     "  mrdn config reload --dry-run\n  mrdn config reload",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: writing},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would change, and change nothing")
	c.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.Reload(ctx, &adminpb.ReloadRequest{DryRun: dry})
			if err != nil {
				return nil, err
			}
			return reloadResult{File: r.GetFile(), DryRun: dry, Applied: changesOf(r.GetApplied()), Restart: changesOf(r.GetRestart()),
				Warnings: append([]string{}, r.GetWarnings()...)}, nil
		})
	})
	return c
}

type change struct {
	Key  string `json:"key"`
	What string `json:"what"` // added, removed, changed
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

func changesOf(list []*adminpb.Change) []change {
	out := make([]change, len(list))
	for i, c := range list {
		out[i] = change{c.GetKey(), c.GetWhat(), c.GetOld(), c.GetNew()}
	}
	return out
}

type reloadResult struct {
	File     string   `json:"file"`
	DryRun   bool     `json:"dry_run"`
	Applied  []change `json:"applied"`
	Restart  []change `json:"needs_restart"`
	Warnings []string `json:"warnings"`
}

func (r reloadResult) grid(bool) grid {
	g := grid{head: []string{"WHEN", "KEY", "CHANGE", "OLD", "NEW"}}
	var notes []string
	for _, w := range r.Warnings {
		notes = append(notes, printable("warning: "+w))
	}
	g.note = strings.Join(notes, "\n")
	add := func(when string, list []change) {
		for _, c := range list {
			g.rows = append(g.rows, []string{when, c.Key, c.What, c.Old, c.New})
		}
	}
	when := "now"
	if r.DryRun {
		when = "by a reload"
	}
	add(when, r.Applied)
	add("by a restart", r.Restart)
	if len(g.rows) == 0 {
		return grid{rows: [][]string{{"nothing has changed", r.File}}, note: g.note}
	}
	return g
}
