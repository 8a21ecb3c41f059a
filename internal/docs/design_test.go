package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// owners is the table of docs/design.md that says who owns what.
func owners(t *testing.T) string {
	t.Helper()
	_, table, ok := strings.Cut(readFile(t, filepath.Join(root, "docs/design.md")), "## Who owns each goroutine, queue and bound")
	if !ok {
		t.Fatal("docs/design.md has no such section")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	return table
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// daemonRooms are the folders of which a goroutine runs in the daemon.
var daemonRooms = []string{"agent", "agent/engine", "agent/llama", "agent/openai", "agent/openers", "agent/transfer", "adapters/link", "adapters/mooncake", "adapters/mooncake/engine",
	"adapters/mooncake/handshake", "internal/door", "adapters/mooncake/metadata", "adapters/mooncake/objects", "adapters/mooncake/relay",
	"adapters/nixl", "adapters/nixl/control", "adapters/nixl/hub", "adapters/nixl/plane", "blocks", "blocks/quota",
	"blocks/spaces", "blocks/window", "fabric", "fabric/lent", "fabric/synthetic", "scheduler", "internal/child", "internal/halfopen", "internal/httpguard", "internal/loglimit", "internal/logwriter"}

var goStatement = regexp.MustCompile(`(?m)^\s*(go |.*\b(wg|running|flown|finisher)\.Go\(|.*\ba\.background\()`)

// Each file of the daemon that starts a goroutine is a row: who adds one says who
// ends it, and what bounds it.
func TestEachGoroutineOfTheDaemonHasAnOwner(t *testing.T) {
	table := owners(t)
	found := 0
	for _, room := range daemonRooms {
		files, err := filepath.Glob(filepath.Join(root, room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") || !goStatement.MatchString(readFile(t, path)) {
				continue
			}
			found++
			if name := room + "/" + filepath.Base(path); !strings.Contains(table, "`"+name+"`") {
				t.Errorf("%s starts a goroutine, and docs/design.md has no row that names it", name)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d files start goroutines: does the pattern still fit?", found)
	}
	for _, m := range regexp.MustCompile("`([a-z]+[a-z/]*/[a-z_]+\\.go)`").FindAllStringSubmatch(table, -1) {
		if !goStatement.MatchString(readFile(t, filepath.Join(root, m[1]))) {
			t.Errorf("docs/design.md names %s, which starts no goroutine", m[1])
		}
	}
}

// Each bound of the table is a key of the configuration, or is in the code.
func TestEachBoundOfTheTableOfOwnersExists(t *testing.T) {
	keys := readFile(t, filepath.Join(root, "docs/config.md"))
	checked := 0
	for _, m := range regexp.MustCompile("`([a-z][a-zA-Z/]*)\\.([a-zA-Z_]+)`").FindAllStringSubmatch(owners(t), -1) {
		room, name := m[1], m[2]
		if name == "go" || name == "md" {
			continue
		}
		checked++
		_, section, ok := strings.Cut(keys, "## `["+room+"]`")
		section, _, _ = strings.Cut(section, "\n## ")
		if ok && strings.Contains(section, "| `"+name+"`") || declared(t, filepath.Join(root, room), name) {
			continue
		}
		t.Errorf("%s.%s is neither a key of docs/config.md nor a constant of that folder", room, name)
	}
	if checked < 40 {
		t.Errorf("only %d bounds were looked at", checked)
	}
}

func declared(t *testing.T, dir, name string) bool {
	t.Helper()
	word := regexp.MustCompile(`(?m)^\s*(const |var )?` + name + `\b.*=`)
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		return !strings.HasSuffix(path, "_test.go") && word.MatchString(readFile(t, path))
	})
}

// The table of rooms has the folders that there are.
func TestTheTableOfRoomsHasEachFolder(t *testing.T) {
	design := readFile(t, filepath.Join(root, "docs/design.md"))
	design, _, _ = strings.Cut(design, "## One rule about memory")
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || !e.IsDir() || path == ".":
			return err
		case strings.HasPrefix(e.Name(), ".") || slices.Contains([]string{"docs", "deploy", "testdata", "internal"}, e.Name()):
			return fs.SkipDir
		case strings.Count(path, "/") > 1:
			return fs.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(root, path, "*.go"))
		if err != nil || len(files) == 0 || strings.HasPrefix(path, "bench/") || strings.HasPrefix(path, "conformance/") || strings.HasPrefix(path, "cmd/") {
			return err
		}
		if !strings.Contains(design, "`"+path+"`") && !strings.Contains(design, "`"+filepath.Base(path)+"`") {
			t.Errorf("%s is a room, and docs/design.md does not say what it is", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
