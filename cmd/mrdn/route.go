package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/wire"
)

func newRouteCmd(a *app) *cobra.Command {
	return group(a, "route", "Where blocks go, and why", "  mrdn route explain --from nixl --bytes 1MiB\n  mrdn route test\n  mrdn route add --from nixl --fabric mooncake",
		newRouteExplainCmd(a), newRouteTestCmd(a), newRouteAddCmd(a))
}

func newFabricRoutesCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "routes",
		Short: "List the routes in force, with what each decided",
		Long: `Lists the daemon's routes, the first one first: for which blocks each is, where
it sends them, for how many it was chosen, and how many passed it by because
its fabric could not take them. Counts begin when a route is put in force.`,
		Example:     "  mrdn fabric routes\n  mrdn fabric routes --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.ListRoutes(ctx, &adminpb.ListRoutesRequest{})
			if err != nil {
				return nil, err
			}
			return routesOf(r), nil
		})
	})
	return c
}

// tierKeys are the tiers as a [[route]] names them.
var tierKeys = [...]string{"think_complete", "think_active", "output_critical"}

// routeQuery are the flags that describe a block.
type routeQuery struct{ from, tier, namespace, peer, bytes string }

func (q *routeQuery) flags(c *cobra.Command) {
	c.Flags().StringVar(&q.from, "from", "", "fabric, or FABRIC/PEER, that brings the block (default: an engine)")
	c.Flags().StringVar(&q.tier, "tier", "", "tier: think_complete, think_active, output_critical (default: think_complete)")
	c.Flags().StringVar(&q.namespace, "namespace", "", "namespace, 64 hexadecimal digits")
	c.Flags().StringVar(&q.peer, "peer", "", "who shall have it (default: whom the route names)")
	c.Flags().StringVar(&q.bytes, "bytes", "0", "length of the body, such as 65536 or 1MiB")
}

func (q *routeQuery) message(args []string) (*adminpb.RouteQuery, error) {
	out := &adminpb.RouteQuery{From: q.from, Namespace: q.namespace, Peer: q.peer, Key: strings.Join(args, "")}
	n, err := config.ParseBytes(q.bytes)
	if err != nil {
		return nil, usage("--bytes: %v", err)
	}
	out.Bytes = n
	if q.tier != "" {
		t, err := wire.ParseTier(q.tier)
		if err != nil {
			return nil, usage("--tier: %v", err)
		}
		out.Tier = adminpb.Tier(t) + 1
	}
	return out, nil
}

// ask is a command that asks the daemon about the block that the flags describe.
func (q *routeQuery) ask(a *app, f func(ctx context.Context, adm *client.Admin, m *adminpb.RouteQuery) (result, error)) func(*cobra.Command, []string) error {
	return a.command(func(ctx context.Context, args []string) (result, error) {
		m, err := q.message(args)
		if err != nil {
			return nil, err
		}
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) { return f(ctx, adm, m) })
	})
}

func newRouteExplainCmd(a *app) *cobra.Command {
	var q routeQuery
	c := &cobra.Command{
		Use:   "explain [KEY]",
		Short: "Say where a block would go, and why",
		Long: `Asks the routes in force about a block, and shows what each of them has to say.
The block is one that is here, by its key, or what the flags describe. Nothing
is moved or counted. The exit code is 1 where the block would go nowhere.`,
		Example:     "  mrdn route explain --from mooncake --bytes 1MiB\n  mrdn route explain KEY",
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{accessKey: readOnly},
	}
	q.flags(c)
	c.RunE = q.ask(a, func(ctx context.Context, adm *client.Admin, m *adminpb.RouteQuery) (result, error) {
		r, err := adm.ExplainRoute(ctx, m)
		if err != nil {
			return nil, err
		}
		e := explanationOf(r)
		return e, e.err()
	})
	return c
}

func newRouteTestCmd(a *app) *cobra.Command {
	var q routeQuery
	c := &cobra.Command{
		Use:   "test [KEY]",
		Short: "Move one checked block to where a block would go",
		Long: `Moves one block of the daemon's own to where the routes would send a block now,
checks it, and says over which transport it went and how long that took. A path
that fails is shown, and the next one that the routes name is tried. The exit
code is 1 where none works, and 5 when bytes arrived wrong.`,
		Example:     "  mrdn route test --from nixl\n  mrdn route test KEY",
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{accessKey: readOnly},
	}
	q.flags(c)
	c.RunE = q.ask(a, func(ctx context.Context, adm *client.Admin, m *adminpb.RouteQuery) (result, error) {
		r, err := adm.TestRoute(ctx, m)
		if err != nil {
			return nil, err
		}
		t := attemptsOf(r)
		return t, t.err()
	})
	return c
}

func newRouteAddCmd(a *app) *cobra.Command {
	var r adminpb.Route
	var least, most, tier string
	c := &cobra.Command{
		Use:   "add",
		Short: "Put a route above all others, for now",
		Long: `Puts a route above all others in the running daemon, which checks it as one of
its file. A restart or a reload forgets it: what is printed keeps it, once it
stands in the file.`,
		Example:     "  mrdn route add --from nixl --fabric mooncake\n  mrdn route add --tier think_complete --fabric link --peer decode-1 --require",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: writing},
	}
	f := c.Flags()
	f.StringVar(&r.Fabric, "fabric", "", "the fabric to which blocks go")
	f.StringVar(&r.From, "from", "", "only blocks that peers of this fabric bring, or FABRIC/PEER (default: those of engines)")
	f.StringVar(&tier, "tier", "", "only this tier: think_complete, think_active, output_critical")
	f.StringVar(&r.Namespace, "namespace", "", "only this namespace, 64 hexadecimal digits")
	f.StringVar(&r.Peer, "peer", "", "only to this peer")
	f.StringVar(&least, "min-bytes", "0", "only bodies of at least so many bytes")
	f.StringVar(&most, "max-bytes", "0", "only bodies of at most so many bytes; 0: no bound")
	f.BoolVar(&r.Require, "require", false, "fail rather than fall back to another fabric")
	c.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		if r.Fabric == "" {
			return nil, usage("--fabric is missing: where shall the blocks go?")
		}
		for _, b := range []struct {
			flag, text string
			to         *uint64
		}{{"--min-bytes", least, &r.MinBytes}, {"--max-bytes", most, &r.MaxBytes}} {
			n, err := config.ParseBytes(b.text)
			if err != nil {
				return nil, usage("%s: %v", b.flag, err)
			}
			*b.to = n
		}
		if tier != "" {
			t, err := wire.ParseTier(tier)
			if err != nil {
				return nil, usage("--tier: %v", err)
			}
			r.Tier = tierKeys[t]
		}
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			got, err := adm.AddRoute(ctx, &adminpb.AddRouteRequest{Route: &r})
			if err != nil {
				return nil, err
			}
			return addedResult{got.GetToml()}, nil
		})
	})
	return c
}

type routeInfo struct {
	Rule      string `json:"rule"`
	From      string `json:"from"`
	Tier      string `json:"tier"`
	Namespace string `json:"namespace"`
	Peer      string `json:"peer"`
	MinBytes  uint64 `json:"min_bytes"`
	MaxBytes  uint64 `json:"max_bytes"`
	Fabric    string `json:"fabric"`
	Require   bool   `json:"require"`
	Taken     uint64 `json:"taken"`
	Passed    uint64 `json:"passed"`
	Origin    string `json:"origin"`
}

type routesResult struct {
	Routes []routeInfo `json:"routes"`
}

func routesOf(r *adminpb.ListRoutesResponse) routesResult {
	out := routesResult{[]routeInfo{}}
	for _, s := range r.GetRoutes() {
		x := s.GetRoute()
		out.Routes = append(out.Routes, routeInfo{
			Rule: s.GetText(), From: x.GetFrom(), Tier: x.GetTier(), Namespace: x.GetNamespace(), Peer: x.GetPeer(), MinBytes: x.GetMinBytes(),
			MaxBytes: x.GetMaxBytes(), Fabric: x.GetFabric(), Require: x.GetRequire(), Taken: s.GetTaken(), Passed: s.GetPassed(), Origin: s.GetOrigin(),
		})
	}
	return out
}

func (r routesResult) grid(bool) grid {
	g := grid{head: []string{"#", "RULE", "TAKEN", "PASSED", "ORIGIN"}}
	for i, x := range r.Routes {
		g.rows = append(g.rows, []string{number(i), x.Rule, number(x.Taken), number(x.Passed), x.Origin})
	}
	if len(g.rows) == 0 {
		g.note = "no routes: blocks stay where they are"
	}
	return g
}

type routeStep struct {
	Rule   string `json:"rule"`
	Chosen bool   `json:"chosen"`
	Reason string `json:"reason"`
}

type explanation struct {
	Steps    []routeStep `json:"steps"`
	Fabric   string      `json:"fabric"`
	Peer     string      `json:"peer"`
	Wanted   string      `json:"wanted,omitempty"`
	Code     uint32      `json:"code"`
	CodeName string      `json:"code_name,omitempty"`
	Text     string      `json:"text,omitempty"`
}

func explanationOf(r *adminpb.ExplainRouteResponse) explanation {
	out := explanation{Steps: []routeStep{}, Fabric: r.GetFabric(), Peer: r.GetPeer(), Wanted: r.GetWanted(), Code: r.GetCode(), CodeName: codeName(r.GetCode()), Text: r.GetText()}
	for _, s := range r.GetSteps() {
		out.Steps = append(out.Steps, routeStep{s.GetText(), s.GetChosen(), s.GetReason()})
	}
	return out
}

func (e explanation) err() error {
	if e.Code == uint32(wire.CodeOK) {
		return nil
	}
	return failed("mrdn fabric list and mrdn peer list say how the fabrics stand", "the block would go nowhere: %s", e.Text)
}

func (e explanation) grid(bool) grid {
	g := grid{head: []string{"#", "RULE", "WHY"}}
	for i, s := range e.Steps {
		mark := number(i)
		if s.Chosen {
			mark += "*"
		}
		g.rows = append(g.rows, []string{mark, s.Rule, s.Reason})
	}
	g.foldLast()
	switch {
	case e.Fabric == "":
		g.note = "nowhere: " + printable(e.Text)
	case e.Wanted != "":
		g.note = fmt.Sprintf("to %s, since %s cannot take it: %s", nameOf(e.Fabric, e.Peer), e.Wanted, printable(e.Text))
	default:
		g.note = "to " + nameOf(e.Fabric, e.Peer)
	}
	return g
}

// nameOf is a path as the registry names it.
func nameOf(fabric, peer string) string { return strings.TrimSuffix(fabric+"/"+peer, "/") }

type routeAttempt struct {
	Fabric          string  `json:"fabric"`
	Peer            string  `json:"peer"`
	OK              bool    `json:"ok"`
	Via             string  `json:"via"`
	DurationNS      uint64  `json:"duration_ns"`
	GBytesPerSecond float64 `json:"gbytes_per_second"`
	Code            uint32  `json:"code"`
	CodeName        string  `json:"code_name,omitempty"`
	Text            string  `json:"text,omitempty"`
}

type attemptsResult struct {
	Attempts []routeAttempt `json:"attempts"`
	Code     uint32         `json:"code"`
	Text     string         `json:"text,omitempty"`
}

func attemptsOf(r *adminpb.TestRouteResponse) attemptsResult {
	out := attemptsResult{Attempts: []routeAttempt{}, Code: r.GetCode(), Text: r.GetText()}
	for _, t := range r.GetAttempts() {
		out.Attempts = append(out.Attempts, routeAttempt{
			Fabric: t.GetFabric(), Peer: t.GetPeer(), OK: t.GetOk(), Via: t.GetVia(), DurationNS: t.GetDurationNs(), GBytesPerSecond: t.GetGbytesPerSecond(),
			Code: t.GetCode(), CodeName: codeName(t.GetCode()), Text: t.GetText(),
		})
	}
	return out
}

func (r attemptsResult) err() error {
	for _, t := range r.Attempts {
		if exitOf(codeNumber(t.Code)) == exitIntegrity {
			return integrity("the path corrupts: check NIC, MTU and what lies between", "%s: %s", nameOf(t.Fabric, t.Peer), t.CodeName)
		}
	}
	if n := len(r.Attempts); n == 0 || !r.Attempts[n-1].OK {
		return failed("mrdn route explain says what each route has to say", "no path works: %s", r.Text)
	}
	return nil
}

func (r attemptsResult) grid(bool) grid {
	g := grid{head: []string{"TO", "RESULT", "VIA", "TOOK", "RATE", "TEXT"}}
	for _, t := range r.Attempts {
		row := []string{nameOf(t.Fabric, t.Peer), "ok", t.Via, time.Duration(t.DurationNS).Round(time.Microsecond).String(), "", t.Text}
		if t.GBytesPerSecond > 0 {
			row[4] = fmt.Sprintf("%.2f GB/s", t.GBytesPerSecond)
		}
		if !t.OK {
			row[1], row[5] = "failed", strings.TrimSpace(t.CodeName+" "+t.Text)
		}
		g.rows = append(g.rows, row)
	}
	g.foldLast()
	return g
}

type addedResult struct {
	TOML string `json:"toml"`
}

func (r addedResult) grid(bool) grid {
	g := grid{note: "The route is in force until a restart or a reload. In the file, above all\nother [[route]] tables, this keeps it:\n\n" + strings.TrimSuffix(r.TOML, "\n")}
	return g
}
