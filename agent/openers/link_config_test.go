package openers

import (
	"os"
	"path/filepath"
	"testing"

	"meridian/agent/config"
)

func loadLink(t *testing.T, text string) (*config.Config, []config.Warning, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), config.FileName)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Options{Path: path, Env: []string{}, Kinds: Kinds()})
}

func TestLanesAreAsManyAsCoresAndAtMostFour(t *testing.T) {
	for text, want := range map[string]int{"": 0, "[link]\nlanes = 7\n": 7} {
		c, _, err := loadLink(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if n := linkOf(c).laneCount(); n != want && (want != 0 || n < 1 || n > 4) {
			t.Errorf("%q: %d lanes", text, n)
		}
	}
}
