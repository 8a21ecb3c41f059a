package config

// KeyOf is a key of a table that a file has once, for the tests that know all kinds.
type KeyOf struct{ field[Config] }

// EachKey gives the keys of c by their full names.
func EachKey(c *Config, f func(key string, k KeyOf)) {
	for _, t := range tablesOf(c.kinds) {
		for _, one := range t.fields {
			f(t.name+"."+one.name, KeyOf{one})
		}
	}
}

// SetText sets the key as a variable does.
func (k KeyOf) SetText(c *Config, text string) error { return k.setText(c, text) }

// Show is the value as it would be written.
func (k KeyOf) Show(c *Config) string { return k.show(c) }

// Take copies the value.
func (k KeyOf) Take(dst, src *Config) { k.take(dst, src) }

// IsLive says that a reload takes the key over.
func (k KeyOf) IsLive() bool { return k.live }

// IsSecret says that the value is never shown.
func (k KeyOf) IsSecret() bool { return k.secret }

// Copy shares nothing with c that a reload changes.
func Copy(c *Config) *Config { return c.copy() }

// Resolved is a copy whose origins are those of its values.
func Resolved(c *Config) *Config {
	out := c.copy()
	out.origins = (&loader{cfg: out, from: map[string]source{}}).origins()
	return out
}
