package link

import (
	"strings"
	"unicode/utf8"
)

// clip is s as it is written: valid UTF-8 and at most MaxText bytes, cut
// between two runes.
func clip(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if len(s) <= MaxText {
		return s
	}
	n := MaxText
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
