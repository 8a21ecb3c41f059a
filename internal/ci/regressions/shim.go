package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// shimsFolder holds the shims, each at the path where it goes in the old tree with
// ".txt" behind it: most of them make no package of their own here.
const shimsFolder = "internal/ci/regressions/testdata/shims"

// shim is a Go file with names that today's test files use and that the old
// commit does not have. It holds names and what tests need to build, never the
// behaviour that a test asks for.
type shim struct {
	name  string // where it goes, from the old tree's root
	pkg   string // its package clause
	names map[string]bool
	text  []byte
}

// readShims reads every shim under folder.
func readShims(folder string) ([]shim, error) {
	var shims []shim
	err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		rel, ok := strings.CutSuffix(rel, ".txt")
		if !ok || !strings.HasSuffix(rel, "_shim.go") && !strings.HasSuffix(rel, "_shim_test.go") {
			return fmt.Errorf("shim %s: its name must be *_shim.go.txt or *_shim_test.go.txt: no other file has such a name", rel)
		}
		s := shim{name: rel, names: map[string]bool{}}
		if s.text, err = os.ReadFile(file); err != nil {
			return err
		}
		if s.pkg, err = declared(file, s.names); err != nil {
			return err
		}
		if len(s.names) == 0 {
			return fmt.Errorf("shim %s declares nothing", rel)
		}
		shims = append(shims, s)
		return nil
	})
	return shims, err
}

// copyTo writes the shim into tree if its package there has none of its names.
func (s shim) copyTo(tree string) error {
	there, err := s.there(tree)
	switch {
	case err != nil:
		return err
	case len(there) == len(s.names):
		return nil
	case len(there) > 0:
		return fmt.Errorf("shim %s: package %s has some of its names and lacks others: split the shim", s.name, s.pkg)
	}
	target := filepath.Join(tree, s.name)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, s.text, 0o644)
}

// there returns which of its names the shim's package has in tree.
func (s shim) there(tree string) (map[string]bool, error) {
	there := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(tree, filepath.Dir(s.name), "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		names := map[string]bool{}
		pkg, err := declared(file, names)
		if err != nil {
			return nil, err
		}
		for name := range names {
			if pkg == s.pkg && s.names[name] {
				there[name] = true
			}
		}
	}
	return there, nil
}

// declared adds what the file declares at its top level to names, a method as
// "Type.Method", and returns the name of its package.
func declared(file string, names map[string]bool) (pkg string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	delete(names, "_")
	return f.Name.Name, nil
}

// receiver is "Type." for a method of Type or *Type, and "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if g, ok := t.(*ast.IndexExpr); ok {
		t = g.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "."
	}
	return "?."
}
