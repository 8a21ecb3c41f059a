package socketfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"meridian/internal/testbed"
)

func tempPath(t *testing.T) string {
	return filepath.Join(testbed.ShortDir(t), "s")
}

func listen(t *testing.T, path string) *File {
	t.Helper()
	f, err := Listen(path, 0o600, 4)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestALiveSocketIsRefusedAndADeadOneReplaced(t *testing.T) {
	path := tempPath(t)
	f := listen(t, path)
	var inUse *InUseError
	if _, err := Listen(path, 0o600, 4); !errors.As(err, &inUse) || inUse.Path != path {
		t.Errorf("a socket in use: %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st, err)
	}
	// The process dies: descriptor and lock go, both files stay.
	_ = syscall.Close(f.FD)
	_ = f.lock.Close()
	again := listen(t, path)
	defer func() { _ = syscall.Close(again.FD) }()
	if err := again.Remove(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{path, path + ".lock"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

func TestWhatIsNoSocketIsNotRemoved(t *testing.T) {
	path := tempPath(t)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	var inUse *InUseError
	if _, err := Listen(path, 0o600, 4); !errors.As(err, &inUse) {
		t.Errorf("a file: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// A file that somebody has put in our place is theirs.
func TestRemoveLeavesAnothersFile(t *testing.T) {
	path := tempPath(t)
	f := listen(t, path)
	defer func() { _ = syscall.Close(f.FD) }()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another's file is gone: %v", err)
	}
}

func TestASocketThatSomebodyListensOnWithoutALockIsRefused(t *testing.T) {
	path := tempPath(t)
	f := listen(t, path)
	defer func() { _ = syscall.Close(f.FD) }()
	_ = f.lock.Close()
	var inUse *InUseError
	if _, err := Listen(path, 0o600, 4); !errors.As(err, &inUse) {
		t.Errorf("a live socket without its lock: %v", err)
	}
}

func TestANetListenerAcceptsAndTakesItsFileAlong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenNet(path, 0o600, 4)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := ListenNet(path, 0o600, 4); err == nil {
		t.Error("a socket that is in use was taken over")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("accepted after Close")
	}
}
