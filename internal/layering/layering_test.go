package layering

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// rules: for packages whose path starts with room (longest wins), the
// imports that are neither of the standard library nor below an allowed
// prefix are wrong. "" allows nothing beyond the standard library.
var rules = map[string][]string{
	"meridian/wire":                      {"meridian/wire", "meridian/internal/invariants", "github.com/zeebo/blake3", "golang.org/x/sys/cpu"},
	"meridian/scheduler":                 {"meridian/scheduler"},
	"meridian/blocks":                    {"meridian/blocks", "meridian/internal/invariants", "meridian/wire", "golang.org/x/sys"},
	"meridian/fabric":                    {"meridian/fabric", "meridian/wire"},
	"meridian/adapters/link":             {"meridian/adapters/link", "meridian/fabric", "meridian/wire", "meridian/blocks", "meridian/internal", "golang.org/x/sys"},
	"meridian/adapters/mooncake":         {"meridian/adapters/mooncake", "meridian/fabric", "meridian/wire", "meridian/blocks", "meridian/internal", "golang.org/x/sys"},
	"meridian/adapters/mooncake/segment": {"meridian/internal/stranger", "meridian/wire"},
	"meridian/adapters/nixl":             {"meridian/adapters/nixl/control", "meridian/adapters/nixl/plane", "meridian/blocks", "meridian/fabric", "meridian/wire", "meridian/internal", "golang.org/x/sys"},
	"meridian/adapters/nixl/realagent":   {"meridian/adapters/nixl/internal/wheel"},
	"meridian/adapters/nixl/capi":        {"github.com/ebitengine/purego"},
	"meridian/adapters/nixl/control":     {"golang.org/x/sys"},
	"meridian/adapters/nixl/gpus":        {"meridian/adapters/nixl/control", "github.com/NVIDIA/go-nvml"},
	"meridian/adapters/nixl/helper":      {"meridian/adapters/nixl/capi", "meridian/adapters/nixl/control", "meridian/adapters/nixl/gpus", "golang.org/x/sys"},
	"meridian/cmd/meridian-ffi":          {"meridian/adapters/nixl/helper"},
	"meridian/adapters/python":           {},
	"meridian/adapters/llamacpp":         {"meridian/adapters/llamacpp", "meridian/wire", "github.com/zeebo/blake3"},
	"meridian/internal":                  {"meridian/internal"},
	"meridian/agent":                     {"meridian/agent", "meridian/wire", "meridian/fabric", "meridian/scheduler", "meridian/blocks", "meridian/internal", "golang.org/x/sys", "github.com/BurntSushi/toml", "github.com/prometheus", "google.golang.org", "go.opentelemetry.io/otel"},
	"meridian/agent/config":              {"meridian/agent/config", "meridian/agent/client", "meridian/internal/httpguard", "meridian/internal/safefile", "meridian/wire", "github.com/BurntSushi/toml"},
	"meridian/agent/finding":             {"meridian/agent/finding", "meridian/agent/config", "meridian/fabric/topology", "golang.org/x/sys"},
	"meridian/agent/engine":              {"meridian/agent/engine", "meridian/blocks", "meridian/internal", "meridian/scheduler", "meridian/wire", "golang.org/x/sys"},
	"meridian/agent/client":              {"meridian/agent/client", "meridian/agent/adminpb", "meridian/wire", "meridian/internal/invariants", "meridian/internal/unixrecv", "meridian/internal/unixsend", "golang.org/x/sys", "google.golang.org"},
	"meridian/agent/openai":              {"meridian/agent/openai", "meridian/internal/connshare", "meridian/internal/halfopen", "meridian/internal/httpguard", "meridian/internal/loglimit"},
	"meridian/agent/llama":               {"meridian/agent/llama", "meridian/adapters/llamacpp", "meridian/agent/client", "meridian/agent/openai", "meridian/internal/child", "meridian/internal/httpguard", "meridian/internal/safefile", "meridian/scheduler", "meridian/wire"},
	"meridian/agent/llama/identity":      {"github.com/zeebo/blake3"},
	"meridian/agent/llama/pair":          {"meridian/internal/safefile"},
	"meridian/agent/llama/fetch":         {"meridian/adapters/llamacpp/portable", "meridian/internal/safefile"},
	"meridian/agent/transfer":            {"meridian/agent/transfer", "meridian/fabric", "meridian/wire", "meridian/blocks", "go.opentelemetry.io/otel"},
	"meridian/agent/adminpb":             {"google.golang.org"},
	"meridian/conformance":               {"meridian/conformance", "meridian/wire", "meridian/agent/client"},
	"meridian/bench":                     {"meridian/bench", "meridian/wire", "meridian/fabric", "meridian/adapters", "meridian/scheduler", "meridian/blocks", "meridian/agent", "meridian/conformance", "meridian/internal", "golang.org/x"},
	"meridian/cmd":                       {"meridian/cmd", "meridian/agent", "meridian/bench", "meridian/conformance", "meridian/wire", "meridian/internal", "github.com/spf13", "go.yaml.in/yaml/v3", "golang.org/x/term", "google.golang.org"},
	"meridian/deploy":                    {"meridian/deploy", "github.com/grafana/grafana-foundation-sdk"},

	"meridian/fabric/lent/notice":          {"meridian/internal/stranger", "meridian/wire"},
	"meridian/fabric/topology":             {"github.com/BurntSushi/toml"},
	"meridian/fabric/synthetic":            {"meridian/fabric", "meridian/wire", "meridian/blocks"},
	"meridian/fabric/fabrictest":           {"meridian/fabric", "meridian/wire", "meridian/blocks"},
	"meridian/internal/etcd":               {"go.etcd.io/etcd", "go.uber.org/zap", "google.golang.org/grpc"},
	"meridian/internal/httpguard":          {},
	"meridian/internal/invariants":         {},
	"meridian/internal/invariants/leak":    {"meridian/internal/invariants", "go.uber.org/goleak"},
	"meridian/internal/realpart/llamanode": {"meridian/agent", "meridian/internal"},
	"meridian/internal/testdaemon":         {"meridian/agent", "meridian/internal"},
	"meridian/internal/unixrecv":           {"golang.org/x/sys"},
	"meridian/internal/unixsend":           {"golang.org/x/sys"},
	"meridian/internal/evloop":             {"meridian/internal/vectored", "golang.org/x/sys"},
	"meridian/internal/vectored":           {"golang.org/x/sys"},
	"meridian/internal/door":               {"meridian/blocks/quota", "meridian/internal/halfopen", "meridian/wire", "golang.org/x/sys"},
	"meridian/agent/openers":               {"meridian/agent/openers", "meridian/agent/config", "meridian/agent/finding", "meridian/fabric", "meridian/wire", "meridian/blocks", "meridian/adapters", "meridian/internal/door"},
	"meridian/bench/think/real":            {"meridian/bench/think", "meridian/bench/harness", "meridian/bench/measure", "meridian/adapters/llamacpp", "meridian/agent", "meridian/internal/safefile", "meridian/scheduler"},
	"meridian/internal/dirfabric":          {"meridian/fabric", "meridian/wire", "meridian/agent/config", "meridian/agent/openers"},

	"meridian/adapters/mooncake/internal/realmeta":  {"meridian/adapters/mooncake", "meridian/bench/harness", "meridian/blocks/quota", "meridian/internal"},
	"meridian/adapters/mooncake/internal/realstore": {"meridian/bench/harness", "meridian/internal"},

	"meridian/adapters/mooncake/structpack": {},
	"meridian/adapters/mooncake/rpc":        {"meridian/adapters/mooncake/structpack"},
	"meridian/adapters/mooncake/store":      {"meridian/adapters/mooncake/structpack", "meridian/adapters/mooncake/rpc", "meridian/adapters/mooncake/engine", "meridian/wire", "golang.org/x/sys"},
}

type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func TestRoomsImportOnlyWhatTheDesignAllows(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", "meridian/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := 0
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		room, allowed := ruleFor(p.ImportPath)
		if room == "" {
			t.Errorf("%s: no rule for this room; add one", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if !permitted(imp, allowed) {
				t.Errorf("%s imports %s, which the rule of %s does not allow", p.ImportPath, imp, room)
			}
		}
	}
	if seen < 5 {
		t.Fatalf("go list showed only %d packages", seen)
	}
}

// Only agent itself, not the rooms below it, may speak prometheus; an adapter
// never imports another; client and adminpb import nothing of agent.
func TestRulesSayWhatTheDesignForbids(t *testing.T) {
	for _, c := range []struct{ from, imp string }{
		{"meridian/scheduler", "meridian/wire"},
		{"meridian/wire/link", "meridian/blocks"},
		{"meridian/fabric", "meridian/blocks"},
		{"meridian/fabric/synthetic", "meridian/adapters/link"},
		{"meridian/fabric/topology", "meridian/adapters/nixl"},
		{"meridian/adapters/link", "meridian/scheduler"},
		{"meridian/adapters/link", "meridian/adapters/nixl"},
		{"meridian/adapters/nixl", "meridian/adapters/nixl/capi"}, // the library is never in the daemon's process
		{"meridian/adapters/nixl", "meridian/adapters/nixl/gpus"}, // nor is the driver's
		{"meridian/agent/client", "meridian/agent/config"},
		{"meridian/agent/adminpb", "meridian/agent"},
		{"meridian/blocks", "meridian/fabric"},
		{"meridian/agent/transfer", "meridian/adapters"},
		{"meridian/agent/transfer", "meridian/agent/openers"},
		{"meridian/agent", "meridian/adapters/link"},
		{"meridian/agent/config", "meridian/agent/openers"},
		{"meridian/blocks/spaces", "meridian/adapters/link"},
		{"meridian/agent/transfer", "meridian/agent/config"},
		{"meridian/bench/demo", "meridian/cmd/mrdn"},
	} {
		if _, allowed := ruleFor(c.from); permitted(c.imp, allowed) {
			t.Errorf("%s may import %s, and should not", c.from, c.imp)
		}
	}
}

func ruleFor(path string) (string, []string) {
	best := ""
	for room := range rules {
		if (path == room || strings.HasPrefix(path, room+"/")) && len(room) > len(best) {
			best = room
		}
	}
	return best, rules[best]
}

func permitted(imp string, allowed []string) bool {
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") && first != "meridian" {
		return true // standard library
	}
	for _, a := range allowed {
		if imp == a || strings.HasPrefix(imp, a+"/") {
			return true
		}
	}
	return false
}
