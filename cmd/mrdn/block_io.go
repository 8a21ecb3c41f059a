package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/internal/safefile"
	"meridian/wire"
)

// engine is what put and get need of the engine's socket. A session has one
// namespace, that of the manifest it was made with.
type engine interface {
	Namespace() wire.Namespace
	Put(ctx context.Context, key wire.Key, tier wire.Tier, body []byte) error
	// Get copies a block out. With fetch, a block that is not here is pulled
	// from a peer and not kept.
	Get(ctx context.Context, key wire.Key, fetch bool) (wire.Header, []byte, error)
	Close() error
}

// maxBlockBytes bounds one block of the command line: it is held in memory.
const maxBlockBytes = 1 << 30

// ioFlags are those that put and get share: the socket, and the manifest,
// whose defaults make a put on one daemon and a get on another meet.
type ioFlags struct {
	engine     string
	manifest   wire.Manifest
	blockBytes string
}

func (f *ioFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.engine, "engine", "", "the daemon's engine socket (default: engine.socket of the configuration) [$"+variableNames["engine"]+"]")
	c.Flags().StringVar(&f.manifest.Tenant, "tenant", "default", "tenant of the namespace")
	c.Flags().StringVar(&f.manifest.Model, "model", "mrdn", "model of the namespace")
	c.Flags().StringVar(&f.manifest.Revision, "revision", "", "revision of the model")
	c.Flags().StringVar(&f.manifest.Role, "role", "", "role of the engine")
	c.Flags().StringVar(&f.manifest.Dtype, "dtype", "bytes", "element type")
	c.Flags().StringVar(&f.manifest.Layout, "layout", "raw", "layout of a block")
	c.Flags().StringVar(&f.blockBytes, "block-bytes", "4MiB", "size of a full block; a file may be shorter")
}

// finish completes the manifest.
func (f *ioFlags) finish() error {
	n, err := config.ParseBytes(f.blockBytes)
	if err != nil || n == 0 || n > maxBlockBytes {
		return usage("--block-bytes %q: it must be bytes, above 0 and at most %s", f.blockBytes, config.FormatBytes(maxBlockBytes))
	}
	m := &f.manifest
	m.BlockTokens, m.BlockBytes, m.KVHeads, m.HeadSize = 1, uint32(n), 1, 1
	m.TPSize, m.PPSize, m.DCPSize, m.HashScheme = 1, 1, 1, "blake3"
	if err := m.Check(); err != nil {
		return usage("%v", err)
	}
	return nil
}

// openEngine connects to the engine's socket and opens the namespace.
func (a *app) openEngine(ctx context.Context, f *ioFlags) (engine, error) {
	if err := f.finish(); err != nil {
		return nil, err
	}
	path, err := a.socketOf(f.engine, func(c *config.Config) string { return c.Engine.Socket }, client.DefaultEngineSocket)
	if err != nil {
		return nil, err
	}
	return a.dialEngine(ctx, path, f.manifest)
}

func newBlockPutCmd(a *app) *cobra.Command {
	var f ioFlags
	var tier, hash string
	c := &cobra.Command{
		Use:   "put FILE",
		Short: "Store a file as one block",
		Long: `Stores a file, or standard input when FILE is "-", as one block, and prints its
key. Nothing is split. The key is made from the namespace and --hash, or from
the content; a block that is there already is not stored again. The flags of
the manifest must be the same for the get.`,
		Example:     "  mrdn block put prompt.kv\n  head -c 65536 /dev/urandom | mrdn block put - --tenant acme",
		Args:        exactly("FILE"),
		Annotations: map[string]string{accessKey: writing},
	}
	f.add(c)
	c.Flags().StringVar(&tier, "tier", wire.OutputCritical.String(), "tier: ThinkComplete, ThinkActive, OutputCritical")
	c.Flags().StringVar(&hash, "hash", "", "block hash to make the key from (default: the content's checksum)")
	c.RunE = a.command(func(ctx context.Context, args []string) (result, error) {
		t, err := wire.ParseTier(tier)
		if err != nil {
			return nil, usage("--tier: %v", err)
		}
		if err := f.finish(); err != nil {
			return nil, err
		}
		body, err := a.readBody(ctx, args[0], int64(f.manifest.BlockBytes))
		if err != nil {
			return nil, err
		}
		return a.put(ctx, &f, t, hash, body)
	})
	return c
}

func (a *app) put(ctx context.Context, f *ioFlags, t wire.Tier, hash string, body []byte) (result, error) {
	e, err := a.openEngine(ctx, f)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }()
	sum := wire.SumOf(body)
	of := []byte(hash)
	if hash == "" {
		of = sum[:]
	}
	r := putResult{Length: len(body), Sum: sum.String(), Tier: t.String(), Namespace: e.Namespace().String()}
	key := wire.KeyOf(e.Namespace(), of)
	r.Key = key.String()
	err = e.Put(ctx, key, t, body)
	if errors.Is(err, wire.CodeExists) {
		r.Existed, err = true, nil
	}
	if err != nil {
		return nil, explained(err)
	}
	return r, nil
}

// readBody reads a file or standard input, up to limit.
func (a *app) readBody(ctx context.Context, name string, limit int64) ([]byte, error) {
	open := func() (io.ReadCloser, error) { return openBody(name, limit) }
	if name == "-" {
		name = "standard input"
		open = func() (io.ReadCloser, error) { return io.NopCloser(a.in), nil }
	}
	b, err := readUntil(ctx, name, limit, open)
	if err == nil && int64(len(b)) > limit {
		return nil, tooLong(name, limit)
	}
	return b, err
}

func tooLong(name string, limit int64) error {
	return usage("%s is longer than a block, which is %s: raise --block-bytes", name, config.FormatBytes(uint64(limit)))
}

// openBody opens a file that becomes a block.
func openBody(name string, limit int64) (io.ReadCloser, error) {
	f, err := safefile.Input(name)
	if err != nil {
		return nil, failed("mrdn block put - takes what a pipe or a device has from standard input", "%w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		return f, nil
	case info.Size() > limit:
		err = tooLong(name, limit)
	default:
		return &steady{f, info}, nil
	}
	return nil, errors.Join(err, f.Close())
}

// steady is a regular file of which no part of a change becomes a block: its end is an error
// where it is not what it was when it was opened.
type steady struct {
	*os.File
	was fs.FileInfo
}

func (s *steady) Read(b []byte) (int, error) {
	n, err := s.File.Read(b)
	if errors.Is(err, io.EOF) {
		is, e := s.Stat()
		if e == nil && (is.Size() != s.was.Size() || !is.ModTime().Equal(s.was.ModTime())) {
			e = fmt.Errorf("it was changed while it was read: it had %d bytes, and has %d", s.was.Size(), is.Size())
		}
		if e != nil {
			err = e
		}
	}
	return n, err
}

// readUntil reads what open gives to its end, one byte more than limit at most,
// and returns at the end of ctx whatever the other side of a pipe does. The
// goroutine that still waits for it then ends with the process.
func readUntil(ctx context.Context, name string, limit int64, open func() (io.ReadCloser, error)) ([]byte, error) {
	type answer struct {
		b   []byte
		err error
	}
	done := make(chan answer, 1)
	go func() {
		in, err := open()
		if err != nil {
			done <- answer{nil, err}
			return
		}
		defer func() { _ = in.Close() }()
		b, err := io.ReadAll(io.LimitReader(in, limit+1))
		if err != nil {
			err = failed("", "%s: %w", name, err)
		}
		done <- answer{b, err}
	}()
	select {
	case x := <-done:
		return x.b, x.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s has not ended: %w", name, ctx.Err())
	}
}

// putResult is printed as the key alone, which is what a script wants.
type putResult struct {
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	Length    int    `json:"length"`
	Sum       string `json:"sum"`
	Tier      string `json:"tier"`
	Existed   bool   `json:"existed"`
}

func (r putResult) grid(wide bool) grid {
	if !wide {
		return grid{rows: [][]string{{r.Key}}}
	}
	return grid{rows: [][]string{
		{"key", r.Key}, {"namespace", r.Namespace}, {"length", number(r.Length)}, {"sum", r.Sum}, {"tier", r.Tier}, {"was there", yesNo(r.Existed)},
	}}
}

func newBlockGetCmd(a *app) *cobra.Command {
	var f ioFlags
	var out string
	var local bool
	c := &cobra.Command{
		Use:   "get KEY",
		Short: "Read a block's bytes",
		Long: `Reads a block through the engine's socket and writes its raw bytes to --out or
to standard output. A block that is not here is pulled from a peer that has it,
and not kept. The bytes are checked against the header: exit code 5 when they
do not match, and then nothing is written.`,
		Example:     "  mrdn block get 0f3c... --out prompt.kv\n  mrdn block get 0f3c... --tenant acme | sha256sum",
		Args:        exactly("KEY"),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f.add(c)
	c.Flags().StringVar(&out, "out", "", "file to write to (default: standard output)")
	c.Flags().BoolVar(&local, "local", false, "only if it is here: ask no peer")
	c.RunE = a.command(func(ctx context.Context, args []string) (result, error) {
		key, err := parseKey(args[0])
		if err != nil {
			return nil, err
		}
		e, err := a.openEngine(ctx, &f)
		if err != nil {
			return nil, err
		}
		defer func() { _ = e.Close() }()
		head, body, err := e.Get(ctx, key, !local)
		if err != nil {
			return nil, explained(err)
		}
		if err := head.Check(body); err != nil {
			return nil, integrity("mrdn block verify asks the daemon to look at it", "block %s: %v", short(key.String(), false), err)
		}
		r := getResult{Key: key.String(), Length: len(body), Sum: head.Sum.String(), HeaderTier: head.Tier.String(), File: out}
		if out == "" {
			return bodyResult{r, body}, nil
		}
		if err := safefile.Write(out, body, 0o600); err != nil { // a prompt's KV is as private as the prompt
			return nil, failed("", "%w", err)
		}
		return r, nil
	})
	return c
}

type getResult struct {
	Key        string `json:"key"`
	Length     int    `json:"length"`
	Sum        string `json:"sum"`
	HeaderTier string `json:"header_tier"`
	File       string `json:"file,omitempty"`
}

func (r getResult) grid(bool) grid {
	return grid{rows: [][]string{{"key", r.Key}, {"length", fmt.Sprint(r.Length)}, {"sum", r.Sum}, {"header tier", r.HeaderTier}, {"file", r.File}}}
}

// bodyResult is a block to standard output: raw, or base64 inside JSON.
type bodyResult struct {
	getResult
	Body []byte `json:"body"`
}

func (r bodyResult) bytes() []byte { return r.Body }
