package agent

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"meridian/agent/adminpb"
)

// knock connects to the admin socket and says nothing.
func knock(t *testing.T, path string) net.Conn {
	t.Helper()
	var c net.Conn
	until(t, "the socket takes one more", func() (ok bool) { // its queue is short
		var err error
		if c, err = (&net.Dialer{}).DialContext(t.Context(), "unix", path); err != nil && !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (l *adminListener) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// Silent connections, however many, keep nobody from the admin API.
func TestSilentConnectionsOfTheAdminSocketMakeRoom(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	for range 3 * maxAdminConns {
		knock(t, n.cfg.Admin.Socket)
	}
	for range 3 {
		if _, err := n.adminClient(t).Status(t.Context(), &adminpb.StatusRequest{}); err != nil {
			t.Error(err)
		}
	}
}

func TestAConnectionWithACallThatRunsKeepsItsPlace(t *testing.T) {
	ln, err := listenPrivate(filepath.Join(shortDir(t), "a"))
	if err != nil {
		t.Fatal(err)
	}
	l := boundAdmin(ln)
	t.Cleanup(func() { _ = l.Close() })
	accept := func() (client net.Conn, in *adminConn) {
		client = knock(t, ln.Addr().String())
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return client, c.(*adminConn)
	}
	works, in := accept()
	first, second := in.call(), in.call()
	rests, idle := accept()
	idle.call()()
	second()
	for range 2 * maxAdminUID {
		accept()
	}
	if got := l.held(); got != maxAdminUID {
		t.Errorf("one user has %d connections, want %d", got, maxAdminUID)
	}
	if _, err := in.Write([]byte("x")); err != nil {
		t.Error("the one whose call runs was cut: ", err)
	}
	if n, err := works.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Error(n, err)
	}
	// One that rests goes after all silent ones; there were enough of these.
	if _, err := idle.Write([]byte("x")); err != nil {
		t.Error("the one that rests was cut before the silent ones: ", err)
	}
	first()
	_ = rests.Close()
	_ = in.Close()
	if got := l.held(); got != maxAdminUID-1 {
		t.Errorf("%d places are held after one has gone, want %d", got, maxAdminUID-1)
	}
}

// With a call that runs for each, a newcomer is closed, and the others stay.
func TestWhereEachConnectionWorksANewOneIsClosed(t *testing.T) {
	ln, err := listenPrivate(filepath.Join(shortDir(t), "a"))
	if err != nil {
		t.Fatal(err)
	}
	l := boundAdmin(ln)
	for range maxAdminUID {
		knock(t, ln.Addr().String())
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.(*adminConn).call()
	}
	more := knock(t, ln.Addr().String())
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	if err := more.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := more.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the newcomer was not closed: %v", err)
	}
	_ = l.Close()
	if err := <-ended; err == nil {
		t.Error("the newcomer was let in")
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
