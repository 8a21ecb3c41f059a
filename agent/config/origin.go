package config

import (
	"fmt"
	"strconv"
)

// Origin is a key, its value as it would be written in the file, and where the
// value was written. Secrets are redacted.
type Origin struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`       // default, file, env, flag
	At     string `json:"at,omitempty"` // file:line, or the variable
	Note   string `json:"note,omitempty"`
}

// Origins lists every key with its value and where that came from, in the
// order of the schema; models, peers and routes follow.
func (c *Config) Origins() []Origin {
	out := make([]Origin, len(c.origins))
	copy(out, c.origins)
	for i := range out {
		if out[i].Key == "kv_memory.capacity_bytes" {
			out[i].Note = c.KVMemory.CapacityNote
		}
	}
	return out
}

func (l *loader) origins() []Origin {
	var out []Origin
	for _, t := range tables() {
		for _, f := range t.fields {
			o := l.origin(t.name+"."+f.name, f.show(l.cfg))
			if o.Source == "default" && f.show(l.cfg) == `""` && f.def != `""` {
				o.Note = f.def
			}
			out = append(out, o)
		}
	}
	for i := range l.cfg.Models {
		out = append(out, originsOf(l, modelTable, "model."+l.cfg.Models[i].Name, &l.cfg.Models[i])...)
	}
	for i := range l.cfg.Link.Peers {
		out = append(out, originsOf(l, peerTable, fmt.Sprintf("link.peer[%d]", i), &l.cfg.Link.Peers[i])...)
	}
	for i := range l.cfg.Routes {
		out = append(out, originsOf(l, routeTable, fmt.Sprintf("route[%d]", i), &l.cfg.Routes[i])...)
	}
	return out
}

func originsOf[S any](l *loader, t table[S], prefix string, s *S) []Origin {
	out := make([]Origin, len(t.fields))
	for i, f := range t.fields {
		out[i] = l.origin(prefix+"."+f.name, f.show(s))
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
// which of them can change in a running daemon.
func Changes(running, next *Config) []Change {
	var out []Change
	old := map[string]string{}
	for _, o := range running.origins {
		old[o.Key] = running.compared(o)
	}
	for _, o := range next.origins {
		v, ok := old[o.Key]
		delete(old, o.Key)
		if !ok || v != next.compared(o) {
			f := find(o.Key)
			out = append(out, Change{o.Key, f != nil && f.live})
		}
	}
	for _, o := range running.origins {
		if _, gone := old[o.Key]; gone {
			out = append(out, Change{o.Key, false})
		}
	}
	return out
}

// compared is a value that tells secrets apart without showing them to anyone
// but Changes.
func (c *Config) compared(o Origin) string {
	if o.Key == "link.psk" {
		return string(c.Link.PSK)
	}
	var i int
	if _, err := fmt.Sscanf(o.Key, "link.peer[%d].psk", &i); err == nil && o.Key == fmt.Sprintf("link.peer[%d].psk", i) {
		return string(c.Link.Peers[i].PSK)
	}
	return o.Value
}
