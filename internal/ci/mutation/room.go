package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is what `go list` says of a package.
type listed struct {
	Dir, ImportPath, Export   string
	Module                    *struct{ Path string }
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	Standard, DepOnly         bool
}

// tryRoom tries all changes of a room in a copy of the tree.
func tryRoom(ctx context.Context, s settings, top, room string) (lived int, err error) {
	work, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return 0, err
	}
	defer func() { err = firstOf(err, os.RemoveAll(work)) }()
	tree := filepath.Join(work, "tree")
	if out, err := exec.CommandContext(ctx, "git", "clone", "-q", "--no-hardlinks", top, tree).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("git clone: %w: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(top, ".tools")); err == nil {
		if err := os.Symlink(filepath.Join(top, ".tools"), filepath.Join(tree, ".tools")); err != nil {
			return 0, err
		}
	}
	changes, packages, err := rewriteRoom(ctx, tree, room)
	if err != nil {
		return 0, err
	}
	t, err := newTrial(ctx, s, tree, room, work, packages)
	if err != nil {
		return 0, err
	}
	return t.all(ctx, changes)
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// goList lists the packages of a room, those that test it too, and all that they need.
func goList(ctx context.Context, tree, room string) ([]listed, error) {
	args := []string{"list", "-export", "-deps", "-json", "./" + room + "/..."}
	for _, also := range alsoTestedBy[room] {
		args = append(args, "./"+also)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = tree, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var all []listed
	for d := json.NewDecoder(out); ; {
		var p listed
		err := d.Decode(&p)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, firstOf(err, cmd.Wait())
		}
		all = append(all, p)
	}
	return all, cmd.Wait()
}

// rewriteRoom rewrites the sources of a room's packages where they lie.
func rewriteRoom(ctx context.Context, tree, room string) (changes []change, tested []listed, err error) {
	all, err := goList(ctx, tree, room)
	if err != nil {
		return nil, nil, err
	}
	exports := map[string]string{}
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	module := ""
	for _, p := range all {
		rel, err := filepath.Rel(tree, p.Dir)
		if err != nil || p.DepOnly || p.Standard {
			continue
		}
		module = p.Module.Path
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			tested = append(tested, p)
		}
		if slices.Contains(alsoTestedBy[room], filepath.ToSlash(rel)) {
			continue
		}
		next, err := rewritePackage(fset, imports, p, rel, len(changes))
		if err != nil {
			return nil, nil, err
		}
		changes = append(changes, next...)
	}
	if module == "" {
		return nil, nil, fmt.Errorf("no package in ./%s", room)
	}
	dir := filepath.Join(tree, filepath.FromSlash(switchPath))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	return changes, tested, os.WriteFile(filepath.Join(dir, "switch.go"), []byte(switchSource), 0o644)
}

// made reports whether a file is written by a generator.
func made(src string) bool {
	for line := range strings.Lines(src) {
		if strings.HasPrefix(line, "// Code generated ") {
			return true
		}
		if strings.HasPrefix(line, "package ") {
			break
		}
	}
	return false
}

func rewritePackage(fset *token.FileSet, imports types.Importer, p listed, rel string, from int) ([]change, error) {
	var files []*ast.File
	var sources []string
	for _, name := range p.GoFiles {
		src, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files, sources = append(files, f), append(sources, string(src))
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, info); err != nil {
		return nil, err
	}
	var changes []change
	for i, f := range files {
		if made(sources[i]) {
			continue
		}
		r := &rewriter{fset: fset, info: info, src: sources[i], next: from + len(changes), name: filepath.ToSlash(filepath.Join(rel, p.GoFiles[i]))}
		src := r.file(f, p.Module.Path)
		changes = append(changes, r.changes...)
		if src != sources[i] {
			if err := os.WriteFile(filepath.Join(p.Dir, p.GoFiles[i]), []byte(src), 0o644); err != nil {
				return nil, err
			}
		}
	}
	return changes, nil
}

// readLived reads which changes lived in an earlier run.
func readLived(name string) (map[string]bool, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	lived := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if where, ok := strings.CutPrefix(strings.TrimSpace(line), "LIVED "); ok {
			lived[where] = true
		}
	}
	return lived, nil
}
