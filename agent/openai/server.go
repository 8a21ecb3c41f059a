package openai

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"meridian/internal/connshare"
	"meridian/internal/loglimit"
)

// Limits of a connection.
const (
	headerTimeout  = 10 * time.Second
	BodyTimeout    = 20 * time.Second // of a whole body; below DefaultWriteTimeout, as an answer may have to wait for it
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// closeGrace is what handlers have to notice that the server closes, before
	// their connections are cut.
	closeGrace = 2 * time.Second
)

// errClosing is why the contexts of requests end when the server closes.
var errClosing = errors.New("openai: the server is closing")

// Server serves a handler, usually a Front. It may listen at several places; how
// many connections there may be is the listeners' business (internal/connshare). The time of an answer is the handler's business.
type Server struct {
	srv  *http.Server
	stop context.CancelCauseFunc

	mu      sync.Mutex
	running int           // handlers
	drained chan struct{} // closed when running is 0; nil: nobody waits
}

// NewServer makes a Server. What goes wrong in a connection goes to log.
func NewServer(h http.Handler, log *slog.Logger) *Server {
	base, stop := context.WithCancelCause(context.Background())
	s := &Server{stop: stop}
	s.srv = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.began(1)
			defer s.began(-1)
			boundTimes(w, r)
			h.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(loglimit.Server(log.Handler()), slog.LevelDebug),
	}
	connshare.Attach(s.srv)
	return s
}

// boundTimes gives a request's body its time, also when no handler reads it:
// net/http reads what is left of a body before it answers. At a body's end
// net/http takes the deadline back itself.
func boundTimes(w http.ResponseWriter, r *http.Request) {
	if r.Body == http.NoBody {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout)) // a connection always has deadlines
}

// Serve accepts from ln until the server is shut down, which is no error.
func (s *Server) Serve(ln net.Listener) error {
	err := s.srv.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown is called once. It takes no more requests and lets those that run end, until ctx ends.
// Then their contexts end, and shortly after their connections. No handler runs
// when it returns, unless a backend does not stop when its context ends.
func (s *Server) Shutdown(ctx context.Context) {
	if s.srv.Shutdown(ctx) == nil {
		s.stop(errClosing)
		return
	}
	s.stop(errClosing)
	done := s.drain()
	within(done, closeGrace)
	_ = s.srv.Close() // unblocks who writes to a client that does not read
	within(done, closeGrace)
}

func (s *Server) began(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running += n; s.running == 0 && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
}

// drain is closed once no handler runs.
func (s *Server) drain() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := make(chan struct{})
	if s.running == 0 {
		close(done)
	} else {
		s.drained = done
	}
	return done
}

// Close is Shutdown without waiting for anybody.
func (s *Server) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(ctx)
}

func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
