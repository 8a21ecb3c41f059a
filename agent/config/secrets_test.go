package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"meridian/agent/config"
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
			_, _, err := config.Load(config.Options{Path: path, Regular: reload, Kinds: kinds})
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("mode %04o, reload %t: %v, want %q", c.mode, reload, err, c.want)
			}
		}
	}
}
