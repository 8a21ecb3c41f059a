package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestWriteReplacesARegularFileAndItsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, c := range []struct {
		text string
		mode fs.FileMode
	}{{"one", 0o644}, {"two", 0o600}} {
		if err := Write(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		info, e := os.Stat(path)
		if err != nil || e != nil || string(b) != c.text || info.Mode().Perm() != c.mode {
			t.Errorf("%q, mode %v, %v, %v; want %q, %v", b, info.Mode(), err, e, c.text, c.mode)
		}
	}
	nothingElse(t, filepath.Dir(path), 1)
}

// Never with the real /dev/null: a fault would cost the machine it.
func TestSpecialFilesAreRefusedAndStay(t *testing.T) {
	dir := t.TempDir()
	fifo, socket, link, folder := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket"), filepath.Join(dir, "link"), filepath.Join(dir, "folder")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := errors.Join(os.Symlink("/dev/null", link), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{fifo: "a pipe", socket: "a socket", link: "a symbolic link", folder: "a folder"}
	if device := filepath.Join(dir, "null"); syscall.Mknod(device, syscall.S_IFCHR|0o600, 1<<8|3) == nil { // needs root
		kinds[device] = "a device"
	}
	for path, kind := range kinds {
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, write := range map[string]func(string, []byte, fs.FileMode) error{"Write": Write, "Create": Create} {
			var special *SpecialError
			if err := write(path, []byte("x"), 0o600); !errors.As(err, &special) || !strings.Contains(err.Error(), path+" is "+kind) {
				t.Errorf("%s to %s: %v", name, path, err)
			}
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was replaced: %v", path, err)
		}
	}
	nothingElse(t, dir, len(kinds))
}

func TestCreateLetsOneOfManyCallersWin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var wg sync.WaitGroup
	var won, lost int
	var mu sync.Mutex
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := Create(path, []byte{byte('a' + i)}, 0o600)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case errors.Is(err, fs.ErrExist):
				lost++
			default:
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if b, err := os.ReadFile(path); won != 1 || lost != 7 || len(b) != 1 || err != nil {
		t.Errorf("%d won, %d lost, content %q, %v", won, lost, b, err)
	}
	nothingElse(t, filepath.Dir(path), 1)
}

func TestAFolderThatIsNotThereIsAnError(t *testing.T) {
	if err := Write(filepath.Join(t.TempDir(), "none", "f"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestReadIsBoundedAndTakesRegularFilesOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Read(path, 5); err != nil || string(b) != "12345" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := Read(path, 4); err == nil {
		t.Error("5 bytes were read with a limit of 4")
	}
	var special *SpecialError
	if _, err := Read("/dev/zero", 4); !errors.As(err, &special) {
		t.Error(err)
	}
}

func nothingElse(t *testing.T, dir string, want int) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != want {
		t.Errorf("%d files in the folder, want %d: %v, %v", len(all), want, all, err)
	}
}

func TestOpenTakesRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("old"), []byte("old content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(at("old"), at("link")), syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "pipe", "folder"} {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR | os.O_CREATE | os.O_TRUNC} {
			f, err := Open(at(name), flag, 0o600)
			var special *SpecialError
			if !errors.As(err, &special) {
				t.Errorf("%s, flags %#x: %v, %v", name, flag, f, err)
			}
		}
	}
	if b, err := os.ReadFile(at("old")); err != nil || string(b) != "old content" {
		t.Errorf("%q, %v: cut through a link", b, err)
	}
	f, err := Open(at("old"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v: not cut", info, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(at("none"), os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestAFolderThatIsNotThereIsToldByTheFilesOwnName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "f")
	if err := Write(path, nil, 0o600); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), " "+path+": ") {
		t.Errorf("%v, want one that names %s", err, path)
	}
}

// An input is a regular file, through a link too, or a descriptor that is open already;
// nothing waits for the other end of a pipe.
func TestInputTakesRegularFilesAndOpenDescriptorsOnly(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("x"), 0o600), os.Symlink(at("file"), at("link")), syscall.Mkfifo(at("pipe"), 0o600), os.Symlink(at("pipe"), at("to-pipe"))); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{at("file"), at("link"), fmt.Sprintf("/dev/fd/%d", r.Fd())} {
		f, err := Input(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != "x" {
			t.Errorf("%s: read %q, %v", path, b, err)
		}
		_ = f.Close()
	}
	for path, kind := range map[string]string{at("pipe"): "a pipe", at("to-pipe"): "a pipe", dir: "a folder", "/dev/null": "a device"} {
		if _, err := Input(path); err == nil || err.Error() != path+" is "+kind+", and no regular file" {
			t.Errorf("%s: error %v", path, err)
		}
	}
	if _, err := Input(at("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
