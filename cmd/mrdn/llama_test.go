package main

import (
	"os"
	"strings"
	"testing"
)

func TestALlamaServerThatIsWaitedForIsToldWithAWayOut(t *testing.T) {
	for text, want := range map[string]bool{
		"llama-server (pid 7) has not answered: it loads m.gguf, or hangs (for 5s)": true,
		"llama-server (pid 7) has not answered: it loads m.gguf, or hangs":          false,
		"the model's files are being hashed (for 5s)":                               false,
	} {
		if got := stuckHint(text); (got != "") != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// What a flag says is refused before 135 MB are fetched for it.
func TestAFlagThatANodeWouldRefuseFetchesNothing(t *testing.T) {
	s := newShell(t, nil)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing is fetched yet
	for _, c := range []struct{ flag, value, want string }{
		{"--memory", "1", "--memory: \"1\" must be"},
		{"--memory", "0", "--memory: \"0\" must be"},
		{"--slots", "0", "--slots: \"0\" must be"},
		{"--context", "16", "--context: \"16\" must be"},
		{"--threads", "-1", "--threads: \"-1\" must be"},
		{"--decode", "nowhere", "--decode: \"nowhere\""},
		{"--prefill", "192.0.2.1:1", "--prefill: \"192.0.2.1:1\" is beyond loopback"},
		{"--think", "a", "--think \"a\": want"},
	} {
		got := s.run(t, "llama", "up", "--fetch", c.flag, c.value)
		expect(t, got, exitUsage, "", c.want)
		if strings.Contains(got.err, "fetching") {
			t.Errorf("%s %s: %s", c.flag, c.value, got.err)
		}
	}
	if e, err := os.ReadDir(os.Getenv("XDG_CACHE_HOME")); err != nil || len(e) != 0 {
		t.Errorf("%v, %v", e, err)
	}
}
