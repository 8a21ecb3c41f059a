package client_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// Where nobody listens the error says so, and speaks of no connection that was.
func TestDiallingNobodySaysThatNothingListens(t *testing.T) {
	t.Chdir(t.TempDir()) // a socket's path is short
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "dead"}); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	for _, path := range []string{"dead", "none"} {
		_, err := client.DialEngine(ctx, path, client.Options{})
		var closed *client.ClosedError
		if !errors.As(err, &closed) || !errors.Is(err, wire.CodeUnreachable) {
			t.Fatalf("%s: %v", path, err)
		}
		if s := err.Error(); !strings.Contains(s, "nothing listens at "+path) || strings.Contains(s, "is over") {
			t.Errorf("%q", s)
		}
	}
}

// A call that a drain cut is told so: DRAINING, after a GOAWAY; LANE_LOST means a
// daemon that went without a word.
func TestACallThatADrainCutIsToldSo(t *testing.T) {
	for _, c := range []struct {
		name string
		bye  bool
		code wire.Code
		says string
	}{{"after GOAWAY", true, wire.CodeDraining, "draining"}, {"without", false, wire.CodeLaneLost, "the daemon has gone"}} {
		t.Run(c.name, func(t *testing.T) {
			path := serve(t, func(d *daemon) {
				d.greet()
				if c.bye {
					d.write(message(link.TypeGoAway, 0, link.GoAway{MS: 1000, Code: wire.CodeDraining}))
				}
				d.next() // and closes
			})
			e, err := client.DialEngine(ctx, path, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			_, err = e.Acquire(ctx, 0, make([]wire.Key, 1), client.AcquireOptions{})
			if !errors.Is(err, c.code) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %s that says %q", err, c.code, c.says)
			}
			if c.code == wire.CodeDraining && errors.Is(err, wire.CodeLaneLost) {
				t.Errorf("%v is LANE_LOST too", err)
			}
		})
	}
}
