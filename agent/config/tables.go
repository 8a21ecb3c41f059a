package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxEntries bounds how many tables of one form a file has.
const maxEntries = 4096

// A form is a table that a file can have many times: [path.NAME], or [[path]].
type form struct {
	path    string // model, namespace, route
	title   string // as it is written: [model.NAME], [[route]]
	plural  string
	doc     string
	keys    []described
	after   string // the table that docs/config.md puts it behind; empty: all
	read    func(l *loader, v any)
	entries func(c *Config) []entry
	names   func(c *Config) []string // by which the entries are known; nil: by their paths
	take    func(dst, src *Config)   // copies the entries at a reload; nil: that takes a restart
	// fits says whether what runs can take over the entries of next; nil: it can.
	fits func(running, next *Config) bool
}

// entry is one table of a form, and the path of its keys: route[0], model.r1.
type entry struct {
	path     string
	settings []setting
}

// formsOf are all that there are but fabrics, each kind of which has keys of its own.
// Their order is that of Origins.
func formsOf(kinds []FabricKind) []form {
	out := []form{named(modelTable, "models", "telemetry", func(c *Config) *[]Model { return &c.Models }, func(m *Model) *string { return &m.Name })}
	for k := range fixedKinds(kinds) {
		out = append(out, k.fixed.forms...)
	}
	return append(out, namespaceForm(), routeForm())
}

func (l *loader) forms() []form { return formsOf(l.cfg.kinds) }

// formOf is the form of a path, if it has one.
func (l *loader) formOf(path string) (form, bool) {
	all := l.forms()
	i := slices.IndexFunc(all, func(f form) bool { return f.path == path })
	if i < 0 {
		return form{}, false
	}
	return all[i], true
}

// array makes the form of [[t.name]], whose entries are kept in the order of the file.
func array[S any](t table[S], plural, after string, at func(*Config) *[]S) form {
	return form{
		path: t.name, title: "[[" + t.name + "]]", plural: plural, doc: t.doc, keys: t.describe(), after: after,
		read: func(l *loader, v any) {
			list, ok := v.([]map[string]any)
			if !ok {
				l.fail(t.name, "must be an array of tables, written [[%s]]", t.name)
				return
			}
			if !l.fewEnough(t.name, len(list)) {
				return
			}
			out := make([]S, len(list))
			for i, m := range list {
				out[i] = t.fresh()
				l.fill(fmt.Sprintf("%s[%d]", t.name, i), t.settings(&out[i]), m)
			}
			*at(l.cfg) = out
		},
		entries: func(c *Config) []entry {
			list := *at(c)
			out := make([]entry, len(list))
			for i := range list {
				out[i] = entry{fmt.Sprintf("%s[%d]", t.name, i), t.settings(&list[i])}
			}
			return out
		},
	}
}

// named makes the form of [t.name.NAME], whose entries are kept in the order of
// their names.
func named[S any](t table[S], plural, after string, at func(*Config) *[]S, name func(*S) *string) form {
	return form{
		path: t.name, title: "[" + t.name + ".NAME]", plural: plural, doc: t.doc, keys: t.describe(), after: after,
		read: func(l *loader, v any) {
			for one, m := range l.named(t.name, v) {
				s := t.fresh()
				*name(&s) = one
				l.fill(t.name+"."+one, t.settings(&s), m)
				*at(l.cfg) = append(*at(l.cfg), s)
			}
		},
		entries: func(c *Config) []entry {
			list := *at(c)
			out := make([]entry, len(list))
			for i := range list {
				out[i] = entry{t.name + "." + *name(&list[i]), t.settings(&list[i])}
			}
			return out
		},
	}
}

// named gives the tables [path.NAME] of v, in the order of their names.
func (l *loader) named(path string, v any) func(yield func(string, map[string]any) bool) {
	return func(yield func(string, map[string]any) bool) {
		m, ok := v.(map[string]any)
		if !ok {
			l.fail(path, "must be tables, written [%s.NAME]", path)
			return
		}
		if !l.fewEnough(path, len(m)) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			t, ok := m[name].(map[string]any)
			if !ok {
				l.fail(path+"."+name, "must be a table, written [%s.NAME]", path)
				continue
			}
			if !yield(name, t) {
				return
			}
		}
	}
}

func (l *loader) fewEnough(path string, n int) bool {
	if n > maxEntries {
		l.fail(path, "%d entries, the limit is %d", n, maxEntries)
	}
	return n <= maxEntries
}

// fill sets the keys of one table of the file.
func (l *loader) fill(path string, keys []setting, m map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		key := path + "." + k
		if i := slices.IndexFunc(keys, func(s setting) bool { return s.name == k }); i >= 0 {
			l.set(keys[i], key, m[k])
			continue
		}
		names := make([]string, len(keys))
		for i, s := range keys {
			names[i] = s.name
		}
		l.fail(key, "unknown key%s", didYouMean(meant(k, names)))
	}
}

// set stores one value of the file.
func (l *loader) set(s setting, key string, raw any) {
	l.from[key] = source{kind: "file", at: l.file, line: l.lines.of(key)}
	if err := s.setTOML(raw); err != nil {
		l.reject(key, s.secret, asWritten(raw), err)
	}
}

// plurals lists the forms for people.
func (l *loader) plurals() string {
	var names []string
	for _, f := range l.forms() {
		names = append(names, f.plural)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
