// Package portable is a llama-server for any x86-64 processor with AVX2: the
// Python package xllamacpp, which has llama-server's HTTP server in a library, and
// a launcher that takes llama-server's own flags. Put writes the launcher into a
// folder of Python packages; the path that it returns is used like a llama-server
// binary.
//
// It imports the standard library only, and never starts a process.
package portable

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed llama-server.py
var launcher []byte

// Package is the name of the Python package, and of its folder.
const Package = "xllamacpp"

// ErrMissing says that a folder does not have the package.
var ErrMissing = errors.New("no Python package " + Package)

// Put writes the launcher to dir/bin/llama-server, unless it is there already, and
// returns its path. The package must be in dir, as pip with --target puts it there.
func Put(dir string) (string, error) {
	if info, err := os.Stat(filepath.Join(dir, Package)); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%w in %s", ErrMissing, dir)
	}
	path := filepath.Join(dir, "bin", "llama-server")
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, launcher) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, replace(path, launcher)
}

// replace writes a program in one step: another process may be about to start it.
func replace(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
