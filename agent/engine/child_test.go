package engine_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"meridian/internal/invariants/leak"
)

// childVar names the role in which the test binary is run again as a process of
// its own.
const childVar = "MERIDIAN_ENGINE_TEST_CHILD"

// roles are what a child can be. A role reads its orders from stdin, and says on
// stdout, a line each, where it is.
var roles = map[string]func(args []string){}

func TestMain(m *testing.M) {
	if v := os.Getenv(childVar); v != "" {
		args := strings.Split(v, "\x1f")
		roles[args[0]](args[1:])
		os.Exit(0)
	}
	leak.Main(m)
}

// child is a process of this test binary in some role.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func spawn(t testing.TB, role ...string) *child {
	t.Helper()
	return spawnWith(t, nil, role...)
}

// spawnWith gives the child a descriptor, as number 3.
func spawnWith(t testing.TB, f *os.File, role ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command("/proc/self/exe")}
	c.cmd.Env = append(os.Environ(), childVar+"="+strings.Join(role, "\x1f"))
	c.cmd.Stderr = os.Stderr
	if f != nil {
		c.cmd.ExtraFiles = []*os.File{f}
	}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// expect waits for a line of the child.
func (c *child) expect(t testing.TB, want string) {
	t.Helper()
	got, err := c.out.ReadString('\n')
	if err != nil || strings.TrimSpace(got) != want {
		t.Fatalf("the child said %q (%v), want %q", got, err, want)
	}
}

// kill sends SIGKILL and waits until the process is gone.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

func say(s string) { fmt.Println(s) }

// childFail ends a child loudly.
func childFail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(3)
	}
}

// untilTold blocks a child until its parent closes stdin or is gone.
func untilTold() { _, _ = io.Copy(io.Discard, os.Stdin) }
