package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Change is a key whose value differs between two configurations.
type Change struct {
	Key string // that of a peer's table has the peer's name in place of a number
	// Old and New are the values as they would be written; empty where the whole
	// entry is added or removed, and for a secret.
	Old, New string
	What     string // added, removed, changed
	Live     bool   // a running daemon takes it over; otherwise it needs a restart
}

// String is a line for people. A secret is said to have changed, and no more.
func (c Change) String() string {
	if c.Old == "" && c.New == "" {
		return c.Key + " " + c.What
	}
	return c.Key + " = " + c.New + ", was " + c.Old
}

// compared is a key as Changes looks at it.
type compared struct {
	kept
	key   string // a peer is known by its name, not by its place in the file
	entry string // of a table that there can be several of; else empty
}

// Changes compares two configurations, for a reload: which keys differ, and
// which of them can change in a running daemon. An entry that only one of them has
// is one change.
func Changes(running, next *Config) []Change {
	var out []Change
	old, had := running.compared()
	now, has := next.compared()
	before := map[string]compared{}
	for _, s := range old {
		before[s.key] = s
	}
	unfit := running.unfit(next)
	for _, list := range [][]compared{old, now} {
		for i := range list {
			list[i].live = list[i].live && !running.replaced(next, list[i].entry) && !below(list[i].Key, unfit)
		}
	}
	told := map[string]bool{}
	entry := func(s compared, other map[string]bool, what string) bool {
		if s.entry == "" || other[s.entry] {
			return false
		}
		if !told[s.entry] {
			told[s.entry] = true
			out = append(out, Change{Key: s.entry, What: what, Live: s.live})
		}
		return true
	}
	for _, s := range now {
		o := before[s.key]
		switch {
		case entry(s, had, "added") || s.key == o.key && s.value() == o.value():
		case s.secret != nil:
			out = append(out, Change{Key: s.key, What: "changed", Live: s.live})
		default:
			out = append(out, Change{Key: s.key, Old: o.Value, New: s.Value, What: "changed", Live: s.live})
		}
	}
	for _, s := range old {
		entry(s, has, "removed")
	}
	return out
}

// compared are all keys in the order of the schema, and which entries there are.
func (c *Config) compared() (all []compared, entries map[string]bool) {
	entries = map[string]bool{}
	once := map[string]bool{}
	for _, t := range tablesOf(c.kinds) {
		once[t.name] = true
	}
	known := map[string]string{} // by path, what is known by a name
	for _, f := range formsOf(c.kinds) {
		if f.names != nil {
			for i, name := range f.names(c) {
				known[fmt.Sprintf("%s[%d]", f.path, i)] = f.path + "." + name
			}
		}
	}
	for _, k := range c.origins {
		s := compared{kept: k, key: k.Key}
		dot := strings.LastIndexByte(k.Key, '.')
		if !once[k.Key[:dot]] {
			s.entry = cmp.Or(known[k.Key[:dot]], k.Key[:dot])
			s.key = s.entry + k.Key[dot:]
			entries[s.entry] = true
		}
		all = append(all, s)
	}
	return all, entries
}

// replaced reports whether the table at a path is one of a fabric which has another kind in
// next: nothing of it can be taken over.
func (c *Config) replaced(next *Config, path string) bool {
	name, ok := strings.CutPrefix(path, "fabric.")
	if !ok {
		return false
	}
	was, is := c.kindOf(name), next.kindOf(name)
	return was != "" && is != "" && was != is
}

// kindOf is the kind of the fabric of that name; empty: there is none.
func (c *Config) kindOf(name string) string {
	for _, f := range c.Fabrics {
		if f.Name == name {
			return f.Kind
		}
	}
	return ""
}

// unfit are the forms whose entries what runs cannot take over from next.
func (c *Config) unfit(next *Config) (paths []string) {
	for _, f := range formsOf(c.kinds) {
		if f.fits != nil && !f.fits(c, next) {
			paths = append(paths, f.path)
		}
	}
	return paths
}

// below says whether a key is of an entry of one of some forms.
func below(key string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return strings.HasPrefix(key, path+"[") })
}

// takeFabrics takes over what can change in the tables of fabrics that both have.
func (l *loader) takeFabrics(next *Config) {
	for _, f := range l.cfg.Fabrics {
		i := slices.IndexFunc(l.cfg.kinds, func(k FabricKind) bool { return k.Name == f.Kind && k.live != nil })
		if i < 0 || next.kindOf(f.Name) != f.Kind {
			continue
		}
		live := l.cfg.kinds[i].live
		live.take(f.Settings, next.Settings(f.Name))
		live.check(f.Settings, func(key, format string, args ...any) { l.fail("fabric."+f.Name+"."+key, format, args...) })
	}
}

// With is what is in force after a reload: the values that can change in a running
// daemon are those of next, all others stay. The error is an *Error where the two
// together make no valid configuration, so that it takes a restart.
func (c *Config) With(next *Config) (*Config, error) {
	out := c.copy()
	for _, t := range tablesOf(c.kinds) {
		for _, f := range t.fields {
			if f.live {
				f.take(out, next)
			}
		}
	}
	unfit := c.unfit(next)
	var lists []string
	for _, f := range formsOf(c.kinds) {
		if f.take != nil && !slices.Contains(unfit, f.path) {
			f.take(out, next)
			lists = append(lists, f.path+"[")
		}
	}
	listed := func(k kept) bool {
		return slices.ContainsFunc(lists, func(path string) bool { return strings.HasPrefix(k.Key, path) })
	}
	fresh := map[string]kept{}
	var entries []kept
	for _, k := range next.origins {
		if listed(k) {
			entries = append(entries, k)
		} else if k.live && !below(k.Key, unfit) && !c.replaced(next, k.Key[:strings.LastIndexByte(k.Key, '.')]) {
			fresh[k.Key] = k
		}
	}
	out.origins = nil
	for _, k := range c.origins {
		if n, ok := fresh[k.Key]; ok {
			k = n
		}
		if !listed(k) {
			out.origins = append(out.origins, k)
		}
	}
	out.origins = append(out.origins, entries...)
	l := &loader{cfg: out, from: map[string]source{}}
	l.takeFabrics(next)
	for _, check := range []func(){l.checkNames, l.checkQuota, l.checkNamespaces, l.checkFixed, l.checkRoutes, l.checkLlama} {
		check()
	}
	if len(l.problems) > 0 {
		return nil, &Error{l.problems}
	}
	return out, nil
}
