package llama

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"meridian/agent/llama/identity"
)

// An answer that outlives its llama-server is told that the server has ended, and
// not that somebody wrote to the model.
func TestAServerThatHasEndedHasNoChangedModel(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files, err := identity.Open(identity.Source{Server: write("llama-server", "program"), Model: write("m.gguf", "weights")})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{content: files, changed: make(chan error, 1)}
	if err := s.intact(); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.intact(); !errors.Is(err, ErrDown) || err.Error() != ErrDown.Error() || len(s.changed) != 0 {
		t.Errorf("once it has ended: %v, and %d changes of the model are told", err, len(s.changed))
	}
}
