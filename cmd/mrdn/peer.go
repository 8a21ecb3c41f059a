package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/wire"
)

func newPeerCmd(a *app) *cobra.Command {
	list := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List the configured peers, and why one is not ready",
		Long: `Lists every peer of the allow list: whether it is connected, over which
transport really, how far away it is, and the reason and its code when it is
not ready. With a NAME only that peer; exit code 1 if there is none.`,
		Example:     "  mrdn peer list\n  mrdn peer list prefill-1 -o json",
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{accessKey: readOnly},
	}
	list.RunE = a.command(func(ctx context.Context, args []string) (result, error) {
		name := strings.Join(args, "")
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.ListPeers(ctx, &adminpb.ListPeersRequest{Name: name})
			if err != nil {
				return nil, err
			}
			if name != "" && len(r.GetPeers()) == 0 {
				return nil, failed("mrdn peer list shows the peers there are", "no peer is named %q", name)
			}
			return peersOf(r), nil
		})
	})
	return group(a, "peer", "The other agents that this daemon knows", "  mrdn peer list", list)
}

type peer struct {
	Name        string   `json:"name"`
	Fabric      string   `json:"fabric"`
	State       string   `json:"state"`
	Transport   string   `json:"transport"`
	Lanes       uint32   `json:"lanes"`
	RTTNS       uint64   `json:"rtt_ns"`
	Address     string   `json:"address"`
	Agent       string   `json:"agent"`
	Incarnation uint64   `json:"incarnation"`
	ReasonCode  uint32   `json:"reason_code"`
	ReasonName  string   `json:"reason_name,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	Namespaces  []string `json:"namespaces"`
	Tenants     []string `json:"tenants"`
}

type peersResult struct {
	Peers []peer `json:"peers"`
}

func peersOf(r *adminpb.ListPeersResponse) peersResult {
	out := peersResult{[]peer{}}
	for _, p := range r.GetPeers() {
		v := peer{
			Name: p.GetName(), Fabric: p.GetFabric(), State: enumWord(p.GetState().String(), "PEER_STATE_"), Transport: p.GetTransport(),
			Lanes: p.GetLanes(), RTTNS: p.GetRttNs(), Address: p.GetAddress(), Agent: p.GetAgent(),
			Incarnation: p.GetIncarnation(), ReasonCode: p.GetReasonCode(), ReasonName: codeName(p.GetReasonCode()), Reason: p.GetReason(),
			Namespaces: list(p.GetNamespaces()), Tenants: list(p.GetTenants()),
		}
		out.Peers = append(out.Peers, v)
	}
	return out
}

func (r peersResult) grid(wide bool) grid {
	g := grid{head: []string{"NAME", "FABRIC", "STATE", "TRANSPORT", "LANES", "RTT", "ADDRESS", "REASON"}}
	if wide {
		g.head = append(g.head, "AGENT", "INCARNATION", "NAMESPACES", "TENANTS")
	}
	for _, p := range r.Peers {
		why := p.Reason
		if p.ReasonName != "" && !strings.HasPrefix(why, p.ReasonName+":") {
			why = p.ReasonName + ": " + why
		}
		row := []string{p.Name, p.Fabric, p.State, p.Transport, number(p.Lanes), rtt(p.RTTNS), p.Address, why}
		if wide {
			row = append(row, p.Agent, number(p.Incarnation), number(len(p.Namespaces)), strings.Join(p.Tenants, ","))
		}
		g.rows = append(g.rows, row)
	}
	if !wide {
		g.foldLast()
	}
	if len(g.rows) == 0 {
		g.note = "no peers are configured"
	}
	return g
}

func rtt(ns uint64) string {
	if ns == 0 {
		return ""
	}
	return duration(time.Duration(ns))
}

// codeName is the name of a code; empty for OK.
func codeName(code uint32) string {
	if code == uint32(wire.CodeOK) {
		return ""
	}
	return wire.Code(code).String()
}

// list is s, and an empty list rather than null in JSON.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
