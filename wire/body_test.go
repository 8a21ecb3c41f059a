package wire

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
)

// modeNames are the names of the modes in tests and vectors.
var modeNames = map[Mode]string{Strict: "strict", Lenient: "lenient"}

// patterned returns n bytes i mod 251, the input of BLAKE3's own test vectors.
func patterned(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// payloadOf returns a valid payload, or stops the test.
func payloadOf(t testing.TB, tier Tier, body []byte) []byte {
	t.Helper()
	p, err := AppendPayload(nil, tier, body)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fromHex is hex.DecodeString for constants.
func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantError stops the test unless err equals want, type and values, and matches
// want's code.
func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !reflect.DeepEqual(err, want) {
		t.Fatalf("error %v (%T), want %v (%T)", err, err, want, want)
	}
	if want != nil && !errors.Is(err, CodeOf(want)) {
		t.Fatalf("error %v does not match its own code %v", err, CodeOf(want))
	}
}
