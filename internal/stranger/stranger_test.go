package stranger

import (
	"strings"
	"testing"
)

// Control characters of both sets, line ends, characters that turn the direction of a
// line, and bytes that are no UTF-8 stay out of a log; a long text is cut.
func TestNothingOfAStrangersTextActsOnALog(t *testing.T) {
	for in, want := range map[string]string{
		`plain "12"`:                   `plain "12"`,
		"a\x1b[2J\n\x7f":               `a\x1b[2J\n\x7f`,
		"c1 \u009b31m":                 `c1 \u009b31m`,
		"turned \u202e":                `turned \u202e`,
		"ü":                            `\u00fc`,
		"\xff":                         `\ufffd`,
		strings.Repeat("x", 1000):      strings.Repeat("x", maxShown) + "…",
		strings.Repeat("ü", 1000):      strings.Repeat(`\u00fc`, maxShown/2) + "…",
		"x" + strings.Repeat("ü", 100): "x" + strings.Repeat(`\u00fc`, (maxShown-1)/2) + `\ufffd…`,
	} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %s, want %s", in, got, want)
		}
		for _, c := range Quote(in) {
			if (c < ' ' || c > '~') && c != '…' {
				t.Errorf("Quote(%q) has %q", in, c)
			}
		}
	}
	if got := Quote("a\n\"" + strings.Repeat("x", 1000)); got != `"a\n\"`+strings.Repeat("x", maxShown-3)+`"…` {
		t.Error(got)
	}
}
