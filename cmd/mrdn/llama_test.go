package main

import "testing"

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
