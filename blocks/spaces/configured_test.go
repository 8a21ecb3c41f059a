package spaces

import (
	"errors"
	"strings"
	"testing"

	"meridian/blocks/quota"
	"meridian/wire"
)

func manifests(names ...int) (out []wire.Manifest) {
	for _, n := range names {
		out = append(out, numbered("t", n))
	}
	return out
}

// configure puts a list in force.
func configure(t *testing.T, r *Registry, list []wire.Manifest) {
	t.Helper()
	commit, cancel, err := r.Configure(list)
	if err != nil {
		t.Fatal(err)
	}
	commit()
	cancel() // only the first one counts
	commit()
}

// names are the models of what is known, with a star where the configuration has it open.
func names(r *Registry) string {
	var out []string
	for _, s := range r.List() {
		name := s.Manifest.Model
		if s.Configured {
			name += "*"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func TestWhatIsConfiguredIsOpenUntilItIsReplaced(t *testing.T) {
	r, st := newShelf(map[quota.Kind]uint64{quota.Engine: 3})
	configure(t, r, manifests(1, 2))
	if got := names(r); got != "m1* m2*" {
		t.Fatal(got)
	}
	st.full[numbered("t", 1).Namespace()] = true
	if _, _, err := r.OpenPeer(peerA, numbered("t", 2)); err != nil {
		t.Fatal(err)
	}
	configure(t, r, manifests(3, 4, 5)) // before commit five of them are open, which is nobody's share
	if got := names(r); got != "m1 m2 m3* m4* m5*" {
		t.Errorf("one has blocks, one is a peer's: %s", got)
	}
	configure(t, r, nil)
	clear(st.full)
	configure(t, r, nil)
	if got := names(r); got != "m1 m2" {
		t.Error(got)
	}
	if n := r.book.Used(quota.Namespaces, configuration); n != 0 {
		t.Errorf("%d are counted, and none is configured", n)
	}
}

// What is refused, and what is taken back, has changed nothing.
func TestAConfigurationThatIsNotTakenOverLeavesNothing(t *testing.T) {
	r, st := newShelf(map[quota.Kind]uint64{quota.Engine: 2, quota.All: 3})
	configure(t, r, manifests(1))
	if _, _, err := r.OpenEngine(engine1, numbered("t", 9)); err != nil {
		t.Fatal(err)
	}
	contradicts := numbered("t", 9)
	contradicts.Dtype = "fp8"
	other := numbered("t", 2)
	other.Layout = "x"
	for name, c := range map[string]struct {
		list []wire.Manifest
		want error
	}{
		"more than the share":          {manifests(2, 3, 4), wire.CodeTooMany},
		"more than the table":          {manifests(2, 3), wire.CodeTooMany},
		"another geometry of the same": {[]wire.Manifest{numbered("t", 2), other}, wire.CodeGeometry},
		"what contradicts an engine":   {[]wire.Manifest{numbered("t", 2), contradicts}, wire.CodeGeometry},
	} {
		if _, _, err := r.Configure(c.list); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if got := names(r); got != "m1* m9" || len(st.open) != 2 || r.book.Used(quota.Namespaces, configuration) != 1 {
			t.Errorf("%s: %s, %d in the store", name, got, len(st.open))
		}
	}
	commit, cancel, err := r.Configure(manifests(2))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	commit() // only the first one counts
	if got := names(r); got != "m1* m9" || r.book.Used(quota.Namespaces, configuration) != 1 || r.book.Used(quota.Namespaces, quota.Total) != 2 {
		t.Errorf("after cancel: %s", got)
	}
}

// A [[namespace]] decides the geometry, and another one may replace it.
func TestAConfiguredNamespaceDecidesTheGeometry(t *testing.T) {
	r, _ := newShelf(nil)
	configure(t, r, []wire.Manifest{testManifest("t")})
	other := testManifest("t")
	other.Dtype = "fp8"
	var g *wire.GeometryError
	if _, _, err := r.OpenEngine(engine1, other); !errors.As(err, &g) || g.Field != "dtype" || g.Theirs != "fp8" {
		t.Errorf("an engine: %v", err)
	}
	if _, _, err := r.OpenPeer(peerA, other); !errors.As(err, &g) {
		t.Errorf("a peer: %v", err)
	}
	if _, _, err := r.OpenEngine(engine1, testManifest("t")); err != nil {
		t.Errorf("an engine of the same geometry: %v", err)
	}
	r, _ = newShelf(nil)
	configure(t, r, []wire.Manifest{testManifest("t")})
	configure(t, r, []wire.Manifest{other})
	if _, _, err := r.OpenEngine(engine1, testManifest("t")); !errors.As(err, &g) {
		t.Errorf("what was replaced: %v", err)
	}
	if _, _, err := r.OpenEngine(engine1, other); err != nil {
		t.Errorf("what replaced it: %v", err)
	}
}
