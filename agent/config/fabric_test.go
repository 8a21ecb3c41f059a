package config_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/agent/config"
)

const twoTapes = `[fabric.left]
kind = "tape"
path = "l"
[fabric.right]
kind = "tape"
path = "/r"
quota_bytes = "1GiB"
[[route]]
tier = "think_complete"
fabric = "left"
[[route]]
fabric = "right"
`

func TestTwoTablesOfOneKindAreTwoFabrics(t *testing.T) {
	c := mustLoad(t, twoTapes, "MERIDIAN_FABRIC_LEFT_QUOTA_BYTES=2MiB")
	if len(c.Fabrics) != 3 || c.Fabrics[0].Name != "left" || c.Fabrics[1].Name != "right" || c.Fabrics[0].Kind != "tape" {
		t.Fatalf("fabrics %+v", c.Fabrics)
	}
	left, right := c.Fabrics[0].Settings.(*tape), c.Fabrics[1].Settings.(*tape)
	if left.Path != filepath.Join(filepath.Dir(c.File), "l") || left.Quota != 2<<20 {
		t.Errorf("left %+v: its path is from the file's folder, its quota from the environment", left)
	}
	if right.Path != "/r" || right.Quota != 1<<30 {
		t.Errorf("right %+v", right)
	}
	var shown []string
	for _, o := range c.Origins() {
		if strings.HasPrefix(o.Key, "fabric.left.") {
			shown = append(shown, o.Key+" "+o.Value+" "+o.Source)
		}
	}
	want := []string{`fabric.left.kind "tape" file`, `fabric.left.path "l" file`, `fabric.left.quota_bytes "2MiB" env`, `fabric.left.token "" default`}
	if !slices.Equal(shown, want) {
		t.Errorf("origins\n%s\nwant\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
	}
}

func TestAKindWithoutATableIsOpenedWhereItIsUsed(t *testing.T) {
	for _, c := range []struct {
		text string
		env  []string
		want string
	}{
		{"[[route]]\nfabric = \"nixl-synth\"\n", nil, "[nixl-synth]"},
		{"[disagg]\nenabled = true\n", []string{"MERIDIAN_DISAGG_FABRIC=nixl-synth"}, "[nixl-synth]"},
		{"[disagg]\nfabric = \"tape\"\n", nil, "[]"}, // not enabled: nobody wants it, and its path is not missing
		{"[fabric.nixl-synth]\n", nil, "[nixl-synth]"},
		{"", nil, "[]"},
	} {
		got := []string{}
		for _, f := range mustLoad(t, c.text, c.env...).Fabrics {
			got = append(got, f.Name)
		}
		if last := len(got) - 1; got[last] != "link" || fmt.Sprint(got[:last]) != c.want {
			t.Errorf("%q %v: opens %v, want %s", c.text, c.env, got, c.want)
		}
	}
}

func TestAFabricsTableSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"[fabric.t]\nkind = \"tape\"\n":                           `m.toml:1: fabric.t.path: missing: the folder of the tape`,
		"[[route]]\nfabric = \"tape\"\n":                          `fabric.tape.path: missing: the folder of the tape`,
		"[fabric.t]\nkind = \"tap\"\n[[route]]\nfabric = \"t\"\n": `m.toml:2: fabric.t.kind: "tap" is no kind of fabric that this build has: it has nixl-synth, tape; did you mean tape?`,
		"[fabric.t]\n":                                   `m.toml:1: fabric.t.kind: "t" is no kind of fabric that this build has: it has nixl-synth, tape`,
		"[fabric.t]\nkind = 7\n":                         `m.toml:2: fabric.t.kind: 7 must be a kind of fabric that this build has`,
		"[fabric.tape]\npath = \"p\"\nquota = 1\n":       `m.toml:3: fabric.tape.quota: unknown key; did you mean quota_bytes?`,
		"[fabric.tape]\npath = \"p\"\nquota_bytes = 1\n": `m.toml:3: fabric.tape.quota_bytes: 1 must be between 1 KiB and 1 TiB`,
		"[fabric.tape]\npath = \"p\"\ntoken = 77341\n":   `m.toml:3: fabric.tape.token: [redacted] must be a string`,
		"[fabric.link]\n":                                `m.toml:1: fabric.link: link has a table of its own, [link], and is opened once`,
		"[fabric.none]\nkind = \"tape\"\n":               `m.toml:1: fabric.none: "none" must be 1 to 32 lower-case letters, digits or hyphens, and not none`,
		"[fabric.\"a/b\"]\nkind = \"tape\"\n":            `m.toml:1: fabric.a/b: "a/b" must be 1 to 32 lower-case letters, digits or hyphens, and not none`,
		"fabric = 3\n":                                   `m.toml:1: fabric: must be tables, written [fabric.NAME]`,
		"[[fabric]]\nname = \"x\"\n":                     `fabric: must be tables, written [fabric.NAME]`,
		"[fabric]\nx = 1\n":                              `m.toml:2: fabric.x: must be a table, written [fabric.NAME]`,
		"[fabric.left]\nkind = \"nixl-synth\"\n[[route]]\nfabric = \"lef\"\n": `m.toml:4: route[0].fabric: "lef" is no [fabric.NAME] of the file, and not in this build, which has left, link, nixl-synth, tape; did you mean left?`,
	} {
		got := problemsOfTapes(t, text)
		if !strings.Contains(got, want) || strings.Contains(got, "\n") || strings.Contains(got, "77341") {
			t.Errorf("of\n%s\nit says\n%s\nwant only\n%s", text, got, want)
		}
	}
}

// A route may name a peer that its fabric lists; a fabric that lists none may be the
// way to a peer of another.
func TestARoutesPeerIsOneThatAFabricLists(t *testing.T) {
	type reels struct{ names []string }
	reel := config.ListsPeers(config.NewFabricKind("reel", "", nil, config.Key("peers", func(r *reels) *[]string { return &r.names }, config.Lists, nil, config.Free[[]string](), "")),
		func(r *reels) []string { return r.names })
	before := kinds
	kinds = append(kinds[:len(kinds):len(kinds)], reel)
	defer func() { kinds = before }()
	const tables = "[[link.peer]]\nname = \"b\"\ntenants = [\"t\"]\n[fabric.r]\nkind = \"reel\"\npeers = [\"left\", \"right\"]\n[fabric.s]\nkind = \"nixl-synth\"\n"
	for route, want := range map[string]string{
		"peer = \"left\"\nfabric = \"r\"":    "",
		"peer = \"b\"\nfabric = \"r\"":       `route[0].peer: "b" is no peer of [fabric.r]`,
		"peer = \"lef\"\nfabric = \"r\"":     `route[0].peer: "lef" is no peer of [fabric.r]; did you mean left?`,
		"peer = \"b\"\nfabric = \"link\"":    "",
		"peer = \"left\"\nfabric = \"link\"": `route[0].peer: "left" is no [[link.peer]]`,
		"peer = \"b\"\nfabric = \"s\"":       "",
		"peer = \"right\"\nfabric = \"s\"":   "",
		"peer = \"c\"\nfabric = \"s\"":       `route[0].peer: "c" is no peer that any fabric lists`,

		"from = \"r\"\nfabric = \"s\"":                        "",
		"from = \"r/left\"\nfabric = \"r\"\npeer = \"right\"": "",
		"from = \"link/b\"\nfabric = \"r\"":                   "",
		"from = \"s\"\nfabric = \"r\"":                        `route[0].from: "s" is no fabric of the file whose peers bring blocks`,
		"from = \"lin\"\nfabric = \"r\"":                      `route[0].from: "lin" is no fabric of the file whose peers bring blocks; did you mean link?`,
		"from = \"r/lef\"\nfabric = \"s\"":                    `route[0].from: "lef" is no peer of [fabric.r]; did you mean left?`,
		"from = \"r/left\"\nfabric = \"r\"\npeer = \"left\"":  `route[0].from: the route leads back to where its blocks come from`,
		"from = \"r/left/x\"\nfabric = \"s\"":                 `must be empty, or the name of a fabric, or FABRIC/PEER`,
	} {
		_, _, err := loadText(t, tables+"[[route]]\n"+route+"\n")
		if got := fmt.Sprint(err); (err == nil) != (want == "") || err != nil && !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %q", route, err, want)
		}
	}
}

func TestVariablesOfFabricsAreChecked(t *testing.T) {
	const ambiguous = "[fabric.a]\nkind = \"tape\"\npath = \"p\"\n[fabric.a-quota]\nkind = \"wide\"\n"
	wide := config.NewFabricKind("wide", "", nil, config.Key("bytes", func(t *tape) *uint64 { return &t.Quota }, config.Sizes, 0, config.Free[uint64](), ""))
	for _, c := range []struct{ text, env, want string }{
		{twoTapes, "MERIDIAN_FABRIC_LEFT_QUOTA_BYTE=1", "MERIDIAN_FABRIC_LEFT_QUOTA_BYTE: unknown variable; did you mean MERIDIAN_FABRIC_LEFT_QUOTA_BYTES?"},
		{twoTapes, "MERIDIAN_FABRIC_LEFT_TOKEN=", ""},
		{ambiguous, "MERIDIAN_FABRIC_A_QUOTA_BYTES=1MiB", "MERIDIAN_FABRIC_A_QUOTA_BYTES: is the variable of fabric.a.quota_bytes and of fabric.a-quota.bytes: set them in the file"},
	} {
		before := kinds
		kinds = append(kinds[:len(kinds):len(kinds)], wide)
		_, _, err := loadText(t, c.text, c.env)
		kinds = before
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", c.env, err, c.want)
		}
	}
}

func TestASecretOfAFabricIsHiddenAndItsChangeIsNoticed(t *testing.T) {
	text := "[fabric.tape]\npath = \"/p\"\ntoken = \"%s\"\n"
	a, b := mustLoad(t, fmt.Sprintf(text, "drowssap")), mustLoad(t, fmt.Sprintf(text, "another1"))
	if s := fmt.Sprint(a.Origins()); strings.Contains(s, "drowssap") || !strings.Contains(s, "[redacted]") {
		t.Errorf("origins: %s", s)
	}
	if got := a.SecretsInFile(); !slices.Equal(got, []string{"fabric.tape.token"}) {
		t.Errorf("secrets in the file: %q", got)
	}
	if got := mustLoad(t, twoTapes, "MERIDIAN_FABRIC_LEFT_TOKEN=x").SecretsInFile(); len(got) != 0 {
		t.Errorf("secrets in the file, of one in the environment: %q", got)
	}
	if got := config.Changes(a, b); len(got) != 1 || got[0] != (config.Change{Key: "fabric.tape.token", What: "changed"}) {
		t.Errorf("changes %v", got)
	}
}

// What is asked for by another word is told by its own.
func TestUnknownKeysSuggestWhatWasMeant(t *testing.T) {
	for text, want := range map[string]string{
		"[arena]\nsize = \"1GiB\"\n":        "arena.size: unknown key; did you mean kv_memory.capacity_bytes?",
		"[arena]\ncapacity = \"1GiB\"\n":    "arena.capacity: unknown key; did you mean kv_memory.capacity_bytes?",
		"[kv_memory]\nsize = 1\n":           "kv_memory.size: unknown key; did you mean kv_memory.capacity_bytes?",
		"[arena]\nextent_byte = 1\n":        "arena.extent_byte: unknown key; did you mean arena.extent_bytes?",
		"[[link.peers]]\nname = \"a\"\n":    "link.peers: unknown key; did you mean link.peer?",
		"[fabrics.x]\nkind = \"tape\"\n":    "fabrics: unknown table; did you mean fabric?",
		"[[routes]]\nfabric = \"tape\"\n":   "routes: unknown table; did you mean route?",
		"[models.x]\nreasoning_parser=\"\"": "models: unknown table; did you mean model?",
	} {
		if got := problemsOfTapes(t, text); !strings.Contains(got, want) {
			t.Errorf("of\n%s\nit says %s\nwant %s", text, got, want)
		}
	}
}

// problemsOfTapes are those of a file in a build that has tapes.
func problemsOfTapes(t *testing.T, text string) string {
	t.Helper()
	_, _, err := loadText(t, text)
	return linesOf(t, err)
}
