package blocks

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// A descriptor is taken where it is a pidfd of a process that lives, and closed
// otherwise.
func TestOnlyAPidfdOfALiveProcessIsTaken(t *testing.T) {
	pid, end := child(t)
	live, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := unix.Dup(live)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ProcessOf(live)
	if err != nil || p.Gone() {
		t.Fatalf("a live process: %v", err)
	}
	end()
	if !p.Gone() {
		t.Error("the process has ended")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for name, fd := range map[string]int{"of a process that ended": gone, "file": open(t, "/proc/self/exe"), "directory of a process": open(t, "/proc/self"), "socket": socket(t)} {
		_, err := ProcessOf(fd)
		wantCode(t, name, err, wire.CodeInvalid)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("%s: the descriptor is open still", name)
			_ = unix.Close(fd)
		}
	}
}

func open(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func socket(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// A session that was given its process holds blocks until that has ended. It takes
// one process only.
func TestASessionIsGivenItsProcess(t *testing.T) {
	r := newRig(t, nil)
	r.put("a", bodyOf(keyOf("a"), 4096))
	r.o = r.NewMember(r.NewOwner(0), 0)
	p, second := &fakeProcess{}, &fakeProcess{}
	if !r.SetProcess(r.o, p) || r.SetProcess(r.o, second) || r.SetProcess(12345, second) {
		t.Fatal("one process is taken, once, by a session that is there")
	}
	if p.closed != 0 || second.closed != 2 {
		t.Errorf("closed %d and %d times", p.closed, second.closed)
	}
	r.acquire("a", time.Second, true)
	r.Drop(r.o)
	r.Step(Input{})
	if st := r.Stats(); st.Orphans != 1 || st.Holds != 1 {
		t.Fatalf("the process lives: %+v", st)
	}
	p.gone = true
	r.Step(Input{})
	if st := r.Stats(); st.Orphans != 0 || st.Holds != 0 || p.closed != 1 {
		t.Fatalf("the process is gone: %+v", st)
	}
	if r.NewMember(r.o, 0) != 0 {
		t.Error("a member of an owner that is gone")
	}
}
