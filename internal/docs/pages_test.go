package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// pages are the Markdown files of the repository, by path from its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d pages found", len(out))
	}
	return out
}

// prose calls f for each line outside of code blocks, with its number.
func prose(text string, f func(n int, line string)) {
	fence := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fence = !fence
			continue
		}
		if !fence {
			f(i+1, line)
		}
	}
}

var separator = regexp.MustCompile(`^\|[\s:|-]+\|$`)

// A blank line inside a table makes the rest of it plain text.
func TestTablesAreWhole(t *testing.T) {
	for path, text := range pages(t) {
		lines := strings.Split(text, "\n")
		before := ""
		prose(text, func(n int, line string) {
			begins := strings.HasPrefix(line, "|") && !strings.HasPrefix(before, "|")
			if begins && (n == len(lines) || !separator.MatchString(lines[n])) {
				t.Errorf("%s:%d: a row without a table: %.60q", path, n, line)
			}
			before = line
		})
	}
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	remote = regexp.MustCompile(`^[a-z]+:`)
)

func TestLinksLeadToFiles(t *testing.T) {
	for path, text := range pages(t) {
		prose(text, func(n int, line string) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				target, _, _ := strings.Cut(m[1], "#")
				if target == "" || remote.MatchString(target) {
					continue
				}
				if _, err := os.Stat(filepath.Join(root, filepath.Dir(path), target)); err != nil {
					t.Errorf("%s:%d: %s: %v", path, n, m[1], err)
				}
			}
		})
	}
}

// confusing are words that readers stumbled over, and what to write instead.
var confusing = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\bwhoever\b`):                                                                               "name the party: a receiver that verifies",
	regexp.MustCompile(`(?i)\bbeside (what|plain|a bare|the|Mooncake|them)\b`):                                          "compared with, next to, in addition to",
	regexp.MustCompile(`(?i)\bthe same by\b`):                                                                           "say again what is counted",
	regexp.MustCompile(`(?i)\b(one|a) (daemon|binary|file|session|series|counter|test) a (node|peer|request|daemon)\b`): "per node",
	regexp.MustCompile(`(?i)\bpassengers?\b`):                                                                           "name the thing",
	regexp.MustCompile(`(?i)\bfaces\b`):                                                                                 "listeners, endpoints",
	regexp.MustCompile(`(?i)\bthe turn\b`):                                                                              "the lock, the right to write",
	regexp.MustCompile(`(?i)\bthis command is (writing|read-only)`):                                                     "say whether it changes something",
}

func TestWordsArePlain(t *testing.T) {
	for path, text := range pages(t) {
		for i, line := range strings.Split(text, "\n") {
			for pattern, instead := range confusing {
				if word := pattern.FindString(line); word != "" {
					t.Errorf("%s:%d: %q: %s", path, i+1, word, instead)
				}
			}
		}
	}
}

// Two screens of 45 lines, without the picture.
func TestTheReadmeFitsTwoScreens(t *testing.T) {
	if n := strings.Count(pages(t)["README.md"], "\n"); n > 90 {
		t.Errorf("%d lines, the limit is 90", n)
	}
}
