package layering

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each `go test -run PATTERN PACKAGES` of docs/claims.md must name a test
// that exists in each of the packages, or the claim has no proof.
func TestEveryClaimNamesTestsThatExist(t *testing.T) {
	const root = "../.."
	doc, err := os.ReadFile(filepath.Join(root, "docs/claims.md"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("`go test -run '?([^' `]+)'? ([^`]+)`")
	claims := command.FindAllStringSubmatch(string(doc), -1)
	if len(claims) < 15 {
		t.Fatalf("only %d commands found in docs/claims.md", len(claims))
	}
	for _, c := range claims {
		pattern, err := regexp.Compile(strings.ReplaceAll(c[1], `\|`, "|"))
		if err != nil {
			t.Errorf("%s: %v", c[0], err)
			continue
		}
		for _, pkg := range strings.Fields(c[2]) {
			if !namesATest(t, filepath.Join(root, pkg), pattern) {
				t.Errorf("%s: %s has no such test", c[0], pkg)
			}
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func namesATest(t *testing.T, dir string, pattern *regexp.Regexp) bool {
	t.Helper()
	found := false
	visit := func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(b), -1) {
			found = found || pattern.MatchString(m[1])
		}
	}
	if rest, deep := strings.CutSuffix(dir, "/..."); deep {
		err := filepath.WalkDir(rest, func(path string, _ os.DirEntry, err error) error {
			visit(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		visit(f)
	}
	return found
}
