package config

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever can write the file is a peer from the next reload on: it is refused at the
// start, by -t and by a reload, which all load it so.
func TestAFileWithSecretsThatEverybodyCanWriteIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.toml")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{"[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n", 0o600, ""},
		{"[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n", 0o644, ""}, // a finding of doctor
		{"[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n", 0o606, path + ": its mode is 0606, so everybody can write it, and it holds link.psk: chmod 600"},
		{"[link]\n", 0o606, ""},
	} {
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		for _, reload := range []bool{false, true} {
			_, _, err := Load(Options{Path: path, Regular: reload})
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("mode %04o, reload %t: %v, want %q", c.mode, reload, err, c.want)
			}
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
