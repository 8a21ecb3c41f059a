package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/agent/config"
)

// reel is the table of a kind of which a reload takes a key over.
type reel struct {
	Path  string
	Guest []string
}

var reelKinds = append(kinds[:len(kinds):len(kinds)], config.NewFabricKind("reel", "", func(r *reel, bad config.Bad) {
	if r.Path == "" && len(r.Guest) > 0 {
		bad("guests", "%q have no path", r.Guest)
	}
},
	config.Key("path", func(r *reel) *string { return &r.Path }, config.Words, "", config.Free[string](), ""),
	config.Key("guests", func(r *reel) *[]string { return &r.Guest }, config.Lists, nil, config.Free[[]string](), "").Live(),
))

func loadReel(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.toml")
	if err := os.WriteFile(path, []byte("[agent]\nname = \"a\"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(config.Options{Path: path, Kinds: reelKinds, Memory: fixed})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A live key in the table of a fabric is taken over by its table's name, where the kind is
// still the same; what is in force before stays as it is.
func TestALiveKeyOfAFabricsTableIsTakenOver(t *testing.T) {
	table := func(name, kind, rest string) string {
		return fmt.Sprintf("[fabric.%s]\nkind = %q\n%s\n", name, kind, rest)
	}
	base := loadReel(t, table("a", "reel", `path = "/a"`)+table("b", "reel", "path = \"/b\"\nguests = [\"x\"]"))
	for _, c := range []struct{ what, text, live, restart, a, b string }{
		{"a key", table("a", "reel", "path = \"/a\"\nguests = [\"y\"]") + table("b", "reel", "path = \"/b\"\nguests = [\"x\"]"), "fabric.a.guests", "", "[y]", "[x]"},
		{"both", table("a", "reel", "path = \"/c\"\nguests = [\"y\"]") + table("b", "reel", `path = "/b"`), "fabric.a.guests fabric.b.guests", "fabric.a.path", "[y]", "[]"},
		{"another kind", table("a", "nixl-synth", "") + table("b", "reel", `path = "/b"`), "fabric.b.guests", "fabric.a.kind", "[]", "[]"},
		{"gone and new", table("b", "reel", "path = \"/b\"\nguests = [\"z\"]") + table("c", "reel", "path = \"/c\"\nguests = [\"z\"]"), "fabric.b.guests", "fabric.c fabric.a", "[]", "[z]"},
	} {
		next := loadReel(t, c.text)
		var live, restart []string
		for _, one := range config.Changes(base, next) {
			if one.Live {
				live = append(live, one.Key)
			} else {
				restart = append(restart, one.Key)
			}
		}
		if got, want := strings.Join(live, " ")+"; "+strings.Join(restart, " "), c.live+"; "+c.restart; got != want {
			t.Errorf("%s: live; restart: %s, want %s", c.what, got, want)
		}
		got, err := base.With(next)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		a, b := got.Settings("a").(*reel), got.Settings("b").(*reel)
		if fmt.Sprint(a.Guest) != c.a || a.Path != "/a" || fmt.Sprint(b.Guest) != c.b || got.Settings("c") != nil {
			t.Errorf("%s: in force are %+v and %+v, want guests %s and %s", c.what, a, b, c.a, c.b)
		}
		for _, one := range config.Changes(got, next) {
			if one.Live {
				t.Errorf("%s: what is in force differs still: %v", c.what, one)
			}
		}
		if was := base.Settings("b").(*reel); fmt.Sprint(base.Settings("a").(*reel).Guest, was.Guest) != "[] [x]" {
			t.Errorf("%s: what was in force changed: %v", c.what, was)
		}
	}
	if _, err := loadReel(t, table("a", "reel", "")).With(loadReel(t, table("a", "reel", "path = \"/a\"\nguests = [\"y\"]"))); err == nil || !strings.Contains(err.Error(), "fabric.a.guests") {
		t.Errorf("guests that do not fit the path in force: %v", err)
	}
}

// Routes are taken over where all the fabrics run that they name; else all of them wait
// for a restart, and those that are in force stay.
func TestRoutesAreTakenOverTogether(t *testing.T) {
	table := func(name string) string { return fmt.Sprintf("[fabric.%s]\nkind = \"reel\"\n", name) }
	route := func(fabric string) string { return fmt.Sprintf("[[route]]\nfabric = %q\n", fabric) }
	base := loadReel(t, table("a")+table("b")+route("a"))
	for _, c := range []struct{ text, live, restart, now string }{
		{table("a") + table("b") + route("b"), "route[0].fabric", "", "b"},
		{table("a") + table("b") + route("b") + route("a"), "route[0].fabric route[1]", "", "b a"},
		{table("a") + table("b"), "route[0]", "", ""},
		{table("a") + table("b") + table("c") + route("b") + route("c"), "", "fabric.c route[0].fabric route[1]", "a"},
	} {
		next := loadReel(t, c.text)
		var live, restart []string
		for _, one := range config.Changes(base, next) {
			if one.Live {
				live = append(live, one.Key)
			} else {
				restart = append(restart, one.Key)
			}
		}
		now, err := base.With(next)
		if err != nil {
			t.Fatal(err)
		}
		var fabrics []string
		for _, r := range now.Routes {
			fabrics = append(fabrics, r.Fabric)
		}
		slices.Sort(restart)
		if strings.Join(live, " ") != c.live || strings.Join(restart, " ") != c.restart || strings.Join(fabrics, " ") != c.now {
			t.Errorf("%s: live %q, restart %q, in force %q", c.text, live, restart, fabrics)
		}
		if left := config.Changes(now, next); c.restart == "" && len(left) != 0 {
			t.Errorf("%s: %v is left after it was taken over", c.text, left)
		}
	}
}
