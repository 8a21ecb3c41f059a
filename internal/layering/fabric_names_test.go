package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fabrics are the packages that are fabrics, and the names of their kinds.
var fabrics = struct{ packages, names []string }{
	packages: []string{"meridian/adapters/link", "meridian/adapters/mooncake", "meridian/adapters/mooncake/objects", "meridian/adapters/mooncake/relay", "meridian/adapters/nixl", "meridian/fabric/synthetic"},
	names:    []string{"link", "nixl-synth", "nixl", "mooncake", "mooncake-store", "mooncake-relay"},
}

// exempt are what names a fabric in agent, and why.
var exempt = map[string]string{
	"agent/openers":    "the openers",
	"agent/adminpb":    "generated; its comments and link_version are of the protocol of agents",
	"agent/llama/pair": "it writes the configurations of two daemons that are peers of each other",
}

// A new fabric touches no file of agent but its opener: no other file imports a
// fabric's package, or knows a fabric by name.
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

var (
	// aKeyOf is a key or a table of the configuration that is a fabric's.
	aKeyOf = regexp.MustCompile(`\[?\[(` + strings.Join(fabrics.names, "|") + `)[\].]|(^|[^\w./-])(` + strings.Join(fabrics.names, "|") + `)\.[a-z]`)
	// aWordOf is a fabric in the name of something: linkPeer, OverMooncake.
	aWordOf = regexp.MustCompile(`^(link|mooncake)($|[A-Z0-9_])|(Link|Mooncake)($|[A-Z0-9_])`)
)

// framesPackage is the codec of the frames that agents and engines speak, whose name
// is not the fabric's, and ofFrames are other names of that protocol.
const framesPackage = "meridian/wire/link"

var ofFrames = []string{"LinkVersion", "CodeLinkMagic"}

// namesAFabric lists the imports, the strings and the identifiers of a file that are a
// fabric's.
func namesAFabric(t *testing.T, path string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	frames := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(framesPackage) })
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			s, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && (slices.Contains(fabrics.names, s) || slices.Contains(fabrics.packages, s) || aKeyOf.MatchString(s)) {
				found = append(found, fset.Position(n.Pos()).String()+": "+n.Value)
			}
		case *ast.Ident:
			if aWordOf.MatchString(n.Name) && !slices.Contains(ofFrames, n.Name) && !(frames && n.Name == "link") {
				found = append(found, fset.Position(n.Pos()).String()+": "+n.Name)
			}
		}
		return true
	})
	return found
}

func TestAFileThatNamesAFabricIsFound(t *testing.T) {
	for text, want := range map[string]int{
		"import _ \"meridian/adapters/link\"\nvar a, b = \"nixl-synth\", \"linked\"\n":      2,
		"var linkPeers, toLink, linker, unlinked int\n":                                     2,
		"const a, b, c = \"set link.psk\", \"[[link.peer]]\", \"fabric.mooncake.listen\"\n": 2,
		"import \"meridian/wire/link\"\nvar a = link.Frame{}\nvar b = a.Link\n":             1,
		"import \"os\"\nfunc f(node struct{ Link string }) { _ = node.Link }\n":             2,
		"const prose = \"the link to that peer, or a symbolic link. Ends\"\n":               0,
	} {
		path := filepath.Join(t.TempDir(), "x.go")
		if err := os.WriteFile(path, []byte("package x\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := namesAFabric(t, path); len(got) != want {
			t.Errorf("in\n%s\nfound %q, want %d", text, got, want)
		}
	}
}
