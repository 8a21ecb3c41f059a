package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/agent/openers"
)

const example = "meridian.toml"

// load reads text as the daemon would, without an environment and with a fixed
// amount of memory.
func load(t *testing.T, text string) map[string]config.Origin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meridian.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, warnings, err := openers.Load(config.Options{
		Path:   path,
		Memory: func() config.Memory { return config.Memory{Available: 8 << 30} },
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, w := range warnings {
		t.Errorf("warning: %s", w)
	}
	origins := map[string]config.Origin{}
	for _, o := range cfg.Origins() {
		origins[o.Key] = o
	}
	return origins
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	header    = regexp.MustCompile(`^(#?)\[`)
	commented = regexp.MustCompile(`^#[a-z_]+ = `)
)

// The file is valid as it is installed, and says where the unit's folders are.
func TestExampleIsValid(t *testing.T) {
	o := load(t, read(t, example))
	for key, want := range map[string]string{
		"agent.state_dir": `"/var/lib/meridian"`,
		"engine.socket":   `"/run/meridian/engine.sock"`,
		"admin.socket":    `"/run/meridian/admin.sock"`,
	} {
		if o[key].Value != want || o[key].Source != "file" {
			t.Errorf("%s is %s from %s, want %s", key, o[key].Value, o[key].Source, want)
		}
	}
}

// A commented key of a table that is there shows its default: switched on, it
// changes nothing.
func TestCommentedKeysShowDefaults(t *testing.T) {
	text := read(t, example)
	var out []string
	n, live := 0, false
	for _, line := range strings.Split(text, "\n") {
		if m := header.FindStringSubmatch(line); m != nil {
			live = m[1] == ""
		} else if live && commented.MatchString(line) {
			line = line[1:]
			n++
		}
		out = append(out, line)
	}
	if n < 15 {
		t.Fatalf("only %d commented keys found", n)
	}
	before, after := load(t, text), load(t, strings.Join(out, "\n"))
	changed := 0
	for key, o := range after {
		if o.Source == "file" && before[key].Source == "default" {
			changed++
			if o.Value != before[key].Value {
				t.Errorf("%s: the example shows %s, the default is %s", key, o.Value, before[key].Value)
			}
		}
	}
	if changed != n {
		t.Errorf("%d keys switched on, %d of them read", n, changed)
	}
}

// The commented tables are valid too, all at once.
func TestCommentedTablesAreValid(t *testing.T) {
	tls := t.TempDir()
	for _, name := range []string{"cert.pem", "key.pem", "ca.pem"} {
		if err := os.WriteFile(filepath.Join(tls, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.ReplaceAll(read(t, example), "/etc/meridian/tls", tls)
	var out []string
	tables := 0
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "#[") {
			line = line[1:]
			tables++
		} else if commented.MatchString(line) {
			line = line[1:]
		}
		out = append(out, line)
	}
	o := load(t, strings.Join(out, "\n"))
	if tables != 4 {
		t.Errorf("%d tables switched on, want 4", tables)
	}
	for key, want := range map[string]string{
		"link.tls.cert": `"` + tls + `/cert.pem"`,
		`model.Qwen/Qwen3-8B.think_end_token_ids`: `[151668]`,
		"link.peer[0].address":                    `"tls://decode-1.example:7400"`,
		"route[0].require":                        `true`,
	} {
		if got := o[key].Value; got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}
