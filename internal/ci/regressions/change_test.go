package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAChangeIsMadeInACopy(t *testing.T) {
	top, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(top, "p", "p.go")
	writeFile(t, file, "package p\n\nconst A = 1\n")
	arg, err := (&change{file: "p/p.go", old: "A = 1", new: "A = 2"}).overlay(top, dir)
	if err != nil {
		t.Fatal(err)
	}
	name, ok := strings.CutPrefix(arg, "-overlay=")
	if !ok {
		t.Fatalf("argument %q", arg)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Replace map[string]string }
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(list.Replace[file]); string(got) != "package p\n\nconst A = 2\n" {
		t.Errorf("the go tool reads %q, %v", got, err)
	}
	if got, err := os.ReadFile(file); string(got) != "package p\n\nconst A = 1\n" {
		t.Errorf("the tree itself is changed: %q, %v", got, err)
	}
}

func TestAChangeWithoutItsPlaceIsRefused(t *testing.T) {
	top := t.TempDir()
	writeFile(t, filepath.Join(top, "p.go"), "package p\n\nconst A, B = 1, 1\n")
	for old, want := range map[string]string{"C": `p.go has "C" 0 times`, "1": `p.go has "1" 2 times`} {
		if _, err := (&change{file: "p.go", old: old, new: "2"}).overlay(top, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
