package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"meridian/agent/adminpb"
)

// adminFace is the gRPC API on its Unix socket.
type adminFace struct {
	srv    *grpc.Server
	health *health.Server
	path   string
	done   chan struct{}
}

func (a *Agent) openFaces(context.Context) (err error) {
	if a.admin, err = a.listenAdmin(a.cfg.Admin.Socket); err != nil {
		return err
	}
	a.ports = append(a.ports, port{"admin", "unix://" + a.cfg.Admin.Socket})
	if a.cfg.Admin.HTTP == "" {
		return nil
	}
	if a.http, err = a.listenHTTP(a.cfg.Admin.HTTP); err != nil {
		return err
	}
	a.ports = append(a.ports, port{"http", "http://" + a.http.ln.Addr().String()})
	return nil
}

func (a *Agent) listenAdmin(path string) (*adminFace, error) {
	ln, err := listenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("admin.socket: %w", err)
	}
	f := &adminFace{srv: grpc.NewServer(grpc.MaxRecvMsgSize(1 << 20)), health: health.NewServer(), path: path, done: make(chan struct{})}
	adminpb.RegisterAdminServer(f.srv, &adminServer{a: a})
	healthpb.RegisterHealthServer(f.srv, f.health)
	reflection.Register(f.srv)
	f.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	a.background(func(ctx context.Context) { f.follow(ctx, a) })
	go func() {
		defer close(f.done)
		if err := f.srv.Serve(ln); err != nil {
			a.log.Error("admin face ended", "err", err)
		}
	}()
	return f, nil
}

// follow keeps the gRPC health service in step with readiness.
func (f *adminFace) follow(ctx context.Context, a *Agent) {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		s := healthpb.HealthCheckResponse_NOT_SERVING
		if len(a.unready()) == 0 {
			s = healthpb.HealthCheckResponse_SERVING
		}
		f.health.SetServingStatus("", s)
		f.health.SetServingStatus(adminpb.Admin_ServiceDesc.ServiceName, s)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (f *adminFace) close() {
	f.srv.Stop()
	<-f.done
}

// listenPrivate listens on a Unix socket that only this user can open. The
// file of a daemon that died is replaced, that of a live one is not.
func listenPrivate(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: another daemon serves this socket", path)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("%s: there is a file that is no socket", path)
	}
	// The socket is made beside its name with the right mode, then renamed, so
	// that nobody else can connect in between.
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return &privateListener{Listener: ln, path: path}, nil
}

// privateListener removes its file when it is closed.
type privateListener struct {
	net.Listener
	path string
}

func (l *privateListener) Close() error {
	return errors.Join(l.Listener.Close(), os.Remove(l.path))
}
