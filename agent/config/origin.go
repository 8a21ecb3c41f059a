package config

import "strconv"

// Origin is a key, its value as it would be written in the file, and where the
// value was written. Secrets are redacted.
type Origin struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`       // default, file, env, flag
	At     string `json:"at,omitempty"` // file:line, or the variable
	Note   string `json:"note,omitempty"`
}

// kept is an origin, and what a reload must know of its key besides.
type kept struct {
	Origin
	live   bool
	secret func() string // nil where Value hides nothing; a function, so that printing it cannot tell
}

// value tells two secrets apart, for Changes alone.
func (k kept) value() string {
	if k.secret != nil {
		return k.secret()
	}
	return k.Value
}

// Origins lists every key with its value and where that came from, in the
// order of the schema; models, peers, routes and fabrics follow.
func (c *Config) Origins() []Origin {
	out := make([]Origin, len(c.origins))
	for i, k := range c.origins {
		out[i] = k.Origin
		if k.Key == "kv_memory.capacity_bytes" {
			out[i].Note = c.KVMemory.CapacityNote
		}
	}
	return out
}

// Problem is one that was found after Load, with the place where its key was written.
func (c *Config) Problem(key, text string) Problem {
	for _, k := range c.origins {
		if k.Key == key {
			return Problem{File: k.At, Key: key, Text: text}
		}
	}
	return Problem{Key: key, Text: text}
}

func (l *loader) origins() []kept {
	var out []kept
	add := func(path string, keys []setting) {
		for _, s := range keys {
			k := kept{Origin: l.origin(path+"."+s.name, s.show()), live: s.live}
			if s.secret {
				k.secret = s.bare
			}
			if k.Source == "default" && k.Value == `""` && s.def != `""` {
				k.Note = s.def
			}
			out = append(out, k)
		}
	}
	for _, t := range l.tables() {
		add(t.name, t.settings(l.cfg))
	}
	for _, f := range l.forms() {
		for _, e := range f.entries(l.cfg) {
			add(e.path, e.settings)
		}
	}
	for _, e := range l.fabricEntries() {
		add(e.path, e.settings)
	}
	return out
}

func (l *loader) origin(key, value string) Origin {
	s, ok := l.from[key]
	if !ok {
		return Origin{Key: key, Value: value, Source: "default"}
	}
	at := s.at
	if s.line > 0 {
		at += ":" + strconv.Itoa(s.line)
	}
	return Origin{Key: key, Value: value, Source: s.kind, At: at}
}
