package identity

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/zeebo/blake3"
)

// Source is what a llama-server is started with.
type Source struct {
	Server string
	Model  string
	Args   []string // beyond those that the node sets
	Env    []string // of the child
}

// Files are those of a Source, held open.
type Files struct {
	src    Source
	server *file
	model  []*file
	args   map[string]*file // by the path that an argument names
}

// Open opens the server, the model's shards and each file that an argument names,
// where it may change KV.
func Open(src Source) (_ *Files, err error) {
	f := &Files{src: src, args: map[string]*file{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.server, err = openFile(src.Server); err != nil {
		return nil, err
	}
	paths, err := shards(src.Model)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		shard, err := openFile(path)
		if err != nil {
			return nil, err
		}
		f.model = append(f.model, shard)
	}
	for _, g := range keyed(src.Args) {
		for _, v := range g.values {
			for _, p := range parts(v) {
				if _, err := f.find(p); err != nil {
					return nil, err
				}
			}
		}
	}
	return f, nil
}

// find opens what a part of an argument's value names; "" where it is no file.
func (f *Files) find(part string) (path string, err error) {
	name, _ := scaled(part)
	for _, path := range []string{part, name} {
		if f.args[path] != nil {
			return path, nil
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		opened, err := openFile(path)
		if err != nil {
			return "", err
		}
		f.args[path] = opened
		return path, nil
	}
	return "", nil
}

func (f *Files) all() []*file {
	var out []*file
	if f.server != nil {
		out = append(out, f.server)
	}
	out = append(out, f.model...)
	for _, a := range f.args {
		out = append(out, a)
	}
	return out
}

// Close closes the files.
func (f *Files) Close() error {
	var errs []error
	for _, o := range f.all() {
		errs = append(errs, o.f.Close())
	}
	return errors.Join(errs...)
}

// Changed says which file is not the one that was opened, or is not as it was.
func (f *Files) Changed() error {
	for _, o := range f.all() {
		if err := o.changed(false); err != nil {
			return err
		}
	}
	return nil
}

// Overwritten says which of the model's files was written since it was opened: a
// server that has mapped it computes with other weights from then on.
func (f *Files) Overwritten() error {
	for _, o := range f.model {
		if err := o.changed(true); err != nil {
			return err
		}
	}
	return nil
}

// Server is what a running server says of itself.
type Server struct {
	Build    string
	Model    string // the path that it serves; empty: it does not say
	Context  int    // tokens a slot
	Adapters []Adapter
}

// Adapter is a LoRA adapter that the server has loaded.
type Adapter struct {
	Path  string
	Scale float64
}

// Identity is what a manifest says of the model and of what computes with it.
type Identity struct {
	Model [32]byte // of the bytes of all of its files
	Build string   // of the server, and of the settings that may change KV
	// Settings are what Build's sum covers, a line each, for logs.
	Settings []string
}

// Of reads the files that are not known and says what the running server is.
func (f *Files) Of(ctx context.Context, c *Cache, s Server) (Identity, error) {
	if s.Model != "" && s.Model != f.src.Model {
		return Identity{}, fmt.Errorf("llama-server serves %s, not %s", s.Model, f.src.Model)
	}
	var id Identity
	rotates, err := f.hashModel(ctx, c, &id)
	if err != nil {
		return id, err
	}
	if err := f.settings(ctx, c, s, rotates, &id); err != nil {
		return id, err
	}
	if id.Build, err = f.build(ctx, c, s.Build); err != nil {
		return id, err
	}
	if len(id.Settings) > 0 {
		all := blake3.Sum256([]byte(strings.Join(id.Settings, "\n")))
		id.Build += fmt.Sprintf(" settings %x", all[:16])
	}
	return id, nil
}

// hashModel is the sum of the one file, or of all sums of a split model's.
func (f *Files) hashModel(ctx context.Context, c *Cache, id *Identity) (rotates bool, err error) {
	var all []byte
	for _, shard := range f.model {
		s, err := c.of(ctx, shard)
		if err != nil {
			return false, err
		}
		rotates = rotates || s.rotates
		id.Model = s.hash
		all = append(all, s.hash[:]...)
	}
	if len(f.model) > 1 {
		b := binary.LittleEndian.AppendUint32([]byte("meridian split gguf\n"), uint32(len(f.model)))
		id.Model = blake3.Sum256(append(b, all...))
	}
	return rotates, nil
}

func (f *Files) settings(ctx context.Context, c *Cache, s Server, rotates bool, id *Identity) error {
	for _, g := range keyed(f.src.Args) {
		line := "arg " + g.name
		for _, v := range g.values {
			text, err := f.value(ctx, c, v)
			if err != nil {
				return err
			}
			line += " " + text
		}
		id.Settings = append(id.Settings, line)
	}
	id.Settings = append(id.Settings, envKey(f.src.Env)...)
	for _, a := range s.Adapters {
		o := f.args[a.Path]
		if o == nil { // nobody knows which bytes it had when it was loaded
			return fmt.Errorf("llama-server has loaded the adapter %q, which llama.args does not name", a.Path)
		}
		sum, err := c.of(ctx, o)
		if err != nil {
			return err
		}
		id.Settings = append(id.Settings, fmt.Sprintf("adapter %x scale %g", sum.hash, a.Scale))
	}
	if rotates {
		id.Settings = append(id.Settings, fmt.Sprintf("context %d", s.Context))
	}
	return nil
}

// value is an argument's value, files by their content.
func (f *Files) value(ctx context.Context, c *Cache, v string) (string, error) {
	var out []string
	for _, p := range parts(v) {
		path, err := f.find(p)
		if err != nil {
			return "", err
		}
		if path != "" {
			s, err := c.of(ctx, f.args[path])
			if err != nil {
				return "", err
			}
			p = fmt.Sprintf("blake3:%x", s.hash) + p[len(path):]
		}
		out = append(out, fmt.Sprintf("%q", p))
	}
	return strings.Join(out, ","), nil
}

// elf is how a program begins that is no script.
var elf = []byte("\x7fELF")

// build is the server's own name of its build. A script may set anything, and a
// build that does not know its name tells nothing: both count by their bytes too.
func (f *Files) build(ctx context.Context, c *Cache, build string) (string, error) {
	head := make([]byte, len(elf))
	if _, err := f.server.f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	unknown := strings.Contains(build, "unknown")
	if !unknown && bytes.Equal(head, elf) {
		return build, nil
	}
	s, err := c.of(ctx, f.server)
	if err != nil {
		return "", err
	}
	if unknown {
		version, err := f.version(ctx)
		if err != nil {
			return "", err
		}
		build = version
	}
	return fmt.Sprintf("%s file %x", build, s.hash[:16]), nil
}

// Bounds of what a server says to --version.
const (
	versionTimeout = 10 * time.Second
	maxVersion     = 120 // bytes
)

// version is the first line that the server says to --version.
func (f *Files) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.src.Server, "--version")
	cmd.Env = f.src.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", f.src.Server, err)
	}
	line, _, _ := strings.Cut(string(bytes.TrimSpace(out)), "\n")
	line = strings.TrimSpace(strings.TrimPrefix(line, "version:"))
	if line == "" || len(line) > maxVersion || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", fmt.Errorf("%s --version: the first line of its answer is no name of at most %d characters: %.40q", f.src.Server, maxVersion, line)
	}
	return line, nil
}
