package config

import (
	"fmt"
	"slices"
	"strings"
)

// A rule is the range of a value: in words, and as a test. The zero rule
// allows everything.
type rule[T any] struct {
	words string
	ok    func(T) bool
}

// described is what a key says about itself, whatever its table's values live in.
type described struct {
	name   string
	kind   string
	rng    string
	doc    string
	def    string   // as it would be written, or a sentence for a default that depends on the host
	other  []string // what else people call it, as key or as table.key
	live   bool     // a reload changes it without a restart
	secret bool
	listen bool // where the daemon listens
}

// A field is one key of a table whose values live in an S.
type field[S any] struct {
	described
	reset   func(*S)            // store the default
	take    func(dst, src *S)   // copy the value
	setTOML func(*S, any) error // parse, check, store
	setText func(*S, string) error
	show    func(*S) string
	bare    func(*S) string // show, without quotes and with what a secret hides; texts of a list a line each
}

// setting is a key of one table of the file, with the place of its value.
type setting struct {
	described
	setTOML func(any) error
	setText func(string) error
	show    func() string
	bare    func() string
}

// of is the setting that a field is in s.
func (f field[S]) of(s *S) setting {
	return setting{
		described: f.described,
		setTOML:   func(raw any) error { return f.setTOML(s, raw) },
		setText:   func(raw string) error { return f.setText(s, raw) },
		show:      func() string { return f.show(s) },
		bare:      func() string { return f.bare(s) },
	}
}

// key makes a field out of the place of its value, its kind, default and rule.
func key[S, T any](name string, at func(*S) *T, k kind[T], def T, r rule[T], doc string) field[S] {
	store := func(s *S, v T, err error) error {
		if err != nil {
			return err
		}
		if r.ok != nil && !r.ok(v) {
			return fmt.Errorf("must be %s", r.words)
		}
		*at(s) = v
		return nil
	}
	return field[S]{
		described: described{
			name: name, kind: k.name, rng: r.words, doc: doc, def: k.show(def), secret: strings.HasPrefix(k.name, "secret"),
			listen: name == "listen" || strings.HasSuffix(name, "_listen"),
		},
		reset: func(s *S) { *at(s) = def },
		take:  func(dst, src *S) { *at(dst) = *at(src) },
		setTOML: func(s *S, raw any) error {
			v, err := k.toml(raw)
			return store(s, v, err)
		},
		setText: func(s *S, raw string) error {
			v, err := k.text(raw)
			return store(s, v, err)
		},
		show: func(s *S) string { return k.show(*at(s)) },
		bare: func(s *S) string {
			switch v := any(*at(s)).(type) {
			case Secret:
				return string(v)
			case string:
				return v
			case []string:
				return strings.Join(v, "\n")
			}
			return k.show(*at(s))
		},
	}
}

// HostDefault replaces the written default by a sentence, for a value that
// depends on the host.
func (f field[S]) HostDefault(words string) field[S] {
	f.def = words
	return f
}

// Live marks a key that a reload changes in a running daemon.
func (f field[S]) Live() field[S] {
	f.live = true
	return f
}

// Listens marks a key that says where the daemon listens, as those do that are called
// listen: no two of these may have one address.
func (f field[S]) Listens() field[S] {
	f.listen = true
	return f
}

// called tells what else people write for the key: a name, or a table and a name.
func (f field[S]) called(other ...string) field[S] {
	f.other = other
	return f
}

// A table is one [table] of the file, or the form of several.
type table[S any] struct {
	name   string
	doc    string
	fields []field[S]
}

func (t table[S]) field(name string) *field[S] {
	for i := range t.fields {
		if t.fields[i].name == name {
			return &t.fields[i]
		}
	}
	return nil
}

// settings are the table's keys in s.
func (t table[S]) settings(s *S) []setting {
	out := make([]setting, len(t.fields))
	for i, f := range t.fields {
		out[i] = f.of(s)
	}
	return out
}

func (t table[S]) describe() []described {
	out := make([]described, len(t.fields))
	for i, f := range t.fields {
		out[i] = f.described
	}
	return out
}

// reloads is the table with every key marked. The table itself stays: others may read it
// at the same time.
func (t table[S]) reloads() table[S] {
	t.fields = slices.Clone(t.fields)
	for i := range t.fields {
		t.fields[i].live = true
	}
	return t
}

// fresh is an S with every default of the table.
func (t table[S]) fresh() S {
	var s S
	for _, f := range t.fields {
		f.reset(&s)
	}
	return s
}

// The ranges of numbers.

func above(min float64) rule[float64] {
	return rule[float64]{fmt.Sprintf("above %g", min), func(v float64) bool { return v > min }}
}

// budgetMS is the range of service levels in milliseconds: up to a day.
var budgetMS = rule[float64]{"above 0 and at most 86400000", func(v float64) bool { return v > 0 && v <= 24*60*60*1000 }}

func atLeast[T int | uint32 | float64](min T) rule[T] {
	return rule[T]{fmt.Sprintf("at least %v", min), func(v T) bool { return v >= min }}
}

func between[T ~int | ~uint32 | ~int64](min, max T) rule[T] {
	return rule[T]{fmt.Sprintf("between %v and %v", min, max), func(v T) bool { return v >= min && v <= max }}
}

func bytesBetween(min, max uint64) rule[uint64] {
	return rule[uint64]{
		fmt.Sprintf("between %s and %s", FormatBytes(min), FormatBytes(max)),
		func(v uint64) bool { return v >= min && v <= max },
	}
}

// fraction is (0, 1].
var fraction = rule[float64]{"above 0 and at most 1", func(v float64) bool { return v > 0 && v <= 1 }}

func free[T any]() rule[T] { return rule[T]{} }
