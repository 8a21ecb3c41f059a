package wire

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// goldenKeys are keys in the namespace of fullManifest for the engine hash
// patterned(n), made with the reference implementation of BLAKE3.
var goldenKeys = []struct {
	n   int
	key string
}{
	{0, "5e9210c9643a18daccbc7ef2341709c55b8ba83012e798561a3007d4497fa112"},
	{8, "201ad3654223cf395fef3555229d36bf19b3a2d0fa25ea8ca35100c2015b7cc3"},
	{32, "2f8146a20783a75d15950b5e30511f4991e720429004a01df49a128257874b2d"},
	{64, "44b86c583b5227e8f445e91741aabb253d7679b35075cc3303cd64248f6a3b3e"},
	{65, "a9b3abc77c1cdf0330a5d8339c6c8bab9a4d428d64d091d3b21dc2064536042c"},
	{2000, "3261a29f36f4795ae0cf07242ce459c106e634df4db380a71180cea8e8ece26a"},
}

func TestKeyOfGolden(t *testing.T) {
	ns := fullManifest.Namespace()
	for _, g := range goldenKeys {
		if got := KeyOf(ns, patterned(g.n)).String(); got != g.key {
			t.Errorf("hash of %d bytes: key %s, want %s", g.n, got, g.key)
		}
	}
	if KeyOf(ns, patterned(32)) == KeyOf(Namespace{}, patterned(32)) {
		t.Error("two namespaces share a key")
	}
}

func TestRefHandleIsLittleEndian(t *testing.T) {
	r := Ref{Inc: 0x0807060504030201, Slot: 0x0c0b0a09, Gen: 0x100f0e0d}
	for i := range r.Agent {
		r.Agent[i] = byte(0xa0 + i)
	}
	const want = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf0102030405060708090a0b0c0d0e0f10"
	h := r.Handle()
	if got := hex.EncodeToString(h[:]); got != want {
		t.Fatalf("handle %s, want %s", got, want)
	}
	if r.String() != want || RefOf(h) != r {
		t.Fatalf("String %s, back %+v", r, RefOf(h))
	}
	if r.IsZero() || !(Ref{}).IsZero() || RefOf([32]byte{}) != (Ref{}) {
		t.Fatal("only the zero reference is zero")
	}
}

func TestNamesSurviveJSON(t *testing.T) {
	type names struct {
		Key  Key
		NS   Namespace
		Ref  Ref
		Sum  Sum
		Keys map[Key]int
	}
	in := names{KeyOf(Namespace{}, nil), Manifest{}.Namespace(), Ref{Slot: 7, Gen: 2}, SumOf(nil), map[Key]int{{1}: 1}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"`+in.Key.String()+`"`) || !strings.Contains(string(b), `"`+in.Sum.String()+`"`) {
		t.Fatalf("names are not hex in %s", b)
	}
	var out names
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if out.Key != in.Key || out.NS != in.NS || out.Ref != in.Ref || out.Sum != in.Sum || out.Keys[Key{1}] != 1 {
		t.Fatalf("%+v came back as %+v", in, out)
	}
}

func TestParsingNamesRefusesWhatIsNotHex(t *testing.T) {
	good := strings.Repeat("0aF9", 16)
	k, err := ParseKey(good)
	if err != nil || k.String() != strings.ToLower(good) {
		t.Fatalf("%s, %v", k, err)
	}
	parsers := map[string]func(string) (any, any, error){
		"key":       func(s string) (any, any, error) { v, err := ParseKey(s); return v, Key{}, err },
		"namespace": func(s string) (any, any, error) { v, err := ParseNamespace(s); return v, Namespace{}, err },
		"reference": func(s string) (any, any, error) { v, err := ParseRef(s); return v, Ref{}, err },
	}
	for name, parse := range parsers {
		if _, _, err := parse(good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, bad := range []string{"", "00", good[:63], good + "0", good[:62] + "0g", strings.Repeat("é", 32)} {
			got, zero, err := parse(bad)
			if !errors.Is(err, CodeInvalid) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %q: %v", name, bad, err)
			}
			if got != zero {
				t.Errorf("%s %q: a refused text left %v", name, bad, got)
			}
		}
	}
	for _, bad := range []string{good, good[:30] + "zz"} {
		s := SumOf(nil)
		if err := s.UnmarshalText([]byte(bad)); !errors.Is(err, CodeInvalid) || s != (Sum{}) {
			t.Errorf("checksum %q: %v, %v", bad, s, err)
		}
	}
}

func TestAReferenceOfAnotherLengthSaysHowManyDigitsItNeeds(t *testing.T) {
	if _, err := ParseRef("abc"); err == nil || !strings.Contains(err.Error(), "want 64 hex digits, got 3 characters") {
		t.Errorf("got %v", err)
	}
}
