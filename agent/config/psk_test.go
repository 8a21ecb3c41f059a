package config

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

func TestRandomKeysAreTaken(t *testing.T) {
	if key := "232d013332780eededd88b4767b0102a"; !hardToGuess(key) { // drawn by chance: 17 of its 31 steps are small
		t.Errorf("the random key %q is refused", key)
	}
	for range 2000 {
		b := make([]byte, 17)
		_, _ = rand.Read(b)
		for _, key := range []string{hex.EncodeToString(b[:16]), strings.ToUpper(hex.EncodeToString(b[:16])), base64.StdEncoding.EncodeToString(b[:16]), base64.RawURLEncoding.EncodeToString(b[:16]), base32.StdEncoding.EncodeToString(b)} {
			if !hardToGuess(key) {
				t.Fatalf("the random key %q is refused", key)
			}
		}
	}
}
