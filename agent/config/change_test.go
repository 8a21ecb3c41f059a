package config

import "testing"

// otherTexts are values of which each key takes one that it does not have.
var otherTexts = []string{
	"7", "0.125", "true", "false", "9s", "40s", "2m", "error", "json", "always", "64KiB", "4MiB", "128MiB", "1GiB", "32", "600", "link", "decode",
	"0123456789abcdef0123456789abcde8", "5b1e7f0c92d84a63b0f6a9d13e57c248", "http://example.test:1", "x1", "/x/y", "127.0.0.1:1",
}

// Each key that is marked as changing live is taken over and reported so, and each
// other one stays as it is and is named as one that needs a restart.
func TestEveryKeyIsTakenOverOrNamed(t *testing.T) {
	base := mustLoad(t, "[agent]\nname = \"a\"\n")
	base.origins = (&loader{cfg: base, from: map[string]source{}}).origins() // of the resolved values, as next's are
	for _, tab := range tables() {
		for _, f := range tab.fields {
			key := tab.name + "." + f.name
			next := *base
			was, is := f.show(base), ""
			for _, text := range otherTexts {
				if f.setText(&next, text) == nil && f.show(&next) != was {
					is = f.show(&next)
					break
				}
			}
			if is == "" {
				t.Errorf("%s: no other value was found for it", key)
				continue
			}
			next.origins = (&loader{cfg: &next, from: map[string]source{}}).origins()
			changes := Changes(base, &next)
			if len(changes) != 1 || changes[0].Key != key || changes[0].Live != f.live {
				t.Errorf("%s: changes %v", key, changes)
				continue
			}
			if c := changes[0]; !f.secret && (c.Old != was || c.New != is) || f.secret && (c.Old != "" || c.New != "") {
				t.Errorf("%s: reported as %+v", key, c)
			}
			with := *base
			if f.live {
				f.take(&with, &next)
			}
			got, err := base.With(&next)
			if err != nil {
				continue // it takes more keys to make a valid configuration of the two
			}
			if f.show(got) != f.show(&with) || got.origin(key) != f.show(&with) {
				t.Errorf("%s: in force is %s, and reported %s; want %s", key, f.show(got), got.origin(key), f.show(&with))
			}
		}
	}
}

func (c *Config) origin(key string) string {
	for _, o := range c.Origins() {
		if o.Key == key {
			return o.Value
		}
	}
	return ""
}

// A reload is refused where what can change does not fit what cannot.
func TestWhatChangesLiveMustFitWhatStays(t *testing.T) {
	a := mustLoad(t, "[agent]\nname = \"a\"\n[link]\nlisten = [\"unix:///tmp/x\"]\n")
	b := mustLoad(t, "[agent]\nname = \"b\"\n[[link.peer]]\nname = \"a\"\ntenants = [\"t\"]\n")
	if _, err := a.With(b); err == nil {
		t.Error("a peer that has this daemon's own name was taken over")
	}
}
