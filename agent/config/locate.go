package config

import (
	"strconv"
	"strings"
)

// locate finds the line of each key and table of a TOML text that has already
// been parsed without error. The TOML library keeps no positions. Keys inside
// inline tables are not listed: lines.of answers with the line of what
// encloses them.
func locate(text string) lines {
	at := lines{}
	s := scanner{at: at, entries: map[string]int{}}
	for i, line := range strings.Split(text, "\n") {
		s.line(i+1, line)
	}
	return at
}

// lines maps a key such as link.peer[0].name to its line, from 1.
type lines map[string]int

func (l lines) of(key string) int {
	for key != "" {
		if n, ok := l[key]; ok {
			return n
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 0
}

type scanner struct {
	at      lines
	entries map[string]int // of an array of tables: how many so far
	table   string
	depth   int    // of open brackets of a value that goes on
	quote   string // the closing quotes of a string that goes on
}

func (s *scanner) line(n int, text string) {
	t := strings.TrimSpace(text)
	if s.depth > 0 || s.quote != "" {
		s.value(t)
		return
	}
	switch {
	case t == "" || t[0] == '#':
	case strings.HasPrefix(t, "[["):
		path := s.enclose(keyPath(t[2:]))
		s.table = path + "[" + strconv.Itoa(s.entries[path]) + "]"
		s.entries[path]++
		s.at[s.table] = n
	case t[0] == '[':
		s.table = s.enclose(keyPath(t[1:]))
		s.at[s.table] = n
	default:
		parts := keyPath(t)
		key := strings.Join(parts, ".")
		if s.table != "" {
			key = s.table + "." + key
		}
		s.at[key] = n
		if _, rest, ok := strings.Cut(t, "="); ok {
			s.value(rest)
		}
	}
}

// enclose makes the name of a table from its parts: a part that names an array
// of tables means that array's last entry so far.
func (s *scanner) enclose(parts []string) string {
	path := ""
	for i, p := range parts {
		if path != "" {
			path += "."
		}
		path += p
		if n := s.entries[path]; n > 0 && i < len(parts)-1 {
			path += "[" + strconv.Itoa(n-1) + "]"
		}
	}
	return path
}

// value follows strings and brackets, to know whether the value ends here.
func (s *scanner) value(t string) {
	for i := 0; i < len(t); i++ {
		if s.quote != "" {
			if t[i] == '\\' && s.quote[0] == '"' {
				i++
			} else if strings.HasPrefix(t[i:], s.quote) {
				i += len(s.quote) - 1
				s.quote = ""
			}
			continue
		}
		switch c := t[i]; c {
		case '#':
			return
		case '[', '{':
			s.depth++
		case ']', '}':
			s.depth--
		case '"', '\'':
			s.quote = string(c)
			if three := strings.Repeat(s.quote, 3); strings.HasPrefix(t[i:], three) {
				s.quote, i = three, i+2
			}
		}
	}
	if len(s.quote) == 1 {
		s.quote = "" // a one-line string cannot go on; the parser has refused it
	}
}

// keyPath reads a key with its dots and quotes, up to what cannot be a key.
func keyPath(t string) []string {
	var parts []string
	for {
		t = strings.TrimLeft(t, " \t")
		var part, rest string
		if t != "" && (t[0] == '"' || t[0] == '\'') {
			end := strings.IndexByte(t[1:], t[0])
			if end < 0 {
				return parts
			}
			part, rest = t[1:1+end], t[2+end:]
		} else {
			end := strings.IndexAny(t, ".=] \t")
			if end < 0 {
				end = len(t)
			}
			part, rest = t[:end], t[end:]
		}
		parts = append(parts, part)
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" || rest[0] != '.' {
			return parts
		}
		t = rest[1:]
	}
}
