package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/zeebo/blake3"
)

// stamp is what a file system says of a file's content.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime time.Time
}

func stampOf(info os.FileInfo) (stamp, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, fmt.Errorf("%s: this system tells no inode", info.Name())
	}
	return stamp{
		dev: st.Dev, ino: st.Ino, size: info.Size(),
		mtime: time.Unix(st.Mtim.Unix()), ctime: time.Unix(st.Ctim.Unix()),
	}, nil
}

// file is one file that is part of the identity, held open so that its inode stays.
type file struct {
	path string
	f    *os.File
	at   stamp
}

func openFile(path string) (*file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	var at stamp
	if err == nil {
		at, err = stampOf(info)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &file{path: path, f: f, at: at}, nil
}

// changed says how the file is no longer what it was when it was opened: the path
// leads elsewhere, or its content was written. overwritten looks at the open file
// only.
func (f *file) changed(overwritten bool) error {
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	now, err := stampOf(info)
	if err != nil {
		return err
	}
	if now.size != f.at.size || !now.mtime.Equal(f.at.mtime) {
		return fmt.Errorf("%s was overwritten", f.path)
	}
	if overwritten {
		return nil
	}
	there, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if now, err = stampOf(there); err != nil {
		return err
	}
	if now.dev != f.at.dev || now.ino != f.at.ino || !now.ctime.Equal(f.at.ctime) {
		return fmt.Errorf("%s was replaced", f.path)
	}
	return nil
}

// racy is how young a change may be for a second one to show the same times: file
// systems count in ticks of some milliseconds, some in seconds.
const racy = 2 * time.Second

// sum is what was read of a file.
type sum struct {
	hash [32]byte
	// rotates: the file names factors of rotation for long contexts, so that KV
	// depends on the context's size.
	rotates bool
}

// Cache keeps the sums of files that have not changed, for one process. Its zero
// value is ready.
type Cache struct {
	mu   sync.Mutex
	sums map[stamp]sum
}

// longFactors is the name of the tensors by which a model rotates long contexts
// differently.
var longFactors = []byte("rope_factors_long")

// of hashes a file, unless it is known.
func (c *Cache) of(ctx context.Context, f *file) (sum, error) {
	c.mu.Lock()
	known, ok := c.sums[f.at]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	began := time.Now()
	out, err := read(ctx, f)
	if err != nil {
		return sum{}, err
	}
	if err := f.changed(true); err != nil {
		return sum{}, err
	}
	if began.Sub(f.at.mtime) > racy && began.Sub(f.at.ctime) > racy {
		c.mu.Lock()
		if c.sums == nil {
			c.sums = map[stamp]sum{}
		}
		c.sums[f.at] = out
		c.mu.Unlock()
	}
	return out, nil
}

// chunk is how much of a file is read at a time.
const chunk = 1 << 20

func read(ctx context.Context, f *file) (out sum, err error) {
	h := blake3.New()
	// The end of a chunk stays in front of the next: a name may lie across both.
	keep := len(longFactors) - 1
	b := make([]byte, keep+chunk)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		n, err := f.f.ReadAt(b[keep:], at)
		_, _ = h.Write(b[keep : keep+n]) // a hash takes all
		out.rotates = out.rotates || bytes.Contains(b[:keep+n], longFactors)
		at += int64(n)
		copy(b, b[n:keep+n])
		switch {
		case errors.Is(err, io.EOF) && at == f.at.size:
			copy(out.hash[:], h.Sum(nil))
			return out, nil
		case errors.Is(err, io.EOF):
			return out, fmt.Errorf("%s has %d bytes, and had %d", f.path, at, f.at.size)
		case err != nil:
			return out, err
		}
	}
}

// shardName is llama.cpp's name of a shard: PREFIX-00001-of-00003.gguf.
var shardName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// maxShards bounds what a name may claim.
const maxShards = 4096

// shards lists the files of a model: one, or all that the first one's name counts.
func shards(model string) ([]string, error) {
	m := shardName.FindStringSubmatch(filepath.Base(model))
	if m == nil {
		return []string{model}, nil
	}
	count, err := strconv.Atoi(m[3])
	if err != nil || count < 1 || count > maxShards {
		return nil, fmt.Errorf("%s: %s shards are not between 1 and %d", model, m[3], maxShards)
	}
	out := make([]string, count)
	for i := range out {
		out[i] = filepath.Join(filepath.Dir(model), fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, count))
	}
	return out, nil
}
