package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fabrics are the packages that are fabrics, and the names of their kinds.
var fabrics = struct{ packages, names []string }{
	packages: []string{"meridian/adapters/link", "meridian/adapters/mooncake", "meridian/adapters/mooncake/relay", "meridian/fabric/synthetic"},
	names:    []string{"link", "nixl-synth", "nixl", "mooncake", "mooncake-relay"},
}

// exempt are what names a fabric in agent, and why.
var exempt = map[string]string{
	"agent/openers":          "the openers",
	"agent/config/link.go":   "the tables [link], [link.tls] and [[link.peer]], which every daemon has",
	"agent/llama/partner.go": "its metric of fallbacks has the reason \"link\", whichever fabric that is",
}

// A new fabric touches no file of agent but its opener: no other file imports a
// fabric's package or knows a fabric by name.
func TestOnlyTheOpenersOfTheAgentNameAFabric(t *testing.T) {
	const root = "../.."
	seen := 0
	err := filepath.WalkDir(filepath.Join(root, "agent"), func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		switch _, free := exempt[filepath.ToSlash(rel)]; {
		case e.IsDir() && free:
			return filepath.SkipDir
		case free || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		seen++
		for _, what := range namesAFabric(t, path) {
			t.Errorf("%s names a fabric: %s", rel, what)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 40 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// namesAFabric lists the imports and the strings of a file that are a fabric's.
func namesAFabric(t *testing.T, path string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		s, err := strconv.Unquote(lit.Value)
		if err == nil && (slices.Contains(fabrics.names, s) || slices.Contains(fabrics.packages, s)) {
			found = append(found, fset.Position(lit.Pos()).String()+": "+lit.Value)
		}
		return true
	})
	return found
}

func TestAFileThatNamesAFabricIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.go")
	text := "package x\nimport _ \"meridian/adapters/link\"\nvar a, b = \"nixl-synth\", \"linked\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := namesAFabric(t, path); len(got) != 2 {
		t.Errorf("found %q, want the import and one string", got)
	}
}
