package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readSource(t *testing.T) []entry {
	t.Helper()
	source, err := os.ReadFile("../../errors.json")
	if err != nil {
		t.Fatal(err)
	}
	list, err := parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	list := readSource(t)
	code, err := renderGo(list)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"../../codes.go": code, "../../../docs/errors.md": renderDoc(list)} {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what errors.json makes: run go generate ./wire", filepath.Base(path))
		}
	}
}

func TestReleasedCodesKeepNumberAndName(t *testing.T) {
	released, err := os.ReadFile("testdata/released.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(string(released)) {
		lines[strings.TrimSpace(line)] = true
	}
	for _, e := range readSource(t) {
		line := fmt.Sprintf("%d %s", e.Code, e.Name)
		if !lines[line] {
			t.Errorf("%q is not in testdata/released.txt: add a new code there; an old one keeps its number and name", line)
		}
		delete(lines, line)
	}
	for line := range lines {
		t.Errorf("%q was released and is gone", line)
	}
}

func TestEveryCodeIsDocumentedOnce(t *testing.T) {
	list := readSource(t)
	doc := string(renderDoc(list))
	for _, e := range list {
		row := fmt.Sprintf("| %d | %s | %s | %s |\n", e.Code, e.Name, e.Text, e.Fix)
		if strings.Count(doc, row) != 1 {
			t.Errorf("%s has %d rows", e.Name, strings.Count(doc, row))
		}
	}
}

func TestConstName(t *testing.T) {
	for name, want := range map[string]string{
		"OK": "CodeOK", "CRC": "CodeCRC", "NS_UNKNOWN": "CodeNSUnknown", "TOO_LARGE": "CodeTooLarge", "STATE": "CodeState",
	} {
		if got := constName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestParseRefusesAmbiguousTables(t *testing.T) {
	const ok = `{"code":0,"name":"OK","scope":"item","text":"done","fix":"nothing"}`
	one := func(code int, name, scope, text string) string {
		return fmt.Sprintf(`{"code":%d,"name":%q,"scope":%q,"text":%q,"fix":"f"}`, code, name, scope, text)
	}
	if _, err := parse([]byte("[" + ok + "," + one(100, "A_B", "item", "t") + "]")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ source, says string }{
		"same number":         {"[" + ok + "," + one(100, "A", "item", "t") + "," + one(100, "B", "item", "t") + "]", "must rise"},
		"falling number":      {"[" + ok + "," + one(101, "A", "item", "t") + "," + one(100, "B", "item", "t") + "]", "must rise"},
		"same name":           {"[" + ok + "," + one(100, "A", "item", "t") + "," + one(101, "A", "item", "t") + "]", "taken"},
		"same without bars":   {"[" + ok + "," + one(100, "A_B", "item", "t") + "," + one(101, "AB", "item", "t") + "]", "taken"},
		"lower case":          {"[" + ok + "," + one(100, "a", "item", "t") + "]", "UPPER_CASE"},
		"prefix of a look-up": {"[" + ok + "," + one(100, "CODE_A", "item", "t") + "]", "prefix"},
		"unknown scope":       {"[" + ok + "," + one(100, "A", "planet", "t") + "]", "scope"},
		"number of another":   {"[" + ok + "," + one(200, "A", "item", "t") + "]", "100 to 199"},
		"empty text":          {"[" + ok + "," + one(100, "A", "item", "") + "]", "text"},
		"bar in text":         {"[" + ok + "," + one(100, "A", "item", "a|b") + "]", "text"},
		"no fix":              {`[{"code":0,"name":"OK","scope":"item","text":"done"}]`, "fix"},
		"unknown field":       {`[{"code":0,"name":"OK","scope":"item","text":"done","fix":"n","sev":1}]`, "sev"},
		"number too large":    {`[{"code":65536,"name":"OK","scope":"item","text":"done","fix":"n"}]`, "65536"},
		"no OK":               {"[" + one(100, "A", "item", "t") + "]", "0 OK"},
		"empty":               {"[]", "0 OK"},
		"two values":          {"[" + ok + "] []", "more than one"},
		"not JSON":            {"codes", "invalid"},
	} {
		if _, err := parse([]byte(c.source)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want something about %q", name, err, c.says)
		}
	}
}
