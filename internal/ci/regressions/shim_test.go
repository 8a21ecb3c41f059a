package main

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAShimGoesOnlyWhereItsNamesAreMissing(t *testing.T) {
	const text = "package p\n\ntype T int\n\nfunc (*T) Parse() {}\n\nconst Limit, _ = 1, 2\n"
	for name, c := range map[string]struct {
		there   string
		copied  bool
		refused string
	}{
		"no such package":            {"", true, ""},
		"none of its names":          {"package p\n\nfunc Parse() {}\n", true, ""},
		"its names in other tests":   {"package p_test\n\ntype T int\n\nconst Limit = 1\n", true, ""},
		"all of its names":           {"package p\n\ntype T int\n\nfunc (T) Parse() {}\n\nvar Limit = 1\n", false, ""},
		"some of its names":          {"package p\n\nconst Limit = 1\n", false, "shim p/names_shim.go: package p has some of its names"},
		"a file that cannot be read": {"pack\n", false, "expected 'package'"},
	} {
		t.Run(name, func(t *testing.T) {
			shims, tree := t.TempDir(), t.TempDir()
			writeFile(t, filepath.Join(shims, "p", "names_shim.go.txt"), text)
			if c.there != "" {
				writeFile(t, filepath.Join(tree, "p", "p.go"), c.there)
			}
			all, err := readShims(shims)
			if err != nil || len(all) != 1 {
				t.Fatalf("%d shims, %v", len(all), err)
			}
			err = all[0].copyTo(tree)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("error %v, want %q", err, c.refused)
			}
			got, err := os.ReadFile(filepath.Join(tree, "p", "names_shim.go"))
			if (err == nil) != c.copied || c.copied && string(got) != text {
				t.Errorf("copied %q, %v; want it copied: %v", got, err, c.copied)
			}
		})
	}
}

func TestAShimThatCouldHideAFileIsRefused(t *testing.T) {
	for name, want := range map[string]string{
		"parse.go.txt":           "must be *_shim.go.txt",
		"parse_test.go.txt":      "must be *_shim.go.txt",
		"parse_shim.go":          "must be *_shim.go.txt",
		"parse_shim.go.txt":      "",
		"parse_shim_test.go.txt": "",
	} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, name), "package p\n\nconst A = 1\n")
		if _, err := readShims(dir); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a_shim.go.txt"), "package p\n")
	if _, err := readShims(dir); err == nil || !strings.Contains(err.Error(), "declares nothing") {
		t.Errorf("a shim without names: %v", err)
	}
}

// Nothing else formats them. A name that this tree no longer has is used by no test
// of it.
func TestEveryShimIsFormattedAndItsNamesAreInThisTree(t *testing.T) {
	top := filepath.Join("..", "..", "..")
	shims, err := readShims(filepath.Join(top, shimsFolder))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shims {
		if b, err := format.Source(s.text); err != nil || !bytes.Equal(b, s.text) {
			t.Errorf("shim %s is not formatted: %v", s.name, err)
		}
		there, err := s.there(top)
		if err != nil {
			t.Fatal(err)
		}
		for name := range s.names {
			if !there[name] {
				t.Errorf("shim %s: package %s of this tree has no %s", s.name, s.pkg, name)
			}
		}
	}
}
