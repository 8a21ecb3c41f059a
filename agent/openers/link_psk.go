package openers

import (
	"regexp"
	"strings"

	"meridian/agent/config"
)

// pskRule: the proof by a key can be tried at leisure by a stranger who has recorded one,
// so only a key that cannot be guessed is worth having.
var pskRule = config.NewRule(
	"a key of at least 128 random bits: 32 hexadecimal digits or 22 characters of base64, neither words nor a pattern (`mrdn cert psk` makes one)",
	func(s config.Secret) bool { return s == "" || hardToGuess(string(s)) },
)

// pskBits are bits a character of keys by their form; the first that fits counts.
// What has no form of random bytes counts as words of a language.
var pskBits = []struct {
	form *regexp.Regexp
	bits float64
}{
	{regexp.MustCompile(`^[0-9]+$`), 3.3},
	{regexp.MustCompile(`^([0-9a-f]+|[0-9A-F]+)$`), 4},
	{regexp.MustCompile(`^[A-Z2-7]+=*$`), 5},
	{regexp.MustCompile(`^[^ ]*([a-z][^ ]*[A-Z]|[A-Z][^ ]*[a-z])[^ ]*$`), 6},
	{regexp.MustCompile(``), 2},
}

// pskWords are what keys that somebody made up hold.
var pskWords = []string{"password", "passwd", "secret", "changeme", "change-me", "change it", "example", "meridian", "qwerty", "letmein"}

// hardToGuess estimates. It refuses what is short or obvious; it cannot know
// whether the rest is random.
func hardToGuess(s string) bool {
	for _, f := range pskBits {
		if f.form.MatchString(s) {
			if f.bits*float64(len(s)) < 127.5 {
				return false
			}
			break
		}
	}
	distinct, steps := map[byte]bool{}, 0
	for i := range len(s) {
		distinct[s[i]] = true
		if i > 0 && s[i]-s[i-1]+1 <= 2 { // the same, the next or the previous character
			steps++
		}
	}
	if len(distinct) < 8 || 4*steps > 3*len(s) { // below 9, or half of the steps, would refuse one random key in 300,000
		return false
	}
	for period := 1; period <= len(s)/2; period++ {
		if s[period:] == s[:len(s)-period] {
			return false
		}
	}
	low := strings.ToLower(s)
	for _, w := range pskWords {
		if strings.Contains(low, w) {
			return false
		}
	}
	return true
}
