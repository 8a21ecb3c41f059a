package openai

import "unicode/utf8"

// chars makes text of bytes that come in pieces. A character is held until it is
// whole. A byte that can be part of none becomes U+FFFD, one for each, so that
// the text does not depend on where the pieces end.
type chars struct{ held []byte }

func (c *chars) push(b []byte) []byte {
	in := append(c.held, b...)
	c.held = nil
	var out []byte
	for len(in) > 0 {
		if !utf8.FullRune(in) {
			c.held = in // at most 3 bytes
			break
		}
		r, n := utf8.DecodeRune(in)
		out = utf8.AppendRune(out, r)
		in = in[n:]
	}
	return out
}

// rest is what can no longer become whole.
func (c *chars) rest() []byte {
	var out []byte
	for range c.held {
		out = utf8.AppendRune(out, utf8.RuneError)
	}
	c.held = nil
	return out
}

// stopper finds the first place at which any of some strings ends, and keeps
// back what may be the beginning of one. Where two end at the same byte the
// longer counts. What it lets through does not depend on where pieces end.
type stopper struct {
	stops []stop
	held  []byte
	hit   bool
}

// stop is one string with the failure function of Knuth, Morris and Pratt:
// next[i] is the length of the longest proper prefix of text[:i+1] that is its
// suffix too.
type stop struct {
	text  string
	next  []int
	match int // so many bytes of text are what came last
}

func newStopper(texts []string) *stopper {
	s := &stopper{}
	for _, t := range texts {
		next := make([]int, len(t))
		for i, k := 1, 0; i < len(t); i++ {
			for k > 0 && t[i] != t[k] {
				k = next[k-1]
			}
			if t[i] == t[k] {
				k++
			}
			next[i] = k
		}
		s.stops = append(s.stops, stop{text: t, next: next})
	}
	return s
}

// push takes text and gives what is safe to show. After a hit it gives nothing.
func (s *stopper) push(text []byte) []byte {
	if s.hit {
		return nil
	}
	for _, b := range text {
		s.held = append(s.held, b)
		if n := s.step(b); n > 0 {
			out := s.held[:len(s.held)-n]
			s.held, s.hit = nil, true
			return out
		}
	}
	keep := 0
	for i := range s.stops {
		keep = max(keep, s.stops[i].match)
	}
	out := s.held[:len(s.held)-keep]
	s.held = append([]byte(nil), s.held[len(out):]...)
	return out
}

// step moves every string on by one byte; n is the length of the longest that
// is complete.
func (s *stopper) step(b byte) (n int) {
	for i := range s.stops {
		p := &s.stops[i]
		for p.match > 0 && p.text[p.match] != b {
			p.match = p.next[p.match-1]
		}
		if p.text[p.match] == b {
			p.match++
		}
		if p.match == len(p.text) {
			n = max(n, len(p.text))
			p.match = p.next[p.match-1]
		}
	}
	return n
}

// rest is what was held, when nothing more comes.
func (s *stopper) rest() []byte {
	out := s.held
	s.held = nil
	return out
}

// textCut is both: whole characters, up to a stop string.
type textCut struct {
	chars chars
	stops *stopper
	in    int // bytes of whole characters that came
	runes int // the same in characters
	out   int // bytes that went out
}

func newTextCut(stops []string) *textCut { return &textCut{stops: newStopper(stops)} }

func (c *textCut) push(b []byte) string { return c.through(c.chars.push(b), false) }

// end gives what was held back.
func (c *textCut) end() string { return c.through(c.chars.rest(), true) }

func (c *textCut) through(text []byte, last bool) string {
	c.in += len(text)
	c.runes += utf8.RuneCount(text)
	out := c.stops.push(text)
	if last {
		out = append(out, c.stops.rest()...)
	}
	c.out += len(out)
	return string(out)
}

func (c *textCut) hit() bool { return c.stops.hit }
