// Package stranger writes somebody else's text into errors and log lines: cut to a bound,
// and with nothing in it that a terminal or a log would act on. It may import the
// standard library only.
package stranger

import "strconv"

// maxShown bounds what is repeated of a text, in bytes.
const maxShown = 128

// Quote is a text in quotes. What is not printable ASCII is escaped.
func Quote(s string) string {
	if len(s) > maxShown {
		return strconv.QuoteToASCII(s[:maxShown]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// Text is a text without quotes around it, such as a number, a field of JSON or another
// error's words. What is not printable ASCII is escaped.
func Text(s string) string {
	rest := ""
	if len(s) > maxShown {
		s, rest = s[:maxShown], "…"
	}
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if r >= ' ' && r <= '~' {
			out = append(out, byte(r))
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		out = append(out, q[1:len(q)-1]...)
	}
	return string(out) + rest
}
