package client

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"meridian/agent/adminpb"
)

type statusServer struct {
	adminpb.UnimplementedAdminServer
}

func (statusServer) Status(context.Context, *adminpb.StatusRequest) (*adminpb.StatusResponse, error) {
	return &adminpb.StatusResponse{Name: "decode-1", Ready: true}, nil
}

func (statusServer) StatBlock(_ context.Context, r *adminpb.StatBlockRequest) (*adminpb.Block, error) {
	return nil, adminpb.Error(&adminpb.ErrorDetail{Code: 100, Name: "ABSENT"}, "block "+r.GetKey()+": ABSENT")
}

// serve starts an admin server on a socket of its own and returns its path.
func serve(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	adminpb.RegisterAdminServer(s, statusServer{})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return path
}

func TestDialAdminTakesAPathOrAURL(t *testing.T) {
	path := serve(t)
	for _, target := range []string{path, "unix://" + path} {
		a, err := DialAdmin(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		r, err := a.Status(t.Context(), &adminpb.StatusRequest{})
		if err != nil || r.GetName() != "decode-1" || !r.GetReady() {
			t.Errorf("%s: %v, %v", target, r, err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestErrorDetailsArrive(t *testing.T) {
	a, err := DialAdmin(t.Context(), serve(t))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	_, err = a.StatBlock(t.Context(), &adminpb.StatBlockRequest{Key: "ab"})
	if d := adminpb.Detail(err); d.GetCode() != 100 || d.GetName() != "ABSENT" {
		t.Errorf("detail %v of %v", d, err)
	}
}

func TestDialAdminSaysWhyNot(t *testing.T) {
	if _, err := DialAdmin(t.Context(), filepath.Join(t.TempDir(), "none.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent socket: %v", err)
	}
	for target, want := range map[string]string{"tcp://127.0.0.1:1": "Unix socket", "": "no path", "unix://": "no path"} {
		if _, err := DialAdmin(t.Context(), target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", target, err, want)
		}
	}
}

func TestRuntimeDirIsTheSameForDaemonAndClient(t *testing.T) {
	env := func(v string) func(string) string { return func(string) string { return v } }
	t.Setenv("TMPDIR", "/var/tmp")
	for _, c := range []struct {
		uid  int
		xdg  string
		want string
	}{
		{0, "/run/user/0", "/run/meridian"},
		{1000, "/run/user/1000", "/run/user/1000/meridian"},
		{1000, "", "/var/tmp/meridian-1000"},
		{1000, "relative", "/var/tmp/meridian-1000"},
	} {
		if got := runtimeDir(env(c.xdg), c.uid); got != c.want {
			t.Errorf("uid %d, XDG_RUNTIME_DIR %q: %s, want %s", c.uid, c.xdg, got, c.want)
		}
	}
}
