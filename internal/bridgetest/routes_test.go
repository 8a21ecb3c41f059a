package bridgetest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"meridian/agent/adminpb"
	"meridian/internal/testbed"
	"meridian/wire"
)

// rules are the lines of the routes in force, with their origins and counts.
func (h *house) rules() (out []string) {
	h.t.Helper()
	list, err := h.admin.ListRoutes(h.t.Context(), &adminpb.ListRoutesRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range list.GetRoutes() {
		out = append(out, fmt.Sprintf("%s (%s, %d taken, %d passed)", r.GetText(), r.GetOrigin(), r.GetTaken(), r.GetPassed()))
	}
	return out
}

func (h *house) rewrite(old, new string) {
	h.t.Helper()
	b, err := os.ReadFile(h.at("m.toml"))
	if err != nil {
		h.t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		h.t.Fatal("the file has no ", old)
	}
	if err := os.WriteFile(h.at("m.toml"), []byte(strings.Replace(string(b), old, new, 1)), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// The routes in force are shown with what they decided; a question says where a block
// would go and why, and moves nothing; a test moves a block over the path; a route that
// is added is above all others until a reload; and a reload takes over those of the file.
func TestRoutesAreAskedTestedAddedAndReloaded(t *testing.T) {
	h := start(t, "house", listens("edge", "away")+"[fabric.nixl-synth]\n[fabric.second]\nkind = \"nixl-synth\"\n"+route("link", "nixl-synth")+
		"[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = \"away\"\nrequire = true\nmin_bytes = 100000\n")
	edge := start(t, "edge", dials(h)+writesThrough)
	edge.meets("house")
	h.meets("edge")
	ask := func(q *adminpb.RouteQuery) string {
		t.Helper()
		e, err := h.admin.ExplainRoute(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range e.GetSteps() {
			out = append(out, s.GetReason())
		}
		return strings.Join(append(out, "to "+e.GetFabric()+"/"+e.GetPeer(), wire.Code(e.GetCode()).String()), "; ")
	}
	edge.store(keyOf("one"), testbed.Content(9000, 1))
	h.shows(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="nixl-synth"} 1`)
	if got, want := fmt.Sprint(h.rules()), "[from=link -> prefer nixl-synth (file, 1 taken, 0 passed) from=link peer=away bytes=100000.. -> require link (file, 0 taken, 0 passed)]"; got != want {
		t.Errorf("the routes are %s\nwant %s", got, want)
	}
	for _, c := range []struct {
		q    *adminpb.RouteQuery
		want string
	}{
		{&adminpb.RouteQuery{From: "link", Bytes: 200_000}, "matches, and the fabric can take the block; matches, but a rule above decided; to nixl-synth/; OK"},
		{&adminpb.RouteQuery{From: "link/edge", Key: keyOf("one").String()}, "matches, and the fabric can take the block; 9000 bytes are below min_bytes 100000; to nixl-synth/; OK"},
		{&adminpb.RouteQuery{From: "link/away", Bytes: 200_000}, "matches, and the fabric can take the block; the block came from there; to nixl-synth/; OK"},
		{&adminpb.RouteQuery{}, "it comes from an engine, the rule is for what comes from link; it comes from an engine, the rule is for what comes from link; to /; UNREACHABLE"},
	} {
		if got := ask(c.q); got != c.want {
			t.Errorf("%v:\n%s\nwant\n%s", c.q, got, c.want)
		}
	}
	if _, err := h.admin.ExplainRoute(t.Context(), &adminpb.RouteQuery{From: "lonk"}); err == nil || adminpb.Detail(err).GetFix() != "did you mean link? the names are link" {
		t.Error(err, adminpb.Detail(err))
	}
	tested, err := h.admin.TestRoute(t.Context(), &adminpb.RouteQuery{From: "link"})
	if err != nil || len(tested.GetAttempts()) != 1 || !tested.GetAttempts()[0].GetOk() || tested.GetAttempts()[0].GetVia() != "mem" || tested.GetAttempts()[0].GetDurationNs() == 0 {
		t.Error(tested, err)
	}

	added, err := h.admin.AddRoute(t.Context(), &adminpb.AddRouteRequest{Route: &adminpb.Route{From: "link/edge", Fabric: "second", MaxBytes: 10_000}})
	if err != nil || added.GetToml() != "[[route]]\nfrom = \"link/edge\"\nmax_bytes = 10000\nfabric = \"second\"\n" {
		t.Error(added, err)
	}
	edge.store(keyOf("two"), testbed.Content(8000, 2))
	h.shows(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="second"} 1`)
	if got := h.rules(); len(got) != 3 || got[0] != "from=link/edge bytes=0..10000 -> prefer second (added, 1 taken, 0 passed)" {
		t.Error(got)
	}
	for want, r := range map[string]*adminpb.Route{
		`"nowhere" does not run in this daemon`: {Fabric: "nowhere"},
		`"lonk" is no fabric`:                   {Fabric: "second", From: "lonk"},
		`"nobody" is no [[link.peer]]`:          {Fabric: "second", From: "link/nobody"},
		`think_complete`:                        {Fabric: "second", Tier: "hot"},
		`below min_bytes`:                       {Fabric: "second", MinBytes: 2, MaxBytes: 1},
		`leads back`:                            {Fabric: "link", Peer: "edge", From: "link/edge"},
		`64`:                                    {Fabric: "second", Namespace: "12"},
	} {
		if _, err := h.admin.AddRoute(t.Context(), &adminpb.AddRouteRequest{Route: r}); err == nil || !strings.Contains(err.Error(), want) || adminpb.Detail(err).GetCode() != uint32(wire.CodeConfig) {
			t.Errorf("%v: %v, want %s", r, err, want)
		}
	}
	if got := h.rules(); len(got) != 3 {
		t.Error("a route that was refused changed the routes:", got)
	}

	h.rewrite(route("link", "nixl-synth"), route("link", "second"))
	const forgotten = "route: 1 added by mrdn route add, and not in the file: forgotten by a reload"
	r, err := h.admin.Reload(t.Context(), &adminpb.ReloadRequest{DryRun: true})
	if err != nil || !slices.Contains(r.GetWarnings(), forgotten) || len(h.rules()) != 3 {
		t.Error("a dry run:", r, err, h.rules())
	}
	r, err = h.admin.Reload(t.Context(), &adminpb.ReloadRequest{})
	if err != nil || len(r.GetApplied()) != 1 || r.GetApplied()[0].GetKey() != "route[0].fabric" || !slices.Contains(r.GetWarnings(), forgotten) {
		t.Error(r, err)
	}
	if got := h.rules(); len(got) != 2 || got[0] != "from=link -> prefer second (file, 0 taken, 0 passed)" {
		t.Error("after a reload:", got)
	}
	h.rewrite(route("link", "second"), route("link", "third")+"[fabric.third]\nkind = \"nixl-synth\"\n")
	if r, err = h.admin.Reload(t.Context(), &adminpb.ReloadRequest{}); err != nil || len(r.GetApplied()) != 0 || len(r.GetRestart()) == 0 {
		t.Error("a route to a fabric that does not run:", r, err)
	}
	if got := h.rules(); len(got) != 2 || got[0] != "from=link -> prefer second (file, 0 taken, 0 passed)" {
		t.Error("after a reload that needs a restart:", got)
	}
	edge.store(keyOf("three"), testbed.Content(7000, 3))
	testbed.Until(t, "the block goes by the route of the reload", func() bool {
		return h.metric(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="second"}`) == "2"
	})
}
