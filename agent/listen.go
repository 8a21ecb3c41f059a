package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"meridian/agent/adminpb"
)

// adminEndpoint is the gRPC API on its Unix socket.
type adminEndpoint struct {
	srv     *grpc.Server
	health  *health.Server
	objects *objectReader
	done    chan struct{}
}

func (a *Agent) openEndpoints(context.Context) (err error) {
	if a.admin, err = a.listenAdmin(a.cfg.Admin.Socket); err != nil {
		return err
	}
	a.addPort("admin", "unix://"+a.cfg.Admin.Socket)
	if a.cfg.Admin.HTTP == "" {
		return nil
	}
	if a.http, err = a.listenHTTP(a.cfg.Admin.HTTP); err != nil {
		return err
	}
	a.addPort("http", "http://"+a.http.ln.Addr().String())
	return nil
}

func (a *Agent) listenAdmin(path string) (*adminEndpoint, error) {
	ln, err := listenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("admin.socket: %w", err)
	}
	ln = boundAdmin(ln)
	e := &adminEndpoint{srv: grpc.NewServer(append(countCalls(), grpc.MaxRecvMsgSize(1<<20), grpc.WaitForHandlers(true))...), health: health.NewServer(),
		objects: newObjectReader(), done: make(chan struct{})}
	adminpb.RegisterAdminServer(e.srv, &adminServer{a: a, reader: e.objects, looking: make(chan struct{}, 1)})
	healthpb.RegisterHealthServer(e.srv, e.health)
	reflection.Register(e.srv)
	e.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	a.background(func(ctx context.Context) { e.follow(ctx, a) })
	go func() {
		defer close(e.done)
		// A start that fails stops the server, perhaps before it serves.
		if err := e.srv.Serve(ln); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			a.log.Error("the admin API ended", "err", err)
		}
	}()
	return e, nil
}

// follow keeps the gRPC health service in step with readiness.
func (e *adminEndpoint) follow(ctx context.Context, a *Agent) {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		s := healthpb.HealthCheckResponse_NOT_SERVING
		if len(a.unready()) == 0 {
			s = healthpb.HealthCheckResponse_SERVING
		}
		e.health.SetServingStatus("", s)
		e.health.SetServingStatus(adminpb.Admin_ServiceDesc.ServiceName, s)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// close ends calls at once and waits until they have returned.
func (e *adminEndpoint) close() {
	e.srv.Stop()
	<-e.done
}
