package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/blocks/quota"
	"meridian/blocks/spaces"
	"meridian/wire"
)

// spaceTable is a [[namespace]] of testManifest with another model.
func spaceTable(model string) string {
	m := testManifest("acme")
	return fmt.Sprintf("[[namespace]]\ntenant = %q\nmodel = %q\nrole = %q\ndtype = %q\nblock_tokens = %d\nblock_bytes = %d\nlayer_last = %d\n", m.Tenant, model, m.Role, m.Dtype, m.BlockTokens, m.BlockBytes, m.LayerLast)
}

// opened are the models of the namespaces that the configuration has open.
func (r *reloadable) opened() string {
	r.t.Helper()
	list, err := r.adminClient(r.t).ListNamespaces(r.t.Context(), &adminpb.ListNamespacesRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, n := range list.GetNamespaces() {
		m, err := wire.ParseManifest([]byte(n.GetManifest()))
		if err != nil || m.Namespace().String() != n.GetNamespace() {
			r.t.Errorf("%q is no manifest of %s: %v", n.GetManifest(), n.GetNamespace(), err)
		}
		if n.GetConfigured() {
			out = append(out, n.GetModel())
		}
	}
	return strings.Join(out, " ")
}

func TestNamespacesOfTheFileComeAndGoByAReload(t *testing.T) {
	r := startReloadable(t, shortDir(t), "one", spaceTable("a"))
	number := func(model string) string {
		i := slices.IndexFunc(r.spaces.List(), func(s spaces.State) bool { return s.Manifest.Model == model })
		if i < 0 {
			t.Fatalf("%s is not known", model)
		}
		return "namespace." + r.spaces.List()[i].Manifest.Namespace().String()
	}
	if got := r.opened(); got != "a" {
		t.Errorf("at the start: %q", got)
	}
	gone := number("a")
	got := r.to(spaceTable("b") + spaceTable("c"))
	r.says("two for one", got, number("b")+" added; "+number("c")+" added; "+gone+" removed", "")
	if got := r.opened(); got != "b c" {
		t.Errorf("after a reload: %q", got)
	}
	c, err := client.DialEngine(t.Context(), r.cfg.Engine.Socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	e := testManifest("acme")
	e.Model = "engine's"
	if _, err := c.Open(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	r.write(spaceTable("b") + spaceTable("d") + strings.Replace(spaceTable("engine's"), "dtype = \"", "dtype = \"un", 1))
	if _, err := r.reload(t.Context(), false); !errors.Is(err, wire.CodeGeometry) || !strings.Contains(err.Error(), "[[namespace]]") {
		t.Errorf("one that contradicts an engine: %v", err)
	}
	if got := r.opened(); got != "b c" {
		t.Errorf("after a reload that was refused: %q", got)
	}
	r.write(spaceTable("d"))
	if _, err := r.reload(t.Context(), true); err != nil {
		t.Error(err)
	}
	if got := r.opened(); got != "b c" {
		t.Errorf("after one that was not to change anything: %q", got)
	}
	r.to("")
	if got := r.opened(); got != "" {
		t.Errorf("in the end: %q", got)
	}
}

// The share and what needs it come in one reload; a dry one gives the share back.
func TestAShareThatIsRaisedCountsForTheNamespacesOfTheSameFile(t *testing.T) {
	var many strings.Builder
	for i := range 3 {
		many.WriteString(spaceTable(fmt.Sprint("m", i)))
	}
	r := startReloadable(t, shortDir(t), "one", "[quota]\nengine_namespaces = 2\n")
	r.write(many.String() + "[quota]\nengine_namespaces = 2\n")
	var bad *config.Error
	if _, err := r.reload(t.Context(), false); !errors.As(err, &bad) || !strings.Contains(err.Error(), "3 namespaces, quota.engine_namespaces is 2") {
		t.Errorf("more than the share: %v", err)
	}
	r.write(many.String() + "[quota]\nengine_namespaces = 3\n")
	if _, err := r.reload(t.Context(), true); err != nil {
		t.Error(err)
	}
	if _, err := r.quota.Take(quota.Namespaces, 3, quota.Holder{Kind: quota.Engine, Name: "another"}); !errors.Is(err, wire.CodeTooMany) {
		t.Errorf("a dry reload has raised the share: %v", err)
	}
	r.to(many.String() + "[quota]\nengine_namespaces = 3\n")
	if got := r.opened(); got != "m0 m1 m2" {
		t.Error(got)
	}
}
