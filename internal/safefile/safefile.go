package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// SpecialError says that a path names something that must not be replaced by a
// regular file.
type SpecialError struct {
	Path string
	Kind string // such as "a device"
}

// Error names the path, what is there, and what would do.
func (e *SpecialError) Error() string {
	return fmt.Sprintf("%s is %s: name a regular file, or one that does not exist yet", e.Path, e.Kind)
}

// Write puts data into the file at path, with mode, instead of what it held. A
// reader sees the old content or the new one, never a part. Anything but a
// regular file at path is a *SpecialError and stays as it is.
func Write(path string, data []byte, mode fs.FileMode) error {
	if err := Check(path); err != nil {
		return err
	}
	return place(path, data, mode, os.Rename)
}

// Create is Write for a file that must not be there yet: one that is there
// matches fs.ErrExist and stays as it is. Of two callers at the same time one
// creates it.
func Create(path string, data []byte, mode fs.FileMode) error {
	if err := Check(path); err != nil {
		return err
	}
	return place(path, data, mode, os.Link) // unlike rename it refuses an existing name
}

// Check tells before the work whether Write would refuse path.
func Check(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().IsRegular():
		return nil
	}
	return &SpecialError{Path: path, Kind: kindOf(info.Mode())}
}

// Read returns a regular file's content, of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	// Without O_NONBLOCK the open of a pipe that nobody writes to never ends.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat() // of what was opened: the name may mean another file by now
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &SpecialError{Path: path, Kind: kindOf(info.Mode())}
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return b, err
}

// Input opens a file that somebody names as input, without waiting for its other end: a
// regular file, or what is open as a descriptor of this process already, such as /dev/stdin,
// of which a read may wait as long as its other end does.
func Input(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (info.IsDir() || !info.Mode().IsRegular() && !isDescriptor(path)) {
		err = fmt.Errorf("%s is %s, and no regular file", path, kindOf(info.Mode()))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isDescriptor says whether a path names an open descriptor of this process.
func isDescriptor(path string) bool {
	path = filepath.Clean(path)
	dir := filepath.Dir(path)
	return path == "/dev/stdin" || dir == "/dev/fd" || dir == "/proc/self/fd"
}

// Open is os.OpenFile for a file that is read and written in parts, in a folder of
// ours: a name that is not a regular file, a symbolic link included, is a
// *SpecialError, before a byte of it is changed and without waiting for its other
// end.
func Open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag&^os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, errors.Join(Check(path), err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &SpecialError{Path: path, Kind: kindOf(info.Mode())}
	}
	if err == nil && flag&os.O_TRUNC != 0 {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// place writes a temporary file in the folder of path, and gives it that name.
func place(path string, data []byte, mode fs.FileMode, name func(from, to string) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	var pe *fs.PathError
	if errors.As(err, &pe) {
		pe.Path = path // the temporary file's name says nothing to anybody
	}
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // after a rename it is gone already
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return name(tmp.Name(), path)
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "no regular file"
}
