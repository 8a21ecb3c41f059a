package capi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fileNames are the library's: that of releases until now, and the one with a version
// that is proposed.
var fileNames = []string{"libnixl_capi.so.0", "libnixl_capi.so"}

// ErrNotFound is matched where no library was found.
var ErrNotFound = errors.New("libnixl_capi.so was not found")

// Load finds the library and opens it. where is its file, a folder that has it or one
// that Python packages are installed in; "" looks where such packages usually are, and
// where the dynamic linker does. env is the environment.
func Load(where string, env func(string) string) (*Library, error) {
	if where != "" {
		found := within(where)
		if len(found) == 0 {
			return nil, fmt.Errorf("%w: neither %s nor the wheels' folder .nixl_cu*.mesonpy.libs is in %s", ErrNotFound, strings.Join(fileNames, " nor "), where)
		}
		return Open(found[0])
	}
	var looked []string
	for _, dir := range packages(env) {
		if found := within(dir); len(found) > 0 {
			return Open(found[0])
		}
		looked = append(looked, dir)
	}
	missing := "the dynamic linker does not find it"
	for _, name := range fileNames { // by name, the dynamic linker looks for it
		l, err := Open(name)
		if err == nil {
			return l, nil
		}
		if !strings.Contains(err.Error(), name+": cannot open shared object file") { // it is there, and lacks something
			missing = err.Error()
		}
	}
	return nil, fmt.Errorf("%w: %s, and no NIXL wheel is in %s", ErrNotFound, missing, orNone(looked))
}

func orNone(dirs []string) string {
	if len(dirs) == 0 {
		return "a folder of Python packages, of which there is none"
	}
	return strings.Join(dirs, ", ")
}

// within are the libraries in a folder, or the file itself. The wheels keep theirs in a
// folder of their own beside the packages; what it needs is found from there.
func within(where string) []string {
	if info, err := os.Stat(where); err != nil || !info.IsDir() {
		if err != nil {
			return nil
		}
		return []string{where}
	}
	var out []string
	for _, folder := range []string{"", ".nixl_cu*.mesonpy.libs"} {
		for _, name := range fileNames {
			found, _ := filepath.Glob(filepath.Join(escape(where), folder, name)) // the pattern is right
			slices.Reverse(found)                                                 // the newest CUDA first, as NIXL's own package does
			out = append(out, found...)
		}
	}
	return out
}

// escape makes a folder's name one that Glob takes as it is.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// packages are the folders of Python packages: those that PYTHONPATH names, those of the
// virtual environment or of the first python3 in PATH, and this user's.
func packages(env func(string) string) []string {
	out := filepath.SplitList(env("PYTHONPATH"))
	prefixes := []string{env("VIRTUAL_ENV")}
	for _, dir := range filepath.SplitList(env("PATH")) {
		python := filepath.Join(dir, "python3")
		if info, err := os.Stat(python); err != nil || info.IsDir() {
			continue
		}
		prefixes = append(prefixes, filepath.Dir(dir))
		break
	}
	if home := env("HOME"); home != "" {
		prefixes = append(prefixes, filepath.Join(home, ".local"))
	}
	prefixes = append(prefixes, "/usr/local", "/usr")
	for _, prefix := range prefixes {
		if prefix == "" {
			continue
		}
		for _, kind := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(escape(prefix), kind)) // the pattern is right
			slices.Reverse(found)
			out = append(out, found...)
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(out, func(dir string) bool {
		again := seen[dir] || dir == ""
		seen[dir] = true
		return again
	})
}
