package dirfabric

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"meridian/fabric"
	"meridian/fabric/fabrictest"
	"meridian/wire"
)

// openDir opens a directory of the test's own.
func openDir(t *testing.T, quota uint64) (*Dir, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "blocks")
	return reopen(t, path, quota), path
}

func reopen(t *testing.T, path string, quota uint64) *Dir {
	t.Helper()
	d, err := Open(t.Context(), "attic", path, quota)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestContract(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		d, path := openDir(t, 1<<30)
		return fabrictest.Harness{
			Fabric: d,
			NS:     wire.Namespace{1, 2, 3},
			Damage: func(it fabric.Item) error { return flip(filepath.Join(path, fileName(it.H)), -1) },
			Leaks: func() error {
				files, err := os.ReadDir(path)
				if err == nil && len(files)+int(d.used) != 1 { // the lock
					err = fmt.Errorf("%d files and %d bytes are left", len(files)-1, d.used)
				}
				return err
			},
		}
	})
}

// flip turns a bit of a file; a negative place counts from the end.
func flip(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[(at+len(b))%len(b)] ^= 0x10
	return os.WriteFile(path, b, 0o600)
}
