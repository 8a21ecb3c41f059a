package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"meridian/blocks/quota"
	"meridian/internal/connshare"
	"meridian/internal/httpguard"
	"meridian/internal/loglimit"
)

// httpEndpoint serves /metrics, /healthz, /readyz and /varz. It has neither TLS
// nor authentication, so it binds to loopback unless the config says insecure,
// and a guard refuses web pages and hosts that are not this one. Its connections are
// shared among those who ask, and one for which no handler runs makes room.
type httpEndpoint struct {
	srv  *http.Server
	ln   net.Listener
	done chan struct{}
}

func (a *Agent) listenHTTP(addr string) (*httpEndpoint, error) {
	c := a.cfg.Admin
	guard, err := httpguard.New(httpguard.Config{Hosts: append([]string{addr}, c.Hosts...), Origins: c.Origins, Table: "admin"})
	if err != nil {
		return nil, fmt.Errorf("admin.%w", err)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin.http: %w", err)
	}
	e := &httpEndpoint{ln: ln, done: make(chan struct{}), srv: &http.Server{
		Handler: guard.Wrap(a.httpHandler()), ErrorLog: slog.NewLogLogger(loglimit.Server(a.log.Handler()), slog.LevelWarn),
		ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}}
	connshare.Attach(e.srv)
	go func() {
		defer close(e.done)
		if err := e.srv.Serve(a.share(ln, quota.HTTPConns)); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the HTTP endpoint ended", "err", err)
		}
	}()
	return e, nil
}

func (e *httpEndpoint) close(ctx context.Context) {
	if e.srv.Shutdown(ctx) != nil {
		_ = e.srv.Close()
	}
	<-e.done
}

func (a *Agent) httpHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.reg, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons := a.unready()
		if len(reasons) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			for _, r := range reasons {
				_, _ = fmt.Fprintf(w, "%s: %s\n", r.id, r.text)
			}
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	mux.HandleFunc("GET /varz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(a.varz())
	})
	return mux
}
