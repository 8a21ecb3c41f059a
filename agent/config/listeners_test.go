package config

import "testing"

func TestWhichAddressesMeet(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"tcp://127.0.0.1:80", "localhost:80", true},
		{"tls://127.0.0.1:80", "tcp://127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", ":80", true},
		{"10.0.0.1:80", "0.0.0.0:80", true},
		{"10.0.0.1:80", "[::]:80", true},
		{"[::1]:80", "0.0.0.0:80", false},
		{"[::1]:80", "[::]:80", true},
		{"[::]:80", "0.0.0.0:80", true},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true},
		{"node-1:80", "NODE-1:80", true},
		{"node-1:80", "node-2:80", false},
		{"127.0.0.1:80-90", "127.0.0.1:85", true},
		{"127.0.0.1:80-90", "127.0.0.1:91-95", false},
		{"unix:///run/a", "/run/x/../a", true},
		{"unix:///run/a", "unix:///run/b", false},
		{"unix:///run/a", ":80", false},
	} {
		a, okA := listenerOf(c.a)
		b, okB := listenerOf(c.b)
		if !okA || !okB || a.meets(b) != c.want || b.meets(a) != c.want {
			t.Errorf("%s (%v) and %s (%v): %v, want %v", c.a, okA, c.b, okB, a.meets(b), c.want)
		}
	}
	for _, text := range []string{"", "127.0.0.1:0", "tcp://[::]:0", "here", "127.0.0.1:x", "127.0.0.1:99999", "unix://"} {
		if _, ok := listenerOf(text); ok {
			t.Errorf("%q can meet another one", text)
		}
	}
}
