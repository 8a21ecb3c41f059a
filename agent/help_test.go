package agent

import (
	"slices"
	"strings"
	"testing"
)

// units are the suffixes of a series' name that its HELP text must explain.
var units = map[string]string{
	"seconds": "second", "bytes": "byte", "tokens": "token", "blocks": "block", "requests": "request",
	"leases": "lease", "reservations": "reserv", "sessions": "engine",
}

// A reader in Prometheus sees one HELP text alone, without its neighbours.
func TestEveryHelpTextStandsAlone(t *testing.T) {
	seen := map[string]string{}
	for _, s := range slices.Concat(newMetrics("", "").docs, collected, llamaSeries) {
		lower := strings.ToLower(s.help)
		switch {
		case !strings.HasSuffix(s.help, ".") || strings.Contains(s.help, "\n"):
			t.Errorf("%s: %q is not one sentence with a period", s.name, s.help)
		case lower[0] == s.help[0] && s.help[0] != '1':
			t.Errorf("%s: %q does not begin with a capital letter", s.name, s.help)
		case len(strings.Fields(s.help)) < 4:
			t.Errorf("%s: %q is too short to say what is counted", s.name, s.help)
		case seen[s.help] != "":
			t.Errorf("%s and %s have the same HELP text", s.name, seen[s.help])
		}
		seen[s.help] = s.name
		for _, word := range []string{"the same", "those ", "as above", "see above"} {
			if strings.Contains(lower, word) {
				t.Errorf("%s: %q refers to another text", s.name, s.help)
			}
		}
		name := strings.Split(strings.TrimSuffix(s.name, "_total"), "_")
		if noun, ok := units[name[len(name)-1]]; ok && !strings.Contains(lower, noun) {
			t.Errorf("%s: %q does not name the unit %q", s.name, s.help, name[len(name)-1])
		}
		if s.kind == "counter" != strings.HasSuffix(s.name, "_total") {
			t.Errorf("%s is a %s", s.name, s.kind)
		}
	}
}
