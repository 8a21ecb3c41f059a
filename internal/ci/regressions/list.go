package main

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// entry is one fault and the tests that prove it gone.
type entry struct {
	id, title string
	lines     []line
}

// line is one `go test` of an entry.
type line struct {
	at         int    // its number in the list
	pkg        string // from the repository's root, as "adapters/link"
	run        string // a regular expression of test names, without white space
	copied     []string
	removed    []string // files of the old commit that stand in the way there
	newlyBuilt bool     // the test does not compile on the old commit: its interface did not exist
	change     *change  // the fault, where no commit had it; nil: the old commit has it
}

// change is a fault that a test must notice, made in a file of this tree.
type change struct {
	file     string
	old, new string // old is in the file once
}

var entryStart = regexp.MustCompile(`^([0-9]+|[A-Z])\s+(\S.*)$`)

// parseList reads the format that the list's own first lines describe.
func parseList(r io.Reader) ([]entry, error) {
	var entries []entry
	var common []string // copied with every line
	seen := map[string]bool{}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		text := strings.TrimRight(in.Text(), " \t")
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
		case text[0] == ' ' || text[0] == '\t':
			if len(entries) == 0 {
				return nil, fmt.Errorf("line %d: a test before the first entry", n)
			}
			l, err := parseLine(text)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			l.at = n
			if l.change == nil {
				l.copied = append(common[:len(common):len(common)], l.copied...)
			}
			last := &entries[len(entries)-1]
			last.lines = append(last.lines, l)
		case strings.HasPrefix(text, "with "):
			if len(entries) > 0 {
				return nil, fmt.Errorf("line %d: what every line needs stands before the first entry", n)
			}
			for _, name := range strings.Fields(text)[1:] {
				if !inside(name) {
					return nil, fmt.Errorf("line %d: %q is not a path from the repository's root", n, name)
				}
				common = append(common, name)
			}
		default:
			m := entryStart.FindStringSubmatch(text)
			if m == nil {
				return nil, fmt.Errorf("line %d: %q is neither `N TITLE` nor an indented test", n, text)
			}
			if seen[m[1]] {
				return nil, fmt.Errorf("line %d: entry %s is there twice", n, m[1])
			}
			seen[m[1]] = true
			entries = append(entries, entry{id: m[1], title: m[2]})
		}
	}
	return entries, in.Err()
}

func parseLine(text string) (line, error) {
	var l line
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutSuffix(text, "newly built"); ok {
		l.newlyBuilt, text = true, strings.TrimSpace(rest)
	}
	if before, after, ok := strings.Cut(text, " changed "); ok {
		c, err := parseChange(after)
		if err != nil {
			return l, err
		}
		l.change, text = c, before
	}
	words := strings.Fields(text)
	if len(words) < 3 || words[1] != "-run" {
		return l, fmt.Errorf("%q is not `PACKAGE -run REGEXP FILES…`", text)
	}
	l.pkg = path.Clean(words[0])
	l.run = strings.Trim(words[2], "'")
	if _, err := regexp.Compile(l.run); err != nil {
		return l, err
	}
	for _, file := range append([]string{l.pkg}, words[3:]...) {
		name, remove := strings.CutPrefix(file, "!")
		if !inside(name) {
			return l, fmt.Errorf("%q is not a path from the repository's root", name)
		}
		if remove {
			l.removed = append(l.removed, name)
		} else {
			l.copied = append(l.copied, name)
		}
	}
	l.copied = l.copied[1:] // the first was the package, checked with the files
	if l.change != nil && (l.newlyBuilt || len(l.copied)+len(l.removed) > 0) {
		return l, fmt.Errorf("%q: a change is made in this tree: nothing is copied and nothing newly built", text)
	}
	return l, nil
}

// parseChange reads `FILE "OLD" "NEW"`, both quoted as in Go.
func parseChange(text string) (*change, error) {
	file, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	if !inside(file) {
		return nil, fmt.Errorf("%q is not a path from the repository's root", file)
	}
	c := &change{file: file}
	for _, part := range []*string{&c.old, &c.new} {
		rest = strings.TrimSpace(rest)
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, fmt.Errorf("%q is not `FILE \"OLD\" \"NEW\"`", text)
		}
		*part, _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
		rest = rest[len(quoted):]
	}
	if rest != "" || c.old == "" || c.old == c.new {
		return nil, fmt.Errorf("%q is not `FILE \"OLD\" \"NEW\"`", text)
	}
	return c, nil
}

// inside reports whether name is a clean path from the repository's root.
func inside(name string) bool {
	return !path.IsAbs(name) && name == path.Clean(name) && name != ".." && !strings.HasPrefix(name, "../")
}
