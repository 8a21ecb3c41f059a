// Package etcdnode runs a real etcd of one member for tests. It imports "testing" and
// is for test binaries only.
package etcdnode

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/internal/realpart"
	"meridian/internal/testlog"
)

// patience bounds a start on a busy machine.
const patience = time.Minute

// Node is a server on the loopback.
type Node struct {
	Endpoint string // HOST:PORT

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	done chan struct{}
	log  *testlog.Buffer
}

// Start starts one with an empty store. It ends with the test.
func Start(t testing.TB, args ...string) *Node {
	t.Helper()
	n := &Node{t: t, args: append([]string{"--data-dir", filepath.Join(t.TempDir(), "etcd"), "--listen-peer-urls", "http://127.0.0.1:0", "--unsafe-no-fsync"}, args...)}
	t.Cleanup(n.Stop)
	for range 5 { // another process may take the port first
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n.Endpoint = l.Addr().String()
		_ = l.Close()
		if n.Run() {
			return n
		}
	}
	t.Fatalf("etcd does not start:\n%s", n.log.String())
	return nil
}

// Run starts the server at its endpoint, with what it has stored, and says whether it
// answers.
func (n *Node) Run() bool {
	n.t.Helper()
	url := "http://" + n.Endpoint
	n.log, n.done = &testlog.Buffer{}, make(chan struct{})
	n.cmd = exec.Command(realpart.Etcd(n.t), append([]string{"--listen-client-urls", url, "--advertise-client-urls", url}, n.args...)...)
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(n.cmd, n.done)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		select {
		case <-n.done:
			return false
		case <-time.After(20 * time.Millisecond):
		}
		if strings.Contains(n.log.String(), "serving insecure client requests") {
			return true
		}
	}
	n.Stop()
	return false
}

// Pause stops the process: it answers nothing.
func (n *Node) Pause() { _ = n.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets it go on.
func (n *Node) Resume() { _ = n.cmd.Process.Signal(syscall.SIGCONT) }

// Stop ends the server at once.
func (n *Node) Stop() {
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
		<-n.done
	}
}
