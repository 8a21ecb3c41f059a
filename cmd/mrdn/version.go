package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"meridian/agent"
	"meridian/wire"
)

func newVersionCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:         "version",
		Short:       "Show the version of this program",
		Long:        "Shows this program's version and the version of the wire format that it speaks.\nThat of a running daemon is in mrdn status.",
		Example:     "  mrdn version\n  mrdn version -o json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(context.Context, []string) (result, error) {
		r := versionResult{Version: agent.BuildVersion(), WireVersion: wire.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					r.Revision = s.Value
				}
			}
		}
		return r, nil
	})
	return c
}

type versionResult struct {
	Version     string `json:"version"`
	Revision    string `json:"revision,omitempty"`
	WireVersion int    `json:"wire_version"`
	Go          string `json:"go"`
	Platform    string `json:"platform"`
}

func (r versionResult) grid(wide bool) grid {
	g := grid{rows: [][]string{{"mrdn", r.Version}, {"MRDN wire", number(r.WireVersion)}}}
	if wide {
		g.rows = append(g.rows, []string{"revision", r.Revision}, []string{"go", r.Go}, []string{"platform", r.Platform})
	}
	return g
}
