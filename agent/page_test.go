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
	"time"

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
	ca := newAuthority(t, dir)
	stranger := newAuthority(t, shortDir(t))
	pem := func(a *authority, why, name string) []string {
		a.issue(t, name, "acme")
		at := func(file string) string { return filepath.Join(a.dir, file) }
		return []string{"--refused", why, filepath.Join(dir, "ca.pem"), at(name + "-acme.pem"), at(name + "-acme.key")}
	}
	shown := pem(ca, "", "page")
	certificates := append([]string{"--server-name", "certificate", "--certificate"}, shown[2:]...)
	certificates = append(certificates, pem(stranger, "tls", "page")...)
	certificates = append(certificates, pem(ca, "AUTH", "unlisted")...)
	ca.until = time.Now().Add(-time.Minute)
	certificates = append(certificates, pem(ca, "tls", "expired")...)
	ca.until = time.Time{}
	certificates = append(certificates, "--refused", "tls", filepath.Join(dir, "ca.pem"), "", "")
	listed := "[[link.peer]]\nname = \"page\"\ntenants = [\"acme\"]\n[[link.peer]]\nname = \"expired\"\ntenants = [\"acme\"]\n"
	for _, c := range []struct {
		name, text string
		args       []string
	}{
		{"certificate", "[link]\nlisten = [\"tls://127.0.0.1:0\"]\n" + listed + ca.issue(t, "certificate", "acme"), certificates},
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

// The same peer, while the daemon leaves and comes back: what runs ends well, what
// is new is refused, and the session ends without an error.
func TestAPeerMadeFromThePageOutlivesADrain(t *testing.T) {
	python := realpart.Python(t)
	dir := shortDir(t)
	secret, at := filepath.Join(dir, "psk"), "unix://"+filepath.Join(dir, "l")
	if err := os.WriteFile(secret, []byte("5b1e7f0c92d84a63b0f6a9d13e57c248"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, dir, "leaves", listener(at, "page"))
	cmd := exec.CommandContext(t.Context(), python, "../conformance/python/drain.py", "--tenant", "acme", "--link", at, "--name", "page", "--psk-file", secret)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, want := range []string{"running", "done"} {
		if !lines.Scan() || lines.Text() != want {
			_ = cmd.Wait()
			t.Fatalf("the peer says %q, want %q: %s", lines.Text(), want, said.String())
		}
		if want == "running" { // it may be slow, so nothing is closed before it has said that all is done
			if err := n.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	n.quietNow(t)
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	again := startNode(t, dir, "leaves", listener(at, "page"))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
	again.quietNow(t)
}
