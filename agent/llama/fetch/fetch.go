// Package fetch finds a llama-server and a small model that PyPI has as packages,
// and installs them with pip where they are not there. It runs pip; besides the
// standard library it imports adapters/llamacpp/portable, which makes a llama-server
// of the package. A user with a llama-server and a GGUF file needs none of it.
package fetch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"meridian/adapters/llamacpp/portable"
	"meridian/internal/safefile"
)

// requirements pin both packages by version and hash.
//
//go:embed requirements.txt
var requirements string

// Parts are what a node needs.
type Parts struct {
	Server string // llama-server
	Model  string // GGUF
}

// Dir is the folder that Install fills unless it is told another.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "meridian", "llama"), nil
}

// ErrMissing says that a folder does not have both parts.
var ErrMissing = errors.New("no llama-server and model")

// Find looks into a folder that Install, or pip with --target, has filled, and puts
// the launcher of this build there.
func Find(dir string) (Parts, error) {
	models, err := filepath.Glob(filepath.Join(dir, "*", "*.gguf"))
	if err != nil {
		return Parts{}, err
	}
	if len(models) == 0 {
		return Parts{}, fmt.Errorf("%w in %s", ErrMissing, dir)
	}
	server, err := portable.Put(dir)
	if errors.Is(err, portable.ErrMissing) {
		return Parts{}, fmt.Errorf("%w in %s", ErrMissing, dir)
	}
	return Parts{Server: server, Model: models[0]}, err
}

// Advice is what a user can do who has neither pip nor the packages.
func Advice() string {
	var names []string
	for line := range strings.Lines(requirements) {
		if name, _, ok := strings.Cut(line, " --hash"); ok {
			names = append(names, name)
		}
	}
	return "name a llama-server and a GGUF file with --server and --model, or install " + strings.Join(names, " and ") +
		" from PyPI: mrdn llama up --fetch does it, with python3 and pip"
}

// Install fills dir with pip, whole or not at all, and finds the parts there.
// pip's words go to log.
func Install(ctx context.Context, dir string, log io.Writer) (Parts, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return Parts{}, fmt.Errorf("the prebuilt llama-server is for linux/amd64, and this is %s/%s: name your own with --server", runtime.GOOS, runtime.GOARCH)
	}
	if err := exec.CommandContext(ctx, "python3", "-m", "pip", "--version").Run(); err != nil {
		return Parts{}, fmt.Errorf("python3 with pip is needed to fetch (%w); %s", err, Advice())
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Parts{}, err
	}
	next, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-")
	if err != nil {
		return Parts{}, err
	}
	defer func() { _ = os.RemoveAll(next) }()
	list := filepath.Join(next, "requirements.txt")
	if err := safefile.Write(list, []byte(requirements), 0o644); err != nil {
		return Parts{}, err
	}
	c := exec.CommandContext(ctx, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
		"--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", filepath.Join(next, "packages"), "-r", list)
	c.Env = append(os.Environ(), "PIP_ROOT_USER_ACTION=ignore") // its folder is Meridian's own, so root does no harm
	c.Stdout, c.Stderr = log, log
	if err := c.Run(); err != nil {
		return Parts{}, fmt.Errorf("pip: %w; %s", err, Advice())
	}
	if err := os.RemoveAll(dir); err != nil {
		return Parts{}, err
	}
	if err := os.Rename(filepath.Join(next, "packages"), dir); err != nil {
		return Parts{}, err
	}
	return Find(dir)
}

// Known lists the folders where Find looks for the parts by itself: that of
// Install, and that of a source tree whose tests have run.
func Known() []string {
	var dirs []string
	if dir, err := Dir(); err == nil {
		dirs = append(dirs, dir)
	}
	if wd, err := os.Getwd(); err == nil {
		for dir := wd; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				dirs = append(dirs, filepath.Join(dir, ".tools", "py", "llama"))
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return slices.Clip(dirs)
}

// FindKnown is Find over Known.
func FindKnown() (Parts, error) {
	dirs := Known()
	for _, dir := range dirs {
		if p, err := Find(dir); !errors.Is(err, ErrMissing) {
			return p, err
		}
	}
	return Parts{}, fmt.Errorf("%w in %s; %s", ErrMissing, strings.Join(dirs, ", "), Advice())
}
