package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"meridian/internal/realpart"
)

// An agent and an engine that were written from docs/spec alone, in another
// language, agree with this daemon about every frame and every refusal.
func TestPeersMadeFromTheProtocolPageAgree(t *testing.T) {
	python := realpart.Python(t)
	dir := shortDir(t)
	psk := "5b1e7f0c92d84a63b0f6a9d13e57c248"
	secret := filepath.Join(dir, "psk")
	if err := os.WriteFile(secret, []byte(psk), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		args       []string
	}{
		{"pre-shared key", listener("tcp://127.0.0.1:0", "page"), []string{"--name", "page", "--psk-file", secret}},
		{"none", "[link]\ninsecure = true\nlisten = [\"tcp://127.0.0.1:0\"]\n", nil},
		{"peer credentials", fmt.Sprintf("[link]\nlisten = [\"unix://%s/l\"]\n[[link.peer]]\nname = \"page\"\ntenants = [\"acme\"]\n", dir), []string{"--name", "page", "--method", "3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNode(t, dir, strings.ReplaceAll(c.name, " ", "-"), c.text)
			args := append([]string{"../conformance/python/run.py", "--tenant", "acme", "--engine", n.cfg.Engine.Socket, "--link", n.Ports()["link"][0]}, c.args...)
			cmd := exec.CommandContext(t.Context(), python, args...)
			cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			bad := 0
			for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
				if line := s.Text(); strings.HasPrefix(line, "FAIL") {
					bad++
					t.Error(line)
				}
			}
			if err != nil && bad == 0 {
				t.Errorf("%v:\n%s", err, out)
			}
			if testing.Verbose() {
				t.Logf("%s", out)
			}
			n.quietNow(t)
		})
	}
}
