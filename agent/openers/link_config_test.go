package openers

import (
	"errors"
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

// A peer entry whose tenants are written wrong has that problem, and no warning besides
// that it has none.
func TestAProblemOfAPeersTenantsIsSaidOnce(t *testing.T) {
	const entry = "[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n[[link.peer]]\nname = \"p\"\n"
	for text, want := range map[string][2]int{
		entry:                            {0, 1},
		entry + "tenant = [\"acme\"]\n":  {1, 0},
		entry + "tenats = [\"acme\"]\n":  {1, 0},
		entry + "tenants = \"acme\"\n":   {1, 0},
		entry + "pks = \"a\"\n":          {1, 1}, // another key's problem
		entry + "tenants = [\"acme\"]\n": {0, 0},
		entry + "tenants = [\"acme\"]\n[[link.peer]]\nname = \"q\"\ntenant = [\"acme\"]\n[[link.peer]]\nname = \"r\"\n": {1, 1},
	} {
		_, warnings, err := loadLink(t, text)
		problems := 0
		if bad, ok := errors.AsType[*config.Error](err); ok {
			problems = len(bad.Problems)
		}
		if problems != want[0] || len(warnings) != want[1] {
			t.Errorf("%s\nproblems: %v\nwarnings: %v", text, err, warnings)
		}
	}
}
