package docs

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The pages' commands run here: "Two nodes by hand" of README, docs/examples/tls.md
// and docs/examples/llama.md, whose parts are those that the tests have installed.

// stage is a folder with the binaries, the example configurations, and places and
// ports of its own instead of the examples' fixed ones.
type stage struct {
	dir     string
	replace *strings.Replacer
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "x") // short: socket paths have at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bin")+"/", "./cmd/mrdn", "./cmd/meridiand")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pairs := []string{"/tmp/", dir + "/"}
	for _, port := range []string{"7411", "7491", "7492"} {
		pairs = append(pairs, "127.0.0.1:"+port, freeAddress(t))
	}
	s := &stage{dir, strings.NewReplacer(pairs...)}
	if err := os.MkdirAll(filepath.Join(dir, "docs/examples"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "docs/examples/prefill.toml", "docs/examples/decode.toml"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		s.write(t, name, s.replace.Replace(string(b)))
	}
	return s
}

// given are the ports that freeAddress gave.
var given = map[int]bool{}

// freeAddress is one that a daemon may listen at. Its port is none of those that the
// kernel gives to whoever asks for any, where it keeps to some: nobody gets it meanwhile.
func freeAddress(t *testing.T) string {
	t.Helper()
	const lowest, most = 10_000, 1 << 16
	b, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	var first int
	if _, err := fmt.Sscan(string(b), &first); err != nil || first <= lowest {
		first = most
	}
	for range 100 {
		port := lowest + rand.IntN(first-lowest)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		if !given[port] {
			given[port] = true
			return l.Addr().String()
		}
	}
	t.Fatal("no free port in 100 tries")
	return ""
}

func (s *stage) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs commands as a reader would paste them, and fails at the first that
// does. What was started in the background ends with them.
func (s *stage) run(t *testing.T, commands string) string {
	t.Helper()
	script := "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\nPATH=\"$PWD/bin:$PATH\"\n" + s.replace.Replace(commands)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "HOME="+s.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v of\n%s\n----\n%s", err, script, out)
	}
	return string(out)
}

// commands are the indented blocks of a page between two of its lines.
func commands(t *testing.T, page, from, to string) []string {
	t.Helper()
	_, text, found := strings.Cut(pages(t)[page], from)
	if !found {
		t.Fatalf("%s has no %q", page, from)
	}
	text, _, _ = strings.Cut(text, to)
	var blocks []string
	inside := false
	for line := range strings.Lines(text) {
		code, ok := strings.CutPrefix(line, "    ")
		switch {
		case !ok && strings.TrimSpace(line) != "":
			inside = false
		case ok && inside:
			blocks[len(blocks)-1] += code
		case ok:
			blocks, inside = append(blocks, code), true
		}
	}
	return blocks
}

func TestTwoNodesByHandOfTheReadme(t *testing.T) {
	s := newStage(t)
	blocks := commands(t, "README.md", "## Two nodes by hand", "\n## ")
	text := strings.Join(blocks, "")
	const build = "go build -o bin/ ./cmd/...\n" // done already
	if !strings.Contains(text, build) {
		t.Fatalf("the commands are not those that this test knows:\n%s", text)
	}
	out := s.run(t, strings.Replace(text, build, "", 1))
	if !strings.Contains(out, "same bytes") {
		t.Errorf("the bytes did not travel:\n%s", out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("a run without a fault logs %s", line)
		}
	}
}

func TestTwoNodesOverTLS(t *testing.T) {
	s := newStage(t)
	blocks := commands(t, "docs/examples/tls.md", "", "\n## ")
	if len(blocks) != 3 {
		t.Fatalf("%d blocks: certificates, configuration, commands", len(blocks))
	}
	psk, tcp := regexp.MustCompile(`(?m)^psk = .*$`), strings.NewReplacer("tcp://", "tls://", `tenants = ["default"]`, `tenants = ["acme"]`)
	for _, node := range []string{"prefill", "decode"} {
		name := "docs/examples/" + node + ".toml"
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		extra := strings.ReplaceAll(s.replace.Replace(blocks[1]), "prefill", node)
		s.write(t, name, tcp.Replace(psk.ReplaceAllString(string(b), ""))+"\n"+extra)
	}
	start := ""
	for node, at := range map[string]string{"prefill": "a", "decode": "b"} {
		start += fmt.Sprintf("mkdir -p /tmp/%s\nmeridiand --config docs/examples/%s.toml &\n", at, node)
	}
	out := s.run(t, blocks[0]+start+"mrdn status --wait --brief --admin /tmp/b/admin.sock\n"+blocks[2])
	if !regexp.MustCompile(`prefill\s+link\s+ready\s+tls`).MatchString(out) {
		t.Errorf("the peer is not ready over TLS:\n%s", out)
	}
}

// The names of certificates in the pages are those that `mrdn cert` writes.
func TestCertificatesHaveTheNamesThatMrdnGivesThem(t *testing.T) {
	name := regexp.MustCompile(`(?m)^\s*(cert|key|ca) = "([^"]+)"`)
	for _, page := range []string{"docs/examples/llama.md", "docs/examples/tls.md"} {
		for _, m := range name.FindAllStringSubmatch(pages(t)[page], -1) {
			file := filepath.Base(m[2])
			good := map[string]bool{"ca": file == "ca.pem", "key": strings.HasSuffix(file, "-key.pem"), "cert": strings.HasSuffix(file, ".pem") && !strings.HasSuffix(file, "-key.pem")}
			if !good[m[1]] {
				t.Errorf("%s: %s = %q is no name that mrdn cert writes", page, m[1], m[2])
			}
		}
	}
}

// A table of TOML may be there once in a file.
func TestNoExampleHasATableTwice(t *testing.T) {
	header := regexp.MustCompile(`(?m)^\[([a-z.]+)\]`)
	fence := regexp.MustCompile("(?s)```toml\n(.*?)```")
	for path, text := range pages(t) {
		if !strings.HasPrefix(path, "docs/examples") {
			continue
		}
		seen := map[string]bool{}
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			for _, m := range header.FindAllStringSubmatch(block[1], -1) {
				if seen[m[1]] {
					t.Errorf("%s has [%s] twice", path, m[1])
				}
				seen[m[1]] = true
			}
		}
	}
}
