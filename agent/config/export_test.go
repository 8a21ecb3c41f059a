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

// SetText, Show and Take are the field's.
func (k KeyOf) SetText(c *Config, text string) error { return k.setText(c, text) }
func (k KeyOf) Show(c *Config) string                { return k.show(c) }
func (k KeyOf) Take(dst, src *Config)                { k.take(dst, src) }
func (k KeyOf) IsLive() bool                         { return k.live }
func (k KeyOf) IsSecret() bool                       { return k.secret }

// Copy is a copy of c, and Resolved one whose origins are those of its values.
func Copy(c *Config) *Config { return c.copy() }

func Resolved(c *Config) *Config {
	out := c.copy()
	out.origins = (&loader{cfg: out, from: map[string]source{}}).origins()
	return out
}
