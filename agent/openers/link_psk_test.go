package openers

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

func TestWeakKeysAreRefused(t *testing.T) {
	for _, weak := range []string{
		"short", "0123456789abcdef", "an example key, change it", "correct horse battery",
		strings.Repeat("a", 64), strings.Repeat("0123456789abcdef", 2), strings.Repeat("deadbeef", 8), strings.Repeat("9f3a61c04d", 4),
		"fedcba9876543210fedcba9876543211", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
		"31415926535897932384626433832795", "my-Secret-for-all-of-the-peers-of-this-cluster-2024",
		"the key of the peers in the second rack of hall",
	} {
		if _, _, err := loadLink(t, "[link]\npsk = \""+weak+"\"\n"); err == nil || !strings.Contains(err.Error(), "128 random bits") || !strings.Contains(err.Error(), "mrdn cert psk") {
			t.Errorf("%q: %v", weak, err)
		} else if strings.Contains(err.Error(), weak) {
			t.Errorf("the error prints the key: %v", err)
		}
	}
}

func TestRandomKeysAreTaken(t *testing.T) {
	if key := "232d013332780eededd88b4767b0102a"; !hardToGuess(key) { // drawn by chance: 17 of its 31 steps are small
		t.Errorf("the random key %q is refused", key)
	}
	for range 2000 {
		b := make([]byte, 17)
		_, _ = rand.Read(b)
		// One key in 50,000 has letters of one case only, and counts as words: of those
		// that mrdn cert psk makes, in hexadecimal, none does.
		mixed := func(key string) string {
			if key == strings.ToLower(key) || key == strings.ToUpper(key) {
				return "Aa" + key
			}
			return key
		}
		for _, key := range []string{hex.EncodeToString(b[:16]), strings.ToUpper(hex.EncodeToString(b[:16])), mixed(base64.StdEncoding.EncodeToString(b[:16])), mixed(base64.RawURLEncoding.EncodeToString(b[:16])), base32.StdEncoding.EncodeToString(b)} {
			if !hardToGuess(key) {
				t.Fatalf("the random key %q is refused", key)
			}
		}
	}
}
