package config_test

import (
	"testing"

	"meridian/agent/config"
)

// otherTexts are values of which each key takes one that it does not have.
var otherTexts = []string{
	"7", "0.125", "true", "false", "9s", "40s", "2m", "error", "json", "always", "64KiB", "4MiB", "128MiB", "1GiB", "32", "600", "link", "decode", "fcfs",
	"0123456789abcdef0123456789abcde8", "5b1e7f0c92d84a63b0f6a9d13e57c248", "http://example.test:1", "x1", "/x/y", "127.0.0.1:1",
}

// Each key that is marked as changing live is taken over and reported so, and each
// other one stays as it is and is named as one that needs a restart.
func TestEveryKeyIsTakenOverOrNamed(t *testing.T) {
	base := mustLoad(t, "[agent]\nname = \"a\"\n")
	base = config.Resolved(base) // as next is
	config.EachKey(base, func(key string, f config.KeyOf) {
		next := config.Copy(base)
		was, is := f.Show(base), ""
		for _, text := range otherTexts {
			if f.SetText(next, text) == nil && f.Show(next) != was {
				is = f.Show(next)
				break
			}
		}
		if is == "" {
			t.Errorf("%s: no other value was found for it", key)
			return
		}
		next = config.Resolved(next)
		changes := config.Changes(base, next)
		if len(changes) != 1 || changes[0].Key != key || changes[0].Live != f.IsLive() {
			t.Errorf("%s: changes %v", key, changes)
			return
		}
		if c := changes[0]; !f.IsSecret() && (c.Old != was || c.New != is) || f.IsSecret() && (c.Old != "" || c.New != "") {
			t.Errorf("%s: reported as %+v", key, c)
		}
		with := config.Copy(base)
		if f.IsLive() {
			f.Take(with, next)
		}
		got, err := base.With(next)
		if err != nil {
			return // it takes more keys to make a valid configuration of the two
		}
		if f.Show(got) != f.Show(with) || valueOf(got, key) != f.Show(with) {
			t.Errorf("%s: in force is %s, and reported %s; want %s", key, f.Show(got), valueOf(got, key), f.Show(with))
		}
	})
}

// valueOf is a key's value as it would be written.
func valueOf(c *config.Config, key string) string {
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
