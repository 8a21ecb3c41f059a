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
	for _, t := range tables() {
		add(t.name, t.settings(l.cfg))
	}
	for _, f := range forms() {
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

// Change is a key whose value differs between two configurations.
type Change struct {
	Key  string
	Live bool // a running daemon takes it over; otherwise it needs a restart
}

// Changes compares two configurations, for a reload: which keys differ, and
// which of them can change in a running daemon. Secrets are compared too.
func Changes(running, next *Config) []Change {
	var out []Change
	old := map[string]string{}
	for _, k := range running.origins {
		old[k.Key] = k.value()
	}
	for _, k := range next.origins {
		v, ok := old[k.Key]
		delete(old, k.Key)
		if !ok || v != k.value() {
			out = append(out, Change{k.Key, k.live})
		}
	}
	for _, k := range running.origins {
		if _, gone := old[k.Key]; gone {
			out = append(out, Change{k.Key, k.live})
		}
	}
	return out
}
