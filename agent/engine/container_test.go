package engine_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
)

func init() {
	roles["hidden daemon"] = hiddenDaemonRole
	roles["unseen"] = unseenRole
}

// hiddenDaemonRole is a daemon in a PID namespace of its own. For each line that it reads it
// says what is held.
func hiddenDaemonRole(args []string) {
	store, err := blocks.Open(blocks.Config{Capacity: 8 << 20, Agent: [16]byte{1}, Incarnation: 2})
	childFail(err)
	srv, err := engine.Listen(engine.Config{Path: args[0], Tenants: []string{"acme"}, Agent: [16]byte{1}, Incarnation: 2, Store: store, Host: newHost(store)})
	childFail(err)
	go func() { _ = srv.Serve() }()
	say("serving")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		store.Step(blocks.Input{})
		st := store.Stats()
		say(fmt.Sprintf("%d holds, %d orphans, %d sessions", st.Holds, st.Orphans, srv.Stats().Sessions))
	}
}

// unseenRole takes a hold of a daemon that does not see its process, closes its
// socket and waits to be killed.
func unseenRole(args []string) {
	e, err := client.DialEngine(ctx, args[0], groupOptions(7))
	childFail(err)
	ns, err := e.Open(ctx, manifest("acme"))
	childFail(err)
	if args[1] == "process" {
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		childFail(err)
		childFail(e.Process(ctx, fd))
		childFail(unix.Close(fd))
	}
	if errs := e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("a"), Body: body(1, 1000)}}); !errors.Is(errs[0], wire.CodeExists) {
		childFail(errs[0])
	}
	l, err := e.Acquire(ctx, ns, []wire.Key{keyOf("a")}, client.AcquireOptions{Hold: true})
	childFail(err)
	childFail(l.Blocks[0].Err)
	l.Release()
	all, err := e.LoadAll(ctx, ns, []wire.Key{keyOf("a")}, client.LoadOptions{Hold: true}) // as ACQUIRE
	childFail(err)
	childFail(all.Blocks[0].Err)
	childFail(e.Close())
	say("holding")
	untilTold()
}

// An engine whose process number means nothing to the daemon, as in another container,
// holds blocks until its process is gone: the kernel says which that is, or the engine
// by PROCESS.
func TestAHoldOfAProcessInAnotherNamespace(t *testing.T) {
	path := tempDir(t) + "/s"
	d := &child{cmd: exec.Command("/proc/self/exe")}
	d.cmd.Env = append(os.Environ(), childVar+"="+strings.Join([]string{"hidden daemon", path}, "\x1f"))
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	in, err := d.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewReader(out)
	if err := d.cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skip("a PID namespace needs privileges")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	d.expect(t, "serving")
	until := func(want string) {
		t.Helper()
		for {
			if _, err := io.WriteString(in, "\n"); err != nil {
				t.Fatal(err)
			}
			got, err := d.out.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(got) == want {
				return
			}
		}
	}
	for _, how := range []string{"kernel", "process"} {
		if how == "kernel" && !peerPidfd(t) {
			continue
		}
		c := spawn(t, "unseen", path, how)
		c.expect(t, "holding")
		until("1 holds, 1 orphans, 0 sessions")
		c.kill()
		until("0 holds, 0 orphans, 0 sessions")
	}
}

// peerPidfd tells whether this kernel knows a peer's process (Linux 6.5).
func peerPidfd(t *testing.T) bool {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	fd, err := unix.GetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}
