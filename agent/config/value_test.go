package config

import "testing"

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]uint64{
		"0": 0, "4096": 4096, "64MiB": 64 << 20, "1.5GiB": 3 << 29, " 2 KiB ": 2048, "1KB": 1000, "3TB": 3e12, "7B": 7,
	} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("%q = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "64M", "MiB", "1.2.3GiB", "-1KiB", "9999999999TiB", "NaNGiB", "infMiB", "9223372036854775808"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("%q = %d, want an error", in, got)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for in, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1 << 20: "1 MiB", 1<<20 - 1: "1 MiB", 3 << 29: "1.5 GiB", 1 << 62: "4 EiB", 1<<64 - 1: "16 EiB",
	} {
		if got := FormatBytes(in); got != want {
			t.Errorf("%d = %s, want %s", in, got, want)
		}
	}
}

func TestShownSizesReadBackExactly(t *testing.T) {
	for _, n := range []uint64{0, 1, 1000, 1024, 16384, 64 << 20, 64<<20 + 1, 1 << 40, 3 << 41} {
		l := loader{cfg: &Config{Engine: Engine{Staging: n}}}
		f, _ := l.setting("engine.staging_bytes")
		s := f.show()
		if got, err := ParseBytes(trimQuotes(s)); err != nil || got != n {
			t.Errorf("%d is shown as %s, which reads as %d, %v", n, s, got, err)
		}
	}
}

func trimQuotes(s string) string {
	if len(s) > 1 && s[0] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

func TestNearestNames(t *testing.T) {
	names := []string{"min_think_tokens", "max_think_tokens", "think_tpot_budget_ms"}
	for in, want := range map[string]string{
		"min_think_token":      "min_think_tokens",
		"mxa_think_tokens":     "max_think_tokens",
		"think_tpot_budget":    "think_tpot_budget_ms",
		"something_else":       "",
		"":                     "",
		"think_tpot_budget_ms": "think_tpot_budget_ms",
	} {
		if got, ok := Nearest(in, names); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, ok, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"lanes", "lane", 1}} {
		if got := distance(c.a, c.b); got != c.want || distance(c.b, c.a) != got {
			t.Errorf("%s %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestLocateFindsLines(t *testing.T) {
	at := locate(`# comment
top = 1
[link]
listen = [
  "tcp://[::1]:1", # not a = key
  "b"
]
psk = "a = [b"
[link.tls]
cert = "x"
[[link.peer]]
name = """
fake = 1
[fake]
"""
[[link.peer]]
"name" = 'x'
[model."a b"]
reasoning_parser = "y"
`)
	for key, want := range map[string]int{
		"top": 2, "link": 3, "link.listen": 4, "link.psk": 8, "link.tls": 9, "link.tls.cert": 10, "link.peer[0]": 11, "link.peer[0].name": 12,
		"link.peer[1]": 16, "link.peer[1].name": 17, "model.a b": 18, "model.a b.reasoning_parser": 19,
		"link.tls.key": 9, "link.peer[1].zzz": 16, "nowhere.at.all": 0,
	} {
		if got := at.of(key); got != want {
			t.Errorf("%s: line %d, want %d", key, got, want)
		}
	}
	if _, ok := at["fake"]; ok {
		t.Error("a line inside a string is taken for a key")
	}
}

func FuzzLocateNeverPanics(f *testing.F) {
	f.Add("[a]\nb = 1\n[[c]]\nd = \"\"\"\n")
	f.Add("\"unclosed = 1\n[\n[[\n]]\n= \n.\n")
	f.Fuzz(func(t *testing.T, text string) {
		for key, n := range locate(text) {
			if n < 1 {
				t.Errorf("%q at line %d", key, n)
			}
		}
	})
}
