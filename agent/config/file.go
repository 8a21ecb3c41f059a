package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"meridian/internal/safefile"
)

// maxFile bounds what is read: a configuration is a few kilobytes.
const maxFile = 1 << 20

// readBounded reads a file or a pipe.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("more than %d bytes, which is the limit", maxFile)
	}
	return text, err
}

// readFile reads the TOML file and sets every key it has.
func (l *loader) readFile(path string, regular bool) {
	read := readBounded
	if regular {
		read = func(path string) ([]byte, error) { return safefile.Read(path, maxFile) }
	}
	text, err := read(path)
	if err == nil && regular && len(bytes.TrimSpace(text)) == 0 {
		err = errors.New("the file is empty: is it being written? a comment in it is enough if all defaults are meant")
	}
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		p := Problem{File: path, Text: err.Error()}
		if l.vars[fileVariable] == path {
			p.Text += " (" + fileVariable + " names this file)"
		}
		l.problems = append(l.problems, p)
		return
	}
	raw, ok := l.decode(path, string(text))
	if !ok {
		return
	}
	l.file, l.lines, l.cfg.File = path, locate(string(text)), path
	if abs, err := filepath.Abs(path); err == nil {
		l.cfg.File = abs
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		l.topLevel(name, raw[name])
	}
}

// maxSyntax bounds how many statements that are not TOML one file is told of.
const maxSyntax = 20

// decode parses the file. A statement that is not TOML is a problem, and is left
// out so that the others are checked too; with what cannot be left out ok is false.
func (l *loader) decode(path, text string) (raw map[string]any, ok bool) {
	lines := strings.Split(text, "\n")
	last := 0
	for range maxSyntax {
		raw = nil
		_, err := toml.Decode(strings.Join(lines, "\n"), &raw)
		if err == nil {
			return raw, true
		}
		p := Problem{File: path, Text: err.Error()}
		var pe toml.ParseError
		if errors.As(err, &pe) {
			p.Line, p.Key = pe.Position.Line, pe.LastKey
			p.Text = "not TOML: " + strings.TrimSuffix(pe.Message, ".")
			if strings.Contains(pe.Message, "to end with a newline") {
				p.Text += `; a text, a size or a duration stands in quotes, as in "64MiB" or "5s"`
			}
			if pe.LastKey == "psk" || strings.HasSuffix(pe.LastKey, ".psk") {
				p.Text = "not TOML: the value cannot be read" // the message would quote it
			}
		}
		l.problems = append(l.problems, p)
		l.partial = true
		at := p.Line - 1
		if at > 0 && strings.Contains(p.Text, "table name") && strings.Contains(p.Text, `'\n'`) {
			at-- // an unclosed header is noticed at the end of its line
		}
		if p.Line <= last || at >= len(lines) || !blank(lines, at) {
			return nil, false
		}
		last = p.Line
	}
	return nil, false
}

// statement is the first line of one.
var statement = regexp.MustCompile(`^\s*(\[|[A-Za-z0-9_."'-]+\s*=)`)

// blank empties the statement that begins at lines[at], and a whole table where
// that is its header: its keys would count as those of the table before. It fails
// where no statement begins.
func blank(lines []string, at int) bool {
	if !statement.MatchString(lines[at]) {
		return false
	}
	header := strings.HasPrefix(strings.TrimSpace(lines[at]), "[")
	lines[at] = ""
	for i := at + 1; i < len(lines); i++ {
		if next := strings.TrimSpace(lines[i]); statement.MatchString(lines[i]) && (!header || next[0] == '[') || !header && (next == "" || next[0] == '#') {
			break
		}
		lines[i] = ""
	}
	return true
}

func (l *loader) topLevel(name string, v any) {
	switch f, ok := l.formOf(name); {
	case ok:
		f.read(l, v)
	case name == "fabric":
		l.readFabrics(v)
	case name == "speculation":
		l.warn("speculation", "the table is ignored: speculative decoding of the seed design is left out, since drafting belongs to the engine, which alone can verify a draft")
	default:
		l.table(name, v)
	}
}

// table sets the keys of [name] and of the tables below it.
func (l *loader) table(name string, v any) {
	m, ok := v.(map[string]any)
	if _, tables := v.([]map[string]any); tables {
		l.unknownTable(name)
		return
	} else if !ok {
		l.unknown(name)
		return
	}
	i := slices.IndexFunc(l.tables(), func(t table[Config]) bool { return t.name == name })
	if i < 0 {
		l.unknownTable(name)
		return
	}
	t := l.tables()[i]
	for _, k := range slices.Sorted(maps.Keys(m)) {
		key := name + "." + k
		below, isForm := l.formOf(key)
		switch f := t.field(k); {
		case f != nil:
			l.set(f.of(l.cfg), key, m[k])
		case isForm:
			below.read(l, m[k])
		case l.isTable(key):
			l.table(key, m[k])
		default:
			l.unknown(key)
		}
	}
}

func (l *loader) isTable(name string) bool {
	return slices.ContainsFunc(l.tables(), func(t table[Config]) bool { return t.name == name })
}

// asWritten shows a decoded value the way the file has it, shortened.
func asWritten(raw any) string {
	s := fmt.Sprint(raw)
	switch v := raw.(type) {
	case string:
		s = fmt.Sprintf("%q", v)
	case map[string]any:
		s = "a table"
	case []map[string]any:
		s = "an array of tables"
	}
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80]) + "..."
	}
	return s
}

func (l *loader) unknown(key string) { l.fail(key, "unknown key%s", l.suggest(key)) }

func (l *loader) unknownTable(name string) {
	names := []string{"fabric"}
	for _, f := range l.forms() {
		names = append(names, f.path)
	}
	for _, t := range l.tables() {
		names = append(names, t.name)
	}
	l.fail(name, "unknown table%s", didYouMean(Nearest(name, names)))
}

// suggest finds what an unknown table.key may have meant: a near name in its
// table, what others call a key, the same name in another table, or the nearest of
// all.
func (l *loader) suggest(key string) string {
	dot := strings.LastIndexByte(key, '.')
	tab, name := key[:max(dot, 0)], key[dot+1:]
	all := l.known()
	var near []string
	for _, full := range all {
		if rest, ok := strings.CutPrefix(full, tab+"."); ok {
			near = append(near, rest)
		}
	}
	for _, f := range l.forms() {
		if rest, ok := strings.CutPrefix(f.path, tab+"."); ok {
			near = append(near, rest)
		}
	}
	if n, ok := meant(name, near); ok {
		return didYouMean(tab+"."+n, true)
	}
	for _, full := range all {
		if s, _ := l.setting(full); slices.Contains(s.other, key) || slices.Contains(s.other, name) {
			return didYouMean(full, true)
		}
	}
	for _, full := range all {
		if other := full[strings.LastIndexByte(full, '.')+1:]; other == name || other == name+"_bytes" {
			return didYouMean(full, true)
		}
	}
	return didYouMean(Nearest(key, all))
}

// absolute makes a path that the file names relative to the file's folder. A
// path from a variable or a flag is relative to the current folder.
func (l *loader) absolute(key string, path *string) {
	if *path == "" || filepath.IsAbs(*path) {
		return
	}
	if l.from[key].kind == "file" {
		*path = filepath.Join(filepath.Dir(l.file), *path)
	}
	if abs, err := filepath.Abs(*path); err == nil {
		*path = abs
	}
}

// rebase makes the paths of a table absolute.
func (l *loader) rebase(table string, keys []setting) {
	for _, s := range keys {
		if s.kind == Paths.name {
			path := s.bare()
			l.absolute(table+"."+s.name, &path)
			_ = s.setText(path) // what was stored once can be stored again
		}
	}
}
