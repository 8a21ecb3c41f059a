package realpart

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// recorder is a test that may end without ending this one.
type recorder struct {
	testing.TB
	failed, skipped string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatal(a ...any) {
	if err, ok := a[0].(error); ok {
		a[0] = err.Error()
	}
	r.failed = a[0].(string)
	runtime.Goexit()
}
func (r *recorder) Skip(a ...any) {
	r.skipped = a[0].(string)
	runtime.Goexit()
}

func (r *recorder) run(f func(testing.TB)) *recorder {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

func TestAMissingPartFailsUnderCIAndIsSkippedElsewhere(t *testing.T) {
	missing := errors.New("no such part")
	for _, c := range []struct {
		ci, fails, skips string
		err              error
	}{
		{"", "", "", nil},
		{"", "", "no such part; do this", missing},
		{"", "broken", "", errors.New("broken")},
		{"true", "no such part; do this", "", missing},
		{"true", "broken", "", errors.New("broken")},
	} {
		t.Setenv("CI", c.ci)
		r := (&recorder{TB: t}).run(func(t testing.TB) { Need(t, c.err, missing, "do this") })
		if !strings.Contains(r.failed, c.fails) || !strings.Contains(r.skipped, c.skips) || (r.failed == "") != (c.fails == "") || (r.skipped == "") != (c.skips == "") {
			t.Errorf("%+v: failed %q, skipped %q", c, r.failed, r.skipped)
		}
	}
}

func TestPackagesThatAreNotInstalledAreNamedWithWhatInstallsThem(t *testing.T) {
	t.Setenv("CI", "")
	r := (&recorder{TB: t}).run(func(t testing.TB) { Packages(t, "no-such-name") })
	if !strings.Contains(r.skipped, "internal/ci/python.sh no-such-name") {
		t.Errorf("%q", r.skipped)
	}
	if _, err := os.Stat(filepath.Join(Root(t), "internal", "realpart")); err != nil {
		t.Error(err)
	}
}
