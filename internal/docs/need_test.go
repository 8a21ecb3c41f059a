package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is missing is one clear line, before anything else is tried.
func TestWhatIsNeededIsCheckedAndNamed(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{"good": "echo go1.26.0", "old": "echo go1.24.3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ goes, want string }{
		{filepath.Join(dir, "good"), ""},
		{filepath.Join(dir, "old"), "need: Go 1.26 or later: " + filepath.Join(dir, "old") + " is go1.24.3"},
		{filepath.Join(dir, "absent"), "need: Go 1.26 or later: there is no "},
	} {
		cmd := exec.Command(filepath.Join(root, "internal/ci/need.sh"))
		cmd.Env = append(os.Environ(), "GO="+c.goes, "SSL_CERT_FILE="+filepath.Join(dir, "good"))
		out, err := cmd.CombinedOutput()
		if (err == nil) != (c.want == "") || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, said %q, want %q", c.goes, err, out, c.want)
		}
	}
	readme := pages(t)["README.md"]
	for _, want := range []string{"Linux", "Go 1.26", "CA certificates", "make", "AVX2"} {
		head, _, _ := strings.Cut(readme, "go run ./cmd/mrdn demo")
		if !strings.Contains(head, want) {
			t.Errorf("README does not say before the first command that %s is needed", want)
		}
	}
}
