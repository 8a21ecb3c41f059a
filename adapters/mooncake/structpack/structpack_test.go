package structpack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

type uuid struct{ High, Low uint64 }

// everything has a member of each kind.
type everything struct {
	Flag   bool
	Small  uint8
	Signed int16
	Enum   int32
	Wide   uint64
	Text   string
	List   []string
	Maybe  *uint64
	ID     uuid
	Answer Expected[string]
	Choice choice
}

type choice struct {
	Variant
	Text   *string
	Number *uint32
}

type (
	padded struct {
		A int64
		B int32
	}
	pair  struct{ A, B uint64 }
	mixed struct {
		A string
		B uint64
	}
	maybe   struct{ A *uint64 }
	nothing = Expected[Void]
)

func TestLiteralsAreThoseOfStructPack(t *testing.T) {
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"int32":                             {Of[int32]().Literal(), "01"},
		"bool":                              {Of[bool]().Literal(), "0b"},
		"string":                            {Of[string]().Literal(), "800c"},
		"vector of strings":                 {Of[[]string]().Literal(), "84800c"},
		"a struct":                          {Of[mixed]().Literal(), "fd800c04ff"},
		"an optional":                       {Of[maybe]().Literal(), "fd8504ff"},
		"a struct as it lies in memory":     {Of[pair]().Literal(), "fd04048989ff"},
		"the same as arguments":             {Tuple[pair]().Literal(), "fd0404ff"},
		"a struct with padding":             {Of[padded]().Literal(), "fd0301ff"},
		"an answer that may be an error":    {Of[Expected[bool]]().Literal(), "870b01"},
		"an answer of nothing, or an error": {Of[nothing]().Literal(), "87fa01"},
		"a variant":                         {Of[choice]().Literal(), "86800c02ff"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: literal %s, want %s", name, got, c.want)
		}
	}
}

func TestTypesWithoutALiteralPanicAtStartUp(t *testing.T) {
	type unexported struct{ a int32 }
	type loop struct{ Next *loop }
	type noPointer struct {
		Variant
		A int32
	}
	_ = unexported{a: 1}
	for name, f := range map[string]func(){
		"a map":                   func() { Of[map[string]int32]() },
		"a member not exported":   func() { Of[unexported]() },
		"a type in itself":        func() { Of[loop]() },
		"a variant of no pointer": func() { Of[noPointer]() },
		"a vector of nothing":     func() { Of[[]Void]() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s has a codec", name)
				}
			}()
			f()
		}()
	}
}

func full() everything {
	return everything{
		Flag: true, Small: 200, Signed: -2, Enum: -704, Wide: 1 << 63, Text: "text", List: []string{"a", "", "ccc"},
		Maybe: Optional[uint64](7), ID: uuid{1, 2}, Answer: Expected[string]{Code: -1}, Choice: choice{Number: Optional[uint32](9)},
	}
}

var codec = Of[everything]()

func encoded(t testing.TB, v everything) []byte {
	t.Helper()
	b, err := codec.Append(nil, &v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	long := full()
	long.Text = strings.Repeat("x", 300)
	longer := full()
	longer.Text = strings.Repeat("x", 70_000)
	other := full()
	other.Maybe, other.Answer, other.Choice = nil, Expected[string]{Value: "yes"}, choice{Text: Optional("left")}
	for name, v := range map[string]everything{"short": full(), "lengths of two bytes": long, "of four": longer, "other choices": other} {
		got, err := codec.Decode(encoded(t, v))
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// All that may stand in front of a value: literal or not, each width of lengths, and
// the message's own length with more behind what is known.
func TestBothFormsAndEachWidthAreRead(t *testing.T) {
	c := Of[mixed]()
	code := hex.EncodeToString(le(c.Code() | 1))
	for name, message := range map[string]string{
		"no flags":                         hex.EncodeToString(le(c.Code())) + "0161" + "0500000000000000",
		"flags 0":                          code + "00" + "0161" + "0500000000000000",
		"literal":                          code + "04" + "fd800c04ff00" + "0161" + "0500000000000000",
		"lengths of 2 bytes":               code + "08" + "010061" + "0500000000000000",
		"of 4, with literal":               code + "14" + "fd800c04ff00" + "0100000061" + "0500000000000000",
		"of 8":                             code + "18" + "010000000000000061" + "0500000000000000",
		"its own length":                   code + "01" + "1100" + "0161" + "0500000000000000",
		"its own length, and a later part": code + "01" + "1300" + "0161" + "0500000000000000" + "ffff",
	} {
		b, err := hex.DecodeString(message)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := c.Decode(b); err != nil || got != (mixed{"a", 5}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func le(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }

func TestAMessageCutAnywhereIsRefused(t *testing.T) {
	b := encoded(t, full())
	for n := range b {
		if _, err := codec.Decode(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were read as a whole message", n, len(b))
		}
	}
}

func TestWhatIsWrongIsNamedWithItsPlace(t *testing.T) {
	c := Of[mixed]()
	code, flagged := hex.EncodeToString(le(c.Code())), hex.EncodeToString(le(c.Code()|1))
	for message, want := range map[string]string{
		code + "0161" + "0500000000000000" + "00": "at byte 14: 1 bytes are left over",
		code + "ff61" + "0500000000000000":        "at byte 4: a text of 255 bytes, and 9 are left",
		flagged + "e0":                            "at byte 4: flags 0xe0 are not known",
		flagged + "04" + "fd800c":                 "at byte 5: the type literal has no end",
		flagged + "01" + "ffff":                   "at byte 5: the message says that it has 65535 bytes, and has 7",
		flagged + "18" + "ffffffffffffffff":       "at byte 5: a text of 18446744073709551615 bytes, and 0 are left",
		"00":                                      "at byte 0: 4 bytes are needed and 1 are left",
	} {
		b, err := hex.DecodeString(message)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Decode(b)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || err.Error() != want {
			t.Errorf("%s: %v, want %s", message, err, want)
		}
	}
	for message, want := range map[string]string{
		hex.EncodeToString(le(Of[[]string]().Code())) + "09": "at byte 4: a length of 9, and 0 bytes are left",
	} {
		b, _ := hex.DecodeString(message)
		if _, err := Of[[]string]().Decode(b); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", message, err, want)
		}
	}
}

func TestValuesThatNoneMaySendAreRefused(t *testing.T) {
	bad := func(name string, code uint32, body string, decode func([]byte) error) {
		b, _ := hex.DecodeString(hex.EncodeToString(le(code)) + body)
		if err := decode(b); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	truth, answer, either := Of[bool](), Of[Expected[bool]](), Of[choice]()
	bad("a bool of 2", truth.Code(), "02", func(b []byte) error { _, err := truth.Decode(b); return err })
	bad("an answer that is neither", answer.Code(), "0200000000", func(b []byte) error { _, err := answer.Decode(b); return err })
	bad("an error of code 0", answer.Code(), "0000000000", func(b []byte) error { _, err := answer.Decode(b); return err })
	bad("a third choice of two", either.Code(), "0200000000", func(b []byte) error { _, err := either.Decode(b); return err })
	if _, err := either.Append(nil, &choice{}); err == nil {
		t.Error("a variant without a choice was written")
	}
}

func TestAMessageOfAnotherTypeSaysBoth(t *testing.T) {
	b, err := hex.DecodeString(hex.EncodeToString(le(Of[pair]().Code()|1)) + "04" + "fd04048989ff00" + strings.Repeat("00", 16))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Of[mixed]().Decode(b)
	var e *CodeError
	if !errors.As(err, &e) || e.Got != Of[pair]().Code() || e.Want != Of[mixed]().Code() || !bytes.Equal(e.GotLiteral, Of[pair]().Literal()) {
		t.Errorf("%v", err)
	}
}

// A count alone asks for no memory: elements are made as their bytes are read.
func TestALongCountTakesNoMemory(t *testing.T) {
	c := Of[[]uint8]()
	b := append(append(le(c.Code()|1), 0x10, 0, 0, 1, 0), make([]byte, MaxElements)...)
	if v, err := c.Decode(b); err != nil || len(v) != MaxElements {
		t.Fatal("as many as are allowed:", len(v), err)
	}
	b = append(append(le(c.Code()|1), 0x10, 1, 0, 1, 0), make([]byte, MaxElements+1)...)
	if _, err := c.Decode(b); err == nil || !strings.Contains(err.Error(), "the limit is 65536") {
		t.Errorf("one more: %v", err)
	}
	b = append(append(le(Of[[]everything]().Code()|1), 0x10, 0, 0, 1, 0), make([]byte, 100)...)
	if n := testing.AllocsPerRun(1, func() { _, _ = Of[[]everything]().Decode(b) }); n > 1000 {
		t.Errorf("a count without elements behind it: %v allocations", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, full()))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := codec.Decode(b)
		if err != nil {
			return
		}
		again, err := codec.Decode(encoded(t, v))
		if err != nil || !bytes.Equal(encoded(t, again), encoded(t, v)) {
			t.Errorf("%x: read, written and read again: %v", b, err)
		}
	})
}
