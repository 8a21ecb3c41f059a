package config

import "slices"

// A fixed kind is one of which every daemon has one fabric, whether a route names it
// or not. Its tables are not [fabric.NAME] but its own, and what of them a reload may
// change is marked as in all others. The fabric's settings are in Config.Fabrics from
// the start of Load, so a key of the kind is a key of the Config.

// fixed is what a fixed kind has besides its name.
type fixed struct {
	fresh  func() any
	clone  func(settings any) any
	check  func(c *Config, bad, warn Bad)
	tables []table[Config]
	forms  []form
}

// Part is one table of a fixed kind, whose settings are in an S.
type Part[S any] func(k *FabricKind, of func(*Config) *S)

// NewFixedKind declares a fixed kind and its fabric, which has the kind's name. check
// tells what the keys say together, with what the rest of the configuration says; it
// names keys by their tables.
func NewFixedKind[S any](name string, check func(s *S, c *Config, bad, warn Bad), parts ...Part[S]) FabricKind {
	of := func(c *Config) *S { return c.Settings(name).(*S) }
	k := FabricKind{Name: name, fixed: &fixed{
		fresh: func() any { return new(S) },
		clone: func(settings any) any { s := *settings.(*S); return &s },
		check: func(c *Config, bad, warn Bad) { check(of(c), c, bad, warn) },
	}}
	for _, p := range parts {
		p(&k, of)
	}
	return k
}

// Table is the table [name], which a file has once.
func Table[S any](name, doc string, keys ...Field[S]) Part[S] {
	return func(k *FabricKind, of func(*Config) *S) {
		t := table[Config]{name, doc, nil}
		for _, f := range keys {
			t.fields = append(t.fields, within(f, of))
		}
		k.fixed.tables = append(k.fixed.tables, t)
	}
}

// within is a field of the S that a Config holds.
func within[S any](f field[S], of func(*Config) *S) field[Config] {
	return field[Config]{
		described: f.described,
		reset:     func(c *Config) { f.reset(of(c)) },
		take:      func(dst, src *Config) { f.take(of(dst), of(src)) },
		setTOML:   func(c *Config, raw any) error { return f.setTOML(of(c), raw) },
		setText:   func(c *Config, raw string) error { return f.setText(of(c), raw) },
		show:      func(c *Config) string { return f.show(of(c)) },
		bare:      func(c *Config) string { return f.bare(of(c)) },
	}
}

// PeerTables are the tables [[name]], one for each peer of the fabric, which is known by
// what called points to. A reload takes them over. They stand behind a Table.
func PeerTables[S, E any](name, doc string, at func(*S) *[]E, called func(*E) *string, keys ...Field[E]) Part[S] {
	return func(k *FabricKind, of func(*Config) *S) {
		list := func(c *Config) *[]E { return at(of(c)) }
		names := func(entries []E) []string {
			out := make([]string, len(entries))
			for i := range entries {
				out[i] = *called(&entries[i])
			}
			return out
		}
		f := array(table[E]{name, doc, keys}.reloads(), "peers", k.fixed.tables[len(k.fixed.tables)-1].name, list)
		f.names = func(c *Config) []string { return names(*list(c)) }
		f.take = func(dst, src *Config) { *list(dst) = *list(src) }
		k.fixed.forms = append(k.fixed.forms, f)
		k.peers = func(settings any) []string { return names(*at(settings.(*S))) }
		k.where = f.title
	}
}

// fixedKinds are those of kinds.
func fixedKinds(kinds []FabricKind) func(yield func(FabricKind) bool) {
	return func(yield func(FabricKind) bool) {
		for _, k := range kinds {
			if k.fixed != nil && !yield(k) {
				return
			}
		}
	}
}

// copy shares nothing with c that a reload changes.
func (c *Config) copy() *Config {
	out := *c
	out.Fabrics = slices.Clone(c.Fabrics)
	for i, f := range c.Fabrics {
		for _, k := range c.kinds {
			switch {
			case k.Name != f.Kind:
			case k.fixed != nil:
				out.Fabrics[i].Settings = k.fixed.clone(f.Settings)
			case k.live != nil:
				out.Fabrics[i].Settings = k.live.clone(f.Settings)
			}
		}
	}
	return &out
}

// Settings are those of the fabric of that name: a *S of its kind, nil where the
// configuration has no such fabric.
func (c *Config) Settings(fabric string) any {
	for _, f := range c.Fabrics {
		if f.Name == fabric {
			return f.Settings
		}
	}
	return nil
}

// Peers are the names of all that the fabrics list; one that several list is there as
// often.
func (c *Config) Peers() (names []string) {
	for _, f := range c.Fabrics {
		for _, k := range c.kinds {
			if k.Name == f.Kind && k.peers != nil {
				names = append(names, k.peers(f.Settings)...)
			}
		}
	}
	return names
}
