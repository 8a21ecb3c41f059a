package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"meridian/agent/llama/fetch"
	"meridian/internal/realpart"
)

// parts are the llama-server and the model that `mrdn llama up --fetch` would
// install, from where the tests have them.
func parts(t *testing.T) (dir string, p fetch.Parts) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, ".tools", "py", "llama"))
	if err != nil {
		t.Fatal(err)
	}
	p, err = fetch.Find(dir)
	realpart.Need(t, err, fetch.ErrMissing, "internal/ci/python.sh llama installs both")
	return dir, p
}

// answered waits for a front.
const answered = `answered() {
  for _ in $(seq 240); do mrdn chat --url "$1" --max-tokens 1 hello >/dev/null 2>&1 && return; sleep 0.5; done
  echo "no answer from $1" >&2; return 1
}
`

func TestARealModelOnOneMachine(t *testing.T) {
	s := newStage(t)
	dir, _ := parts(t)
	if err := os.MkdirAll(filepath.Join(s.dir, ".cache", "meridian"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(s.dir, ".cache", "meridian", "llama")); err != nil {
		t.Fatal(err)
	}
	blocks := commands(t, "docs/examples/llama.md", "", "\n## ")
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	up, then, _ := strings.Cut(blocks[0], "\n")
	up, _, _ = strings.Cut(up, "#")
	decode := freeAddress(t)
	text := answered + "unset XDG_CACHE_HOME\n" + up + " --prefill " + freeAddress(t) + " --decode " + decode + " &\nanswered http://" + decode + "\n" +
		strings.NewReplacer("127.0.0.1:8080", decode, "mrdn chat", "echo Hello | mrdn chat --max-tokens 8", "mrdn llama run", "mrdn llama run --max-tokens 8").Replace(then)
	out := s.run(t, text)
	for _, want := range []string{"prefill", "decode", "pulled"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output has no %q:\n%s", want, out)
		}
	}
}

// own is the environment that keeps a node apart from another on the same host.
func own(dir, node, http string) string {
	at := filepath.Join(dir, node)
	return fmt.Sprintf("MERIDIAN_AGENT_STATE_DIR=%[1]s MERIDIAN_ENGINE_SOCKET=%[1]s/e MERIDIAN_ADMIN_SOCKET=%[1]s/a MERIDIAN_LLAMA_DIR=%[1]s/l MERIDIAN_ADMIN_HTTP=%[2]s MERIDIAN_KV_MEMORY_CAPACITY_BYTES=256MiB ", at, http)
}

// The two configurations of "Two hosts" are one host's here: the names of hosts are
// loopback, and the fronts have no proxy between them.
func TestARealModelOnTwoHosts(t *testing.T) {
	s := newStage(t)
	_, p := parts(t)
	m := regexp.MustCompile("(?s)## Two hosts.*?```toml\n(.*?)```").FindStringSubmatch(pages(t)["docs/examples/llama.md"])
	if m == nil {
		t.Fatal("no configuration under Two hosts")
	}
	link, front := map[string]string{}, map[string]string{}
	for _, node := range []string{"prefill", "decode"} {
		link[node], front[node] = freeAddress(t), freeAddress(t)
	}
	other := map[string]string{"prefill": "decode", "decode": "prefill"}
	script := answered + "mrdn cert ca --dir .\n"
	for _, node := range []string{"prefill", "decode"} {
		text := m[1]
		for _, r := range [][2]string{
			{`name = "prefill"`, fmt.Sprintf("name = %q", node)},
			{"0.0.0.0:7400", link[node]},
			{"prefill", node},
			{`name = "decode"` + "\naddress", fmt.Sprintf("name = %q\naddress", other[node])},
			{"b:7400", link[other[node]]},
			{`role = "` + node + `"`, fmt.Sprintf("role = %q", node)},
			{"/opt/llama/llama-server", p.Server},
			{"/models/model.gguf", p.Model},
			{`"-ngl", "99"`, `"-ngl", "0", "--device", "none", "-t", "1"`},
			{"127.0.0.1:8080", front[node]},
			{"https://b.example:8443", "http://" + front[other[node]]},
			{`token = "..."`, `token = "of both nodes"`},
		} {
			if !strings.Contains(text, r[0]) {
				t.Fatalf("the page's configuration has no %q:\n%s", r[0], text)
			}
			text = strings.ReplaceAll(text, r[0], r[1])
		}
		s.write(t, node+".toml", text)
		script += "mrdn cert issue --ca . --name " + node + " --tenant default --dir .\nmkdir " + node + "\n" + own(s.dir, node, freeAddress(t)) + "meridiand --config " + node + ".toml &\n"
	}
	out := s.run(t, script+"export MERIDIAN_CLI_CHAT_TOKEN='of both nodes'\nanswered http://"+front["decode"]+"\necho Hello | mrdn chat --max-tokens 8 --url http://"+front["decode"]+" --json\n")
	if !strings.Contains(out, `"prefill"`) {
		t.Errorf("the other node prefilled nothing:\n%s", out)
	}
}
