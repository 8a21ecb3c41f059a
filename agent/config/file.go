package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxFile bounds what is read: a configuration is a few kilobytes.
const maxFile = 1 << 20

// maxEntries bounds the models, peers and routes of one file.
const maxEntries = 4096

// readFile reads the TOML file and sets every key it has.
func (l *loader) readFile(path string) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%d bytes, the limit is %d", info.Size(), maxFile)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		l.problems = append(l.problems, Problem{File: path, Text: err.Error()})
		return
	}
	var raw map[string]any
	if _, err := toml.Decode(string(text), &raw); err != nil {
		p := Problem{File: path, Text: err.Error()}
		var pe toml.ParseError
		if errors.As(err, &pe) {
			p.Line, p.Key = pe.Position.Line, pe.LastKey
			p.Text = "not TOML: " + strings.TrimSuffix(pe.Message, ".")
			if pe.LastKey == "psk" || strings.HasSuffix(pe.LastKey, ".psk") {
				p.Text = "not TOML: the value cannot be read" // the message would quote it
			}
		}
		l.problems = append(l.problems, p)
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

func (l *loader) topLevel(name string, v any) {
	switch name {
	case "model":
		l.models(v)
	case "route":
		l.cfg.Routes = entries(l, routeTable, "route", v)
	case "speculation":
		l.warn("speculation", "the table is ignored: speculative decoding of the seed design is left out, since drafting belongs to the engine, which alone can verify a draft")
	default:
		l.table(name, v)
	}
}

// table sets the keys of [name] and of the tables below it.
func (l *loader) table(name string, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		l.unknown(name)
		return
	}
	i := slices.IndexFunc(tables(), func(t table[Config]) bool { return t.name == name })
	if i < 0 {
		l.unknownTable(name)
		return
	}
	t := tables()[i]
	for _, k := range slices.Sorted(maps.Keys(m)) {
		key := name + "." + k
		switch f := t.field(k); {
		case f != nil:
			set(l, l.cfg, *f, key, m[k])
		case key == "link.peer":
			l.cfg.Link.Peers = entries(l, peerTable, key, m[k])
		case key == "link.tls":
			l.table(key, m[k])
		default:
			l.unknown(key)
		}
	}
}

// set stores one value of the file.
func set[S any](l *loader, s *S, f field[S], key string, raw any) {
	l.from[key] = source{kind: "file", at: l.file, line: l.lines.of(key)}
	if err := f.setTOML(s, raw); err != nil {
		l.reject(key, f.secret, asWritten(raw), err)
	}
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

// entries reads an array of tables.
func entries[S any](l *loader, t table[S], name string, v any) []S {
	list, ok := v.([]map[string]any)
	if !ok {
		l.fail(name, "must be an array of tables, written [[%s]]", name)
		return nil
	}
	if len(list) > maxEntries {
		l.fail(name, "%d entries, the limit is %d", len(list), maxEntries)
		return nil
	}
	out := make([]S, len(list))
	for i, m := range list {
		out[i] = entry(l, t, fmt.Sprintf("%s[%d]", name, i), m)
	}
	return out
}

func entry[S any](l *loader, t table[S], prefix string, m map[string]any) S {
	s := t.fresh()
	for _, k := range slices.Sorted(maps.Keys(m)) {
		key := prefix + "." + k
		if f := t.field(k); f != nil {
			set(l, &s, *f, key, m[k])
		} else {
			l.fail(key, "unknown key%s", didYouMean(Nearest(k, t.names())))
		}
	}
	return s
}

func (l *loader) models(v any) {
	m, ok := v.(map[string]any)
	if !ok {
		l.fail("model", "must be tables, written [model.NAME]")
		return
	}
	if len(m) > maxEntries {
		l.fail("model", "%d entries, the limit is %d", len(m), maxEntries)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		t, ok := m[name].(map[string]any)
		if !ok {
			l.fail("model."+name, "must be a table, written [model.NAME]")
			continue
		}
		model := entry(l, modelTable, "model."+name, t)
		model.Name = name
		l.cfg.Models = append(l.cfg.Models, model)
	}
}

func (l *loader) unknown(key string) { l.fail(key, "unknown key%s", l.suggest(key)) }

func (l *loader) unknownTable(name string) {
	names := []string{"model", "route"}
	for _, t := range tables() {
		names = append(names, t.name)
	}
	l.fail(name, "unknown table%s", didYouMean(Nearest(name, names)))
}

// suggest finds what an unknown table.key may have meant: a near name in its
// table, the same name in another, or the nearest of all.
func (l *loader) suggest(key string) string {
	dot := strings.LastIndexByte(key, '.')
	tab, name := key[:max(dot, 0)], key[dot+1:]
	var all []string
	for _, t := range tables() {
		if t.name == tab {
			if n, ok := Nearest(name, t.names()); ok {
				return didYouMean(tab+"."+n, true)
			}
		}
		for _, n := range t.names() {
			all = append(all, t.name+"."+n)
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
