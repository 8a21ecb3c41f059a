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

func newNamespaceCmd(a *app) *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List the namespaces that are known here, and who has each open",
		Long: `Lists the namespaces that are open at the daemon, or of which it has blocks: of
which tenant and model they are, and who has each open. That is the daemon by a
[[namespace]] of its configuration, engines, and peers that open namespaces, as
those of the link do. -o wide shows the whole number of each. With -o json each
has its manifest, which is what its number is made of.`,
		Example:     "  mrdn namespace list\n  mrdn namespace list -o json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	list.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.ListNamespaces(ctx, &adminpb.ListNamespacesRequest{})
			if err != nil {
				return nil, err
			}
			return namespacesOf(r), nil
		})
	})
	return group(a, "namespace", "The namespaces of this daemon", "  mrdn namespace list", list)
}

type namespace struct {
	Namespace  string   `json:"namespace"`
	Tenant     string   `json:"tenant"`
	Model      string   `json:"model"`
	Role       string   `json:"role"`
	BlockBytes uint32   `json:"block_bytes"`
	Configured bool     `json:"configured"`
	Own        bool     `json:"own"`
	Engines    uint32   `json:"engines"`
	Peers      []string `json:"peers"`
	Manifest   string   `json:"manifest"`
}

type namespacesResult struct {
	Namespaces []namespace `json:"namespaces"`
}

func namespacesOf(r *adminpb.ListNamespacesResponse) namespacesResult {
	out := namespacesResult{[]namespace{}}
	for _, n := range r.GetNamespaces() {
		out.Namespaces = append(out.Namespaces, namespace{
			Namespace: n.GetNamespace(), Tenant: n.GetTenant(), Model: n.GetModel(), Role: n.GetRole(), BlockBytes: n.GetBlockBytes(),
			Configured: n.GetConfigured(), Own: n.GetOwn(), Engines: n.GetEngines(), Peers: list(n.GetPeers()), Manifest: n.GetManifest(),
		})
	}
	return out
}

// holders are those that have the namespace open, in words.
func (n namespace) holders() string {
	var out []string
	if n.Configured {
		out = append(out, "configuration")
	}
	if n.Own {
		out = append(out, "self-test")
	}
	if n.Engines > 0 {
		out = append(out, fmt.Sprintf("engines: %d", n.Engines))
	}
	if len(n.Peers) > 0 {
		out = append(out, "peers: "+strings.Join(n.Peers, " "))
	}
	if len(out) == 0 {
		return "nobody; blocks are stored"
	}
	return strings.Join(out, ", ")
}

func (r namespacesResult) grid(wide bool) grid {
	g := grid{head: []string{"NAMESPACE", "TENANT", "MODEL", "BLOCK", "OPEN BY"}}
	if wide {
		g.head = append(g.head, "ROLE")
	}
	for _, n := range r.Namespaces {
		row := []string{short(n.Namespace, wide), n.Tenant, n.Model, config.FormatBytes(uint64(n.BlockBytes)), n.holders()}
		if wide {
			row = append(row, n.Role)
		}
		g.rows = append(g.rows, row)
	}
	if len(g.rows) == 0 {
		g.note = "no namespace is open: an engine opens one, a peer of the link, or a [[namespace]] of the configuration"
	}
	return g
}
