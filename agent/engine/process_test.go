package engine_test

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/wire"
	"meridian/wire/link"
)

// descriptors counts what this process, which is the daemon, has open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// file is a descriptor that is closed at the end.
func file(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

// pidfds are of a process that lives and of one that has ended.
func pidfds(t *testing.T) (live, gone int) {
	t.Helper()
	c := exec.Command("/proc/self/exe", "-test.run=^$")
	c.Env = append(os.Environ(), childVar+"=idle")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if gone, err = unix.PidfdOpen(c.Process.Pid, 0); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	_ = c.Wait()
	if live, err = unix.PidfdOpen(os.Getpid(), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(live); unix.Close(gone) })
	return live, gone
}

func init() { roles["idle"] = func([]string) { untilTold() } }

// consumed waits until the daemon has read all that was sent.
func (r *raw) consumed() {
	r.t.Helper()
	raw, err := r.c.SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	for left := 1; left > 0; runtime.Gosched() {
		if e := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }); e != nil || err != nil {
			r.t.Fatal(e, err)
		}
	}
}

// Of PROCESS a pidfd of a process that lives is taken. Whatever else comes, with it or
// with any other frame, is refused where there is an answer, and closed.
func TestWhatComesWithProcess(t *testing.T) {
	live, gone := pidfds(t)
	f, dir := file(t, "/proc/self/exe"), file(t, "/proc/self")
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	n := startNode(t, nil)
	process := func(req uint64) []byte { return message(link.TypeProcess, req, link.Empty{}) }
	ping := func(req uint64) []byte { return message(link.TypePing, req, link.Empty{}) }
	type part struct {
		b   []byte
		fds []int
	}
	before := 0
	for round := range 2 {
		if round == 1 {
			before = descriptors(t)
		}
		for _, c := range []struct {
			name  string
			parts []part
			want  []wire.Code // of requests 1, 3, ...
		}{
			{"a live process", []part{{process(1), []int{live}}}, []wire.Code{wire.CodeOK}},
			{"the same twice", []part{{process(1), []int{live}}, {process(3), []int{live}}}, []wire.Code{wire.CodeOK, wire.CodeOK}},
			{"none", []part{{process(1), nil}}, []wire.Code{wire.CodeInvalid}},
			{"a file", []part{{process(1), []int{f}}}, []wire.Code{wire.CodeInvalid}},
			{"a directory of a process", []part{{process(1), []int{dir}}}, []wire.Code{wire.CodeInvalid}},
			{"a socket", []part{{process(1), []int{socket}}}, []wire.Code{wire.CodeInvalid}},
			{"a process that ended", []part{{process(1), []int{gone}}}, []wire.Code{wire.CodeInvalid}},
			{"two", []part{{process(1), []int{live, live}}}, []wire.Code{wire.CodeInvalid}},
			{"as many as there can be", []part{{process(1), slices.Repeat([]int{live}, 253)}}, []wire.Code{wire.CodeInvalid}},
			{"with another frame", []part{{ping(1), []int{live}}, {process(3), nil}}, []wire.Code{wire.CodeOK, wire.CodeInvalid}},
			{"two frames in one message", []part{{append(process(1), ping(3)...), []int{live}}}, []wire.Code{wire.CodeInvalid, wire.CodeOK}},
			{"behind another frame in one message", []part{{append(ping(1), process(3)...), []int{live}}}, []wire.Code{wire.CodeOK, wire.CodeOK}},
			{"with the first byte of a frame in parts", []part{{process(1)[:3], []int{live}}, {process(1)[3:], nil}}, []wire.Code{wire.CodeOK}},
			{"with a later byte", []part{{process(1)[:3], nil}, {process(1)[3:], []int{live}}}, []wire.Code{wire.CodeInvalid}},
			{"twice for one frame", []part{{process(1)[:3], []int{live}}, {process(1)[3:], []int{live}}}, []wire.Code{wire.CodeInvalid}},
		} {
			r, _ := n.join(t, member{agent: 7, inc: 1})
			for i, p := range c.parts {
				var oob []byte
				if len(p.fds) > 0 {
					oob = unix.UnixRights(p.fds...)
				}
				if i > 0 {
					r.consumed()
				}
				if _, _, err := r.c.WriteMsgUnix(p.b, oob, nil); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range c.want {
				if e := r.end(r.next(), uint64(2*i+1)); e.Code != want || (e.Text == "") != (want == wire.CodeOK) {
					t.Errorf("%s: request %d ended %s (%s), want %s", c.name, 2*i+1, e.Code, e.Text, want)
				}
			}
			_ = r.c.Close()
			n.wait(1)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}
