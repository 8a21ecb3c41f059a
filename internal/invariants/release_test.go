package invariants_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"meridian/internal/invariants"
)

// function is how the line table of a binary names what is compiled of this package.
var function = []byte("meridian/internal/invariants.")

// The daemon that is released is built without the tag: no instruction, no
// variable and no text of this package is in it.
func TestAReleaseBuildHasNothingOfThisPackage(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "meridiand")
	cmd := exec.Command("go", "build", "-ldflags=-w", "-o", bin, "meridian/cmd/meridiand")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range [][]byte{function, []byte("invariants: "), []byte("released first by")} {
		if at := bytes.Index(b, what); at >= 0 {
			t.Errorf("the release has %q", b[max(at-40, 0):at+80])
		}
	}
}

// The test above would see a function, were there one.
func TestABuildWithTheTagNamesTheFunctionsOfThisPackage(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("SKIPPED: built without -tags invariants")
	}
	invariants.Overwrite(make([]byte, 1))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, append(function, "Overwrite"...)) {
		t.Error("this test's binary does not name Overwrite")
	}
}
