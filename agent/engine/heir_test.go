package engine_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

func init() { roles["testator"] = testatorRole }

// testatorRole connects, and leaves its connection to who has the other end of its
// descriptor 3.
func testatorRole(args []string) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: args[0], Net: "unix"})
	childFail(err)
	f, err := c.File()
	childFail(err)
	childFail(unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0))
	say("passed")
	untilTold()
}

// inherited is a connection that a process of its own has made: this process has it as
// a child would that outlives who connected.
func (n *node) inherited(t *testing.T) (*child, *raw) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	theirs := os.NewFile(uintptr(p[1]), "pair")
	defer theirs.Close()
	c := spawnWith(t, theirs, "testator", n.path)
	c.expect(t, "passed")
	oob := make([]byte, unix.CmsgSpace(4))
	_, got, _, _, err := unix.Recvmsg(p[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.ParseSocketControlMessage(oob[:got])
	if err != nil || len(m) != 1 {
		t.Fatalf("%d control messages, %v", len(m), err)
	}
	fds, err := unix.ParseUnixRights(&m[0])
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "inherited")
	defer f.Close()
	fc, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fc.Close() })
	return c, &raw{t: t, c: fc.(*net.UnixConn), buf: make([]byte, 64<<10)}
}

// greet says HELLO, and opens acme's namespace by request 1.
func (r *raw) greet() (ns uint16) {
	r.t.Helper()
	r.write(hello())
	if got := r.next(); got.f.Type != link.TypeHello {
		r.t.Fatalf("%s instead of HELLO", got.f.Type)
	}
	return r.open(1, "acme")
}

// hold asks for a hold lease of a.
func (r *raw) hold(req uint64, ns uint16) wire.Code {
	r.t.Helper()
	_, e := r.ask(req, message(link.TypeAcquire, req, link.Acquire{DeadlineMS: 1000, LeaseMS: 1000, Hold: true, Items: []link.Want{{NS: ns, Key: keyOf("a")}}}))
	return e.Code
}

// Hold leases end with the process that connected, although another one has its
// socket and goes on; that one gets none.
func TestHoldsEndWithTheProcessThatConnectedWhoeverHasItsSocket(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
	c, heir := n.inherited(t)
	num := heir.greet()
	if code := heir.hold(3, num); code != wire.CodeOK {
		t.Fatalf("a hold while the process lives: %s", code)
	}
	_, timed := heir.lease(5, num, "a", false)
	n.store.Step(blocks.Input{})
	if st := n.store.Stats(); st.Holds != 1 {
		t.Fatalf("%d holds of a process that lives", st.Holds)
	}
	c.kill()
	n.store.Step(blocks.Input{})
	if st := n.store.Stats(); st.Holds != 0 || st.HoldBytes != 0 || st.Leases != 1 {
		t.Errorf("the process has ended: %d holds, %d bytes, %d leases; want the timed one alone", st.Holds, st.HoldBytes, st.Leases)
	}
	if code := heir.hold(7, num); code != wire.CodeUnsupported {
		t.Errorf("a hold in the name of a process that has ended: %s", code)
	}
	if code := heir.renew(9, timed); code != wire.CodeOK {
		t.Errorf("the rest of the session goes on, and RENEW says %s", code)
	}
}

// Who connected is looked for when the connection comes. Between that and HELLO the
// process may end, and its number be given to another one, whose life is nobody's but
// its own.
func TestAReusedProcessNumberKeepsNoHold(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
	c, heir := n.inherited(t)
	for n.srv.Stats().Sessions != 2 { // the connection has been accepted
	}
	c.kill()
	other := spawnAs(t, c.cmd.Process.Pid)
	defer other.kill()
	num := heir.greet()
	if code := heir.hold(3, num); code != wire.CodeUnsupported {
		t.Errorf("a hold in the name of a process that has ended: %s", code)
	}
	_ = heir.c.Close()
	n.wait(1)
	if st := n.store.Stats(); st.Holds != 0 || st.Orphans != 0 {
		t.Errorf("%d holds and %d owners are left for a process that never connected", st.Holds, st.Orphans)
	}
}

// spawnAs starts a process with a number that was another's, where this may be chosen.
func spawnAs(t *testing.T, pid int) *child {
	t.Helper()
	for range 200 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(fmt.Sprint(pid-1)), 0); err != nil {
			t.Skipf("the number of the next process cannot be chosen: %v", err)
		}
		if c := spawn(t, "idle"); c.cmd.Process.Pid == pid {
			return c
		} else {
			c.kill()
		}
	}
	t.Skip("other processes began at the same time, each time")
	return nil
}

// PROCESS names the engine's process where the kernel does not: not another one in the
// place of who connected and has ended, as one that lives as long as the machine.
func TestProcessNamesNoHeir(t *testing.T) {
	live, _ := pidfds(t)
	for _, c := range []struct {
		err           error
		process, hold wire.Code
	}{
		{unix.ESRCH, wire.CodeInvalid, wire.CodeUnsupported},
		{unix.ENOPROTOOPT, wire.CodeOK, wire.CodeOK},
	} {
		n := startNode(t, func(_ *blocks.Config, e *engine.Config) {
			e.Process = func(int, int) (blocks.Process, error) { return nil, c.err }
		})
		e, ns := n.open(t)
		put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
		r, _ := n.join(t, member{agent: 7, inc: 1})
		num := r.open(1, "acme")
		if _, _, err := r.c.WriteMsgUnix(message(link.TypeProcess, 3, link.Empty{}), unix.UnixRights(live), nil); err != nil {
			t.Fatal(err)
		}
		if e := r.end(r.next(), 3); e.Code != c.process {
			t.Errorf("%v: PROCESS ended %s (%s), want %s", c.err, e.Code, e.Text, c.process)
		}
		code, lease := r.lease(5, num, "a", true)
		if code != c.hold {
			t.Errorf("%v: a hold is %s, want %s", c.err, code, c.hold)
		}
		if code == wire.CodeOK {
			r.release(7, lease)
		}
	}
}
