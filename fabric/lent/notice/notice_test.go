package notice

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"meridian/wire"
)

var verbs = []string{Lend, Put, Get, Stored, Window}

func TestATextIsReadAsItWasWritten(t *testing.T) {
	for _, n := range []Notice{
		{Verb: Lend, Addr: 5, Len: 7},
		{Verb: Window, Addr: 1<<64 - 1, Len: 0},
		{Put, wire.Namespace{1}, wire.Key{2}, 8, 100},
		{Get, wire.Namespace{1}, wire.Key{2}, 0, wire.HeaderLen},
		{Stored, wire.Namespace{1}, wire.Key{2}, 1 << 63, 1000},
	} {
		if got, err := Parse(n.String(), 1000, verbs...); err != nil || got != n {
			t.Errorf("%v: %+v, %v", n, got, err)
		}
	}
	put := Notice{Put, wire.Namespace{1}, wire.Key{2}, 8, 100}
	if got, want := put.String(), "mrdn put 01"+strings.Repeat("0", 62)+" 02"+strings.Repeat("0", 62)+" 8 100"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := (Notice{Verb: Lend + Done, Addr: 5, Len: 7}).String(), "mrdn lend-done 5 7"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Each is refused with a code, and no text of a stranger makes a long or an unclean error.
func TestWhatATextMayNotBe(t *testing.T) {
	put := Notice{Put, wire.Namespace{1}, wire.Key{2}, 8, 100}.String()
	for text, want := range map[string]struct {
		code wire.Code
		say  string
	}{
		"":                                     {wire.CodeInvalid, "want"},
		"hello meridian":                       {wire.CodeInvalid, `"hello meridian"`},
		"mrdn":                                 {wire.CodeInvalid, `"mrdn"`},
		"mrdn pull 1 2":                        {wire.CodeUnsupported, `the verb "pull": want lend or put`},
		"mrdn \x1b[31m 1 2":                    {wire.CodeUnsupported, `\x1b`},
		"mrdn put":                             {wire.CodeInvalid, `2 words, want "mrdn put NAMESPACE KEY ADDRESS LENGTH"`},
		"mrdn lend 1 2 3":                      {wire.CodeInvalid, `5 words, want "mrdn lend ADDRESS LENGTH"`},
		put + " 1":                             {wire.CodeInvalid, "7 words"},
		strings.Replace(put, "01", "0x", 1):    {wire.CodeInvalid, "namespace"},
		strings.Replace(put, "02", "2", 1):     {wire.CodeInvalid, "key"},
		strings.Replace(put, " 8 ", " -8 ", 1): {wire.CodeInvalid, `address "-8"`},
		put + "x":                              {wire.CodeInvalid, `length "100x"`},
		put[:len(put)-3] + "31":                {wire.CodeInvalid, "31 bytes, want 32 to 1000"},
		put[:len(put)-3] + "1001":              {wire.CodeInvalid, "1001 bytes, want 32 to 1000"},
		"mrdn lend 18446744073709551615 2":     {wire.CodeInvalid, "2 bytes at 18446744073709551615"},
		strings.Repeat("x", MaxText+1):         {wire.CodeTooLarge, "1025 bytes, limit 1024"},
	} {
		_, err := Parse(text, 1000, verbs...)
		if !errors.Is(err, want.code) || !strings.Contains(err.Error(), want.say) || len(err.Error()) > 400 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%.80q: %v, want %v %q", text, err, want.code, want.say)
		}
	}
	if _, err := Parse(put, 1000, Lend); !errors.Is(err, wire.CodeUnsupported) || !strings.Contains(err.Error(), `the verb "put": want lend`) {
		t.Errorf("a verb that this peer may not send: %v", err)
	}
}

// Several lines are blocks to put, and nothing else.
func TestATextOfSeveralLines(t *testing.T) {
	put, get := Notice{Put, wire.Namespace{1}, wire.Key{2}, 8, 100}, Notice{Get, wire.Namespace{1}, wire.Key{2}, 8, 100}
	other := put
	other.Key = wire.Key{3}
	for _, want := range [][]Notice{{put}, {get}, {put, other, put}} {
		var lines []string
		for _, n := range want {
			lines = append(lines, n.String())
		}
		if got, err := ParseAll(strings.Join(lines, "\n"), 1000, verbs...); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %v, %v", want, got, err)
		}
	}
	for text, want := range map[string]wire.Code{
		put.String() + "\n":                                     wire.CodeInvalid,
		put.String() + "\n\n" + put.String():                    wire.CodeInvalid,
		put.String() + "\n" + get.String():                      wire.CodeUnsupported,
		put.String() + "\nmrdn lend 5 7":                        wire.CodeUnsupported,
		put.String() + "\n" + strings.Repeat("x", MaxText+1):    wire.CodeTooLarge,
		strings.Repeat(put.String()+"\n", MaxLines):             wire.CodeTooMany,
		strings.Repeat("\n", 1<<20):                             wire.CodeTooMany,
		strings.Repeat(put.String()+"\n", MaxLines-1) + "hello": wire.CodeInvalid,
	} {
		if got, err := ParseAll(text, 1000, verbs...); !errors.Is(err, want) || got != nil || len(err.Error()) > 400 {
			t.Errorf("%.200q: %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestAnAnswerSaysWhatBecameOfATextAndWhy(t *testing.T) {
	put := Notice{Put, wire.Namespace{1}, wire.Key{2}, 8, 100}
	if got, want := put.Answer(wire.CodeOK), strings.Replace(put.String(), "put", "put-done", 1); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := put.Answer(wire.CodeChecksum), strings.Replace(put.String(), "put", "put-refused", 1)+" CHECKSUM"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Whatever is read writes itself again.
func FuzzParse(f *testing.F) {
	f.Add("mrdn lend 5 7")
	f.Add(Notice{Put, wire.Namespace{1}, wire.Key{2}, 8, 100}.String())
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(text, 1000, verbs...)
		if err != nil {
			return
		}
		if again, err := Parse(n.String(), 1000, verbs...); err != nil || again != n {
			t.Fatalf("%q: %+v, then %+v, %v", text, n, again, err)
		}
	})
}
