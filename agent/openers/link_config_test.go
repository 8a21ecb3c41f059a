package openers

import (
	"os"
	"path/filepath"
	"testing"

	"meridian/agent/config"
)

func loadLink(t *testing.T, text string) (*config.Config, []config.Warning, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), config.FileName)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Options{Path: path, Env: []string{}, Kinds: Kinds()})
}

func TestLanesAreAsManyAsCoresAndAtMostFour(t *testing.T) {
	for text, want := range map[string]int{"": 0, "[link]\nlanes = 7\n": 7} {
		c, _, err := loadLink(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if n := linkOf(c).laneCount(); n != want && (want != 0 || n < 1 || n > 4) {
			t.Errorf("%q: %d lanes", text, n)
		}
	}
}

// A misspelt tenant is told; a peer that shares one, or that has others on purpose, is not.
func TestATenantThatIsAlmostAnEnginesOwnIsTold(t *testing.T) {
	for tenants, want := range map[string]string{
		`["acm"]`:         `"acm" is not in security.tenants, so no engine here shares blocks with this peer; did you mean "acme"?`,
		`["acm", "acme"]`: "",
		`["research"]`:    "",
		`["acme"]`:        "",
	} {
		_, warnings, err := loadLink(t, "[security]\ntenants = [\"acme\"]\n[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n"+
			"[[link.peer]]\nname = \"p\"\naddress = \"tcp://127.0.0.1:1\"\ntenants = "+tenants+"\n")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range warnings {
			got += w.Text
		}
		if got != want {
			t.Errorf("%s: %q, want %q", tenants, got, want)
		}
	}
}
