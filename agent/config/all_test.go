package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/agent/openers"
)

// problems are those of a file, a line each.
func problems(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := openers.Load(config.Options{Path: path})
	return linesOf(t, err)
}

func linesOf(t *testing.T, err error) string {
	t.Helper()
	var ce *config.Error
	if !errors.As(err, &ce) {
		t.Fatalf("error %v", err)
	}
	var lines []string
	for _, p := range ce.Problems {
		p.File = "m.toml"
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

func TestASizeWithoutQuotesIsToldToHaveThem(t *testing.T) {
	got := problems(t, "[kv_memory]\ncapacity_bytes = 256MiB\n[agent]\ndrain_timeout = 5s\n")
	if n := strings.Count(got, `; a text, a size or a duration stands in quotes, as in "64MiB" or "5s"`); n != 2 {
		t.Errorf("said %d times, want 2:\n%s", n, got)
	}
}

// An operator who corrects a file sees all that is wrong with it, not the first layer.
func TestAllProblemsAreSaidAtOnce(t *testing.T) {
	got := problems(t, `[agent]
namee = "a"
drain_timeout = 5
[link]
lanes = = 4
listen = ["tcp://10.0.0.1:7400"]
[scheduler]
min_think_tokens = 9
max_think_tokens = 3
[admin]
http = "nowhere"
socket = "/a"
socket = "/b"
`)
	for _, want := range []string{
		"m.toml:2: agent.namee: unknown key; did you mean agent.name?",
		"m.toml:3: agent.drain_timeout: 5 must be a string with a unit",
		"m.toml:5: link.lanes: not TOML",
		"m.toml:6: link.listen: \"tcp://10.0.0.1:7400\" is beyond loopback without TLS",
		"m.toml:8: scheduler.min_think_tokens: 9 must be below",
		"m.toml:11: admin.http: \"nowhere\" must be host:port",
		"m.toml:13: admin.socket: not TOML",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not said:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 7 {
		t.Errorf("%d problems, want 7:\n%s", n, got)
	}
}

// What may be wrong only because of another problem is not said.
func TestAProblemBringsNoFollowers(t *testing.T) {
	for _, text := range []string{
		"[link]\nlisten = [\"tcp://127.0.0.1:0\"]\npks = \"0123456789abcdef\"\n",
		"[link.tls]\ncert = \"a\"\nkey = 7\nca = \"c\"\n[link]\nlisten = []\n",
		"[scheduler]\nmin_think_tokens = 600\nmax_think_tokens = \"many\"\n",
		"[disagg]\nenabled = true\nfabric = \"lnik\"\n",
		"[link\nlisten = [\"tcp://127.0.0.1:0\"]\n[disagg]\nenabled = true\n",
	} {
		got := problems(t, text)
		if strings.Contains(got, "missing") || strings.Contains(got, "no way to prove") || strings.Contains(got, "must be below") {
			t.Errorf("of\n%s\nit says\n%s", text, got)
		}
	}
}
