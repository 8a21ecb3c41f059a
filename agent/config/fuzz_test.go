package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"meridian/agent/config"
	"meridian/wire"
)

// Whatever a file says, Load answers with a configuration or with problems
// that match CONFIG.
func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"good", "bad"} {
		names, err := filepath.Glob(filepath.Join("testdata", dir, "*.toml"))
		if err != nil {
			f.Fatal(err)
		}
		for _, n := range names {
			text, err := os.ReadFile(n)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), config.FileName)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := config.Load(config.Options{Path: path, Kinds: kinds, Memory: fixed})
		if (c == nil) == (err == nil) || (err != nil && !errors.Is(err, wire.CodeConfig)) {
			t.Errorf("config %v, error %v", c != nil, err)
		}
		if c != nil {
			_ = c.Origins()
		}
	})
}
