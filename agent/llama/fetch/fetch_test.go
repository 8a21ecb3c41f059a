package fetch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestBothPartsAreFoundOrNone(t *testing.T) {
	dir := t.TempDir()
	if _, err := Find(dir); !errors.Is(err, ErrMissing) {
		t.Errorf("an empty folder: %v", err)
	}
	server, model := filepath.Join(dir, "bin", "llama-server"), filepath.Join(dir, "any_model", "m.gguf")
	touch(t, filepath.Join(dir, "xllamacpp", "__init__.py"))
	if _, err := Find(dir); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), dir) {
		t.Errorf("without a model: %v", err)
	}
	touch(t, model)
	if p, err := Find(dir); err != nil || p.Server != server || p.Model != model {
		t.Errorf("%+v, %v", p, err)
	}
	if info, err := os.Stat(server); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the server is no program: %v, %v", info, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "xllamacpp")); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir); !errors.Is(err, ErrMissing) {
		t.Errorf("a launcher without its package: %v", err)
	}
}

func TestPackagesArePinnedByHashAndNamedInTheAdvice(t *testing.T) {
	pins := 0
	for line := range strings.Lines(requirements) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, hash, ok := strings.Cut(line, " --hash=sha256:")
		if !ok || !strings.Contains(name, "==") || len(hash) != 64 {
			t.Errorf("%q is not pinned by version and hash", line)
		}
		if !strings.Contains(Advice(), name) {
			t.Errorf("the advice does not name %q: %s", name, Advice())
		}
		pins++
	}
	if pins != 2 {
		t.Errorf("%d packages, want a server and a model", pins)
	}
}

func TestWhoHasNoPipIsToldWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := filepath.Join(t.TempDir(), "llama")
	if _, err := Install(t.Context(), dir, os.Stderr); err == nil || !strings.Contains(err.Error(), "--server") {
		t.Errorf("without python3: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed installation left %v", err)
	}
}
