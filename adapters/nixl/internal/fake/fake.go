// Package fake builds a libnixl_capi.so that fails on demand, for tests of what the real
// one does seldom: testdata/fake.c says how. It is never used instead of the real one. It
// imports "testing" and is for test binaries only.
package fake

import (
	"os/exec"
	"path/filepath"
	"testing"

	"meridian/internal/realpart"
)

// Backend is the name of its only plugin.
const Backend = "FAKE"

// Library builds it, without some of its functions, and returns its path.
func Library(t testing.TB, without ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	realpart.Need(t, err, exec.ErrNotFound, "a C compiler builds the fake library (Debian: gcc libc6-dev)")
	path := filepath.Join(t.TempDir(), "libnixl_capi.so")
	args := []string{"-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", path, filepath.Join(realpart.Root(t), "adapters/nixl/internal/fake/testdata/fake.c")}
	for _, name := range without {
		args = append(args, "-Dnixl_capi_"+name+"=left_out_"+name)
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}
