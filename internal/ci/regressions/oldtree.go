package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// oldTree is a work tree of the old commit, in a temporary folder.
type oldTree struct {
	dir   string
	top   string // the tree that the tests and the shims come from
	shims []shim
}

// checkOut makes the work tree of commit.
func checkOut(ctx context.Context, top, commit string) (*oldTree, error) {
	shims, err := readShims(filepath.Join(top, shimsFolder))
	if err != nil {
		return nil, err
	}
	if _, err := git(ctx, top, "rev-parse", "--quiet", "--verify", commit+"^{commit}"); err != nil {
		return nil, fmt.Errorf("commit %s is not in this clone; a shallow one has it after git fetch --unshallow: %w", commit, err)
	}
	temp, err := os.MkdirTemp("", "regressions-*")
	if err != nil {
		return nil, err
	}
	o := &oldTree{dir: filepath.Join(temp, "old"), top: top, shims: shims}
	if _, err := git(ctx, top, "worktree", "add", "--quiet", "--detach", o.dir, commit); err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	// The tools that setup.sh installed serve both trees.
	if err := os.Symlink(filepath.Join(top, ".tools"), filepath.Join(o.dir, ".tools")); err != nil {
		return nil, errors.Join(err, o.remove())
	}
	return o, nil
}

// remove takes no context: an interrupted run leaves no work tree behind either.
func (o *oldTree) remove() error {
	_, err := git(context.Background(), o.top, "worktree", "remove", "--force", o.dir)
	return errors.Join(err, os.RemoveAll(filepath.Dir(o.dir)))
}

// faulty makes the tree where the fault of a line is, and returns it with the
// further arguments of the go tool there.
func (o *oldTree) faulty(ctx context.Context, l line) (dir string, args []string, err error) {
	if l.change == nil {
		return o.dir, nil, o.prepare(ctx, l)
	}
	arg, err := l.change.overlay(o.top, filepath.Dir(o.dir))
	return o.top, []string{arg}, err
}

// prepare puts the old tree back as the commit has it, so that no line sees
// another's files, and copies the line's files and the shims that they need.
func (o *oldTree) prepare(ctx context.Context, l line) error {
	if _, err := git(ctx, o.dir, "reset", "--quiet", "--hard"); err != nil {
		return err
	}
	if _, err := git(ctx, o.dir, "clean", "--quiet", "-fd", "--exclude=.tools"); err != nil {
		return err
	}
	for _, name := range l.removed {
		if err := os.RemoveAll(filepath.Join(o.dir, name)); err != nil {
			return err
		}
	}
	for _, name := range l.copied {
		if err := copyTree(filepath.Join(o.top, name), filepath.Join(o.dir, name)); err != nil {
			return err
		}
	}
	for _, s := range o.shims {
		if err := s.copyTo(o.dir); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies a file, or a folder with all in it.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, b, info.Mode().Perm())
	})
}
