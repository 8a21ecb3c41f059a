package dirfabric

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"meridian/agent/config"
)

const rootFolder = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// steps are the counterparts in this folder and its five other files of what
// docs/adding-a-fabric.md lists.
var steps = map[string]func(t *testing.T) error{
	"Its own folder": func(t *testing.T) error {
		out, err := exec.Command("go", "list", "-f", "{{join .Imports \" \"}}", ".").Output()
		if err == nil && strings.Contains(string(out), "meridian/adapters") {
			err = fmt.Errorf("it imports %s", out)
		}
		return err
	},
	"Its contract test":                contains("contract_test.go", "fabrictest.Run("),
	"The optional interfaces that fit": contains("dir.go", "_ fabric.Finder", "_ fabric.Prober", "_ fabric.Transporter", "_ fabric.Advisor"),
	"Its opener":                       contains("opener.go", "openers.New("),
	"Its table": func(*testing.T) error {
		doc := config.Markdown(Opener().Kind)
		for _, want := range []string{"`kind = \"dir\"", "MERIDIAN_FABRIC_NAME_PATH", "MERIDIAN_FABRIC_NAME_QUOTA_BYTES"} {
			if !strings.Contains(doc, want) {
				return fmt.Errorf("the document of the configuration has no %s", want)
			}
		}
		return nil
	},
	"Its layering rule": contains("../layering/layering_test.go", `"meridian/internal/dirfabric"`),
	"Its claims":        contains("../../docs/claims.md", "./internal/dirfabric"),
}

func contains(path string, all ...string) func(t *testing.T) error {
	return func(t *testing.T) error {
		text := read(t, path)
		for _, want := range all {
			if !strings.Contains(text, want) {
				return fmt.Errorf("%s has no %q", path, want)
			}
		}
		return nil
	}
}

// Each step of the recipe was taken here, and nothing was done that it does not name.
func TestEachStepOfTheRecipeHasItsCounterpart(t *testing.T) {
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^\d\. \*\*(.+?)\*\*`).FindAllStringSubmatch(read(t, "../../docs/adding-a-fabric.md"), -1) {
		listed = append(listed, m[1])
	}
	taken := slices.Collect(maps.Keys(steps))
	slices.Sort(taken)
	slices.Sort(listed)
	if !slices.Equal(taken, listed) {
		t.Fatalf("the recipe lists\n%q\nand this test knows\n%q", listed, taken)
	}
	for name, check := range steps {
		if err := check(t); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The optional interfaces of the recipe are those that the daemon asks for: it
// asserts no other, and each of them.
func TestTheRecipeNamesTheInterfacesThatTheDaemonAsksFor(t *testing.T) {
	asked := map[string]bool{}
	for _, folder := range []string{"agent", "agent/transfer", "fabric"} {
		files, err := filepath.Glob(filepath.Join(rootFolder, folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				a, ok := n.(*ast.TypeAssertExpr)
				if !ok {
					return true
				}
				switch typ := a.Type.(type) {
				case *ast.SelectorExpr:
					if pkg, ok := typ.X.(*ast.Ident); ok && pkg.Name == "fabric" {
						asked[typ.Sel.Name] = true
					}
				case *ast.Ident:
					if folder == "fabric" {
						asked[typ.Name] = true
					}
				}
				return true
			})
		}
	}
	delete(asked, "Class") // values of a context, no interfaces
	delete(asked, "int")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^   \\| `([A-Z]\\w+)` \\|").FindAllStringSubmatch(read(t, "../../docs/adding-a-fabric.md"), -1) {
		listed = append(listed, m[1])
	}
	listed = slices.DeleteFunc(listed, func(s string) bool { return slices.Contains([]string{"Push", "Pull", "Quiesce", "Close"}, s) })
	slices.Sort(listed)
	if got := slices.Sorted(maps.Keys(asked)); !slices.Equal(got, listed) {
		t.Errorf("the daemon asks for %q, the recipe lists %q", got, listed)
	}
}

// Beyond its folder the fabric is named in five files at most.
func TestTheFabricTouchesFiveOtherFilesAtMost(t *testing.T) {
	var named []string
	err := filepath.WalkDir(rootFolder, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && e.Name() != ".." || e.Name() == "dirfabric"):
			return filepath.SkipDir
		case e.IsDir() || !slices.Contains([]string{".go", ".md", ".toml", ".json", ".yml", ".txt"}, filepath.Ext(path)):
			return nil
		}
		if strings.Contains(read(t, path), "dirfabric") {
			named = append(named, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(named) > 5 {
		t.Errorf("%d files name the fabric, want 5 at most: %q", len(named), named)
	}
	t.Logf("named in %q", named)
}
