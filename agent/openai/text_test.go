package openai

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// naive is the definition: the first byte at which a stop string ends, and of
// those that end there the longest.
func naive(text string, stops []string) (out string, hit bool) {
	for end := 1; end <= len(text); end++ {
		longest := 0
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				longest = max(longest, len(s))
			}
		}
		if longest > 0 {
			return text[:end-longest], true
		}
	}
	return text, false
}

// mayGrow says whether some end of text can become a stop string.
func mayGrow(text string, stops []string) bool {
	for i := range text {
		for _, s := range stops {
			if len(text)-i < len(s) && strings.HasPrefix(s, text[i:]) {
				return true
			}
		}
	}
	return false
}

func TestStopStringsMatchAsIfTheTextCameWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "ab", "é", "日", "\n"}
	random := func(n int) string {
		var s strings.Builder
		for range n {
			s.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		return s.String()
	}
	hits := 0
	for range 5000 {
		var stops []string
		for range 1 + r.IntN(MaxStops) {
			stops = append(stops, random(1+r.IntN(4)))
		}
		text := random(r.IntN(30))
		want, wantHit := naive(text, stops)
		c := newTextCut(stops)
		got, rest := "", text
		for rest != "" && !c.hit() {
			n := 1 + r.IntN(min(5, len(rest)))
			got += c.push([]byte(rest[:n]))
			rest = rest[n:]
			if !strings.HasPrefix(want, got) {
				t.Fatalf("stops %q, text %q: showed %q, which is more than %q", stops, text, got, want)
			}
			seen := text[:len(text)-len(rest)]
			for !utf8.ValidString(seen) {
				seen = seen[:len(seen)-1] // the rest of a character is held
			}
			if held := seen[min(len(got), len(seen)):]; !c.hit() && held != "" && !mayGrow(held, stops) {
				t.Fatalf("stops %q, text %q: holds %q back, which can be part of none", stops, seen, held)
			}
		}
		if got += c.end(); got != want || c.hit() != wantHit {
			t.Fatalf("stops %q, text %q: got %q (hit %v), want %q (hit %v)", stops, text, got, c.hit(), want, wantHit)
		}
		if wantHit {
			hits++
		}
	}
	if hits < 1000 {
		t.Errorf("only %d of 5000 texts had a stop string", hits)
	}
}

func TestNothingOfAStopStringIsShownAndNothingElseIsKept(t *testing.T) {
	c := newTextCut([]string{"</s>", "<|im_end|>"})
	for _, step := range []struct{ in, out string }{
		{"x<", "x"}, {"/", ""}, {"s", ""}, {"b", "</sb"}, {"<|im", ""}, {"</s", "<|im"}, {"<", "</s"}, {"/s>tail", ""}, {"more", ""},
	} {
		if got := c.push([]byte(step.in)); got != step.out {
			t.Errorf("%q: %q, want %q", step.in, got, step.out)
		}
	}
	if got := c.end(); got != "" || !c.hit() {
		t.Errorf("at the end %q, hit %v", got, c.hit())
	}
}

func TestCharactersAreWholeWhereverTokensEnd(t *testing.T) {
	const text = "aé日😀\u200d🏽ñ\U0010ffff"
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			var c chars
			got := ""
			for _, part := range []string{text[:i], text[i:j], text[j:]} {
				out := string(c.push([]byte(part)))
				if !utf8.ValidString(out) || strings.ContainsRune(out, utf8.RuneError) {
					t.Fatalf("cut at %d and %d: %q", i, j, out)
				}
				got += out
			}
			if got += string(c.rest()); got != text {
				t.Fatalf("cut at %d and %d: %q", i, j, got)
			}
		}
	}
}

// What is no character is U+FFFD, one for each byte, however the bytes come.
func TestBytesThatAreNoCharacterAreReplaced(t *testing.T) {
	for _, text := range []string{"\xff", "a\xe2\x82", "\xe2\x82a", "\xf0\x9f\x98", "\xed\xa0\x80b", "\xc0\xaf", "\x80", "ok\xf4\x90\x80\x80", "\xe2\xe2\x82\xac"} {
		want := string([]rune(text))
		for i := range len(text) + 1 {
			var c chars
			got := string(c.push([]byte(text[:i]))) + string(c.push([]byte(text[i:])))
			if got += string(c.rest()); got != want {
				t.Errorf("%q cut at %d: %q, want %q", text, i, got, want)
			}
		}
	}
	var c chars
	if got := string(c.push([]byte("a\xe2\x82"))); got != "a" {
		t.Errorf("a part of a character was shown before the end: %q", got)
	}
	if got := string(c.rest()); got != "\uFFFD\uFFFD" {
		t.Errorf("at the end %q", got)
	}
}

func FuzzTextCut(f *testing.F) {
	f.Add([]byte("ab</s>"), "</s>", "b", uint8(1))
	f.Add([]byte("\xe2\x82"), "\uFFFD", "\xac", uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, a, b string, step uint8) {
		if a == "" || b == "" || !utf8.ValidString(a) || !utf8.ValidString(b) {
			t.Skip()
		}
		stops := []string{a, b}
		want, hit := naive(string([]rune(string(text))), stops)
		c := newTextCut(stops)
		got := ""
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 1+int(step%7))
			got += c.push(rest[:n])
			rest = rest[n:]
		}
		if got += c.end(); got != want || c.hit() != hit {
			t.Fatalf("%q, %q: got %q (%v), want %q (%v)", text, stops, got, c.hit(), want, hit)
		}
	})
}
