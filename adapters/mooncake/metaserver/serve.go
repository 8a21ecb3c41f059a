package metaserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"strconv"

	"meridian/adapters/mooncake/metadata"
	"meridian/internal/stranger"
)

// serve answers GET, PUT and DELETE of /metadata?key=KEY. Engines take 200 as done and
// 404 as absent; every other status is a failure, and its text goes to their log.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	status, body, err := s.answer(w, r)
	switch refused, ok := errors.AsType[*Refusal](err); {
	case ok:
		s.count(r.Method, refused.Reason)
		if refused.Status != http.StatusNotFound {
			s.cfg.Refused(refused)
			s.cfg.Log.Warn("a request to the metadata server is refused", "from", r.RemoteAddr, "method", r.Method, "err", refused)
		}
		http.Error(w, refused.Text, refused.Status)
	default:
		s.count(r.Method, "ok")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (int, []byte, error) {
	g, ok := r.Context().Value(guestKey{}).(*guest)
	if !ok {
		return 0, nil, &Refusal{http.StatusInternalServerError, "internal", "a connection of unknown origin"}
	}
	if !g.mayStay() { // since the list was changed
		return 0, nil, s.notAllowed()
	}
	if r.URL.Path != metadata.HTTPPath {
		return 0, nil, &Refusal{http.StatusNotFound, "path", fmt.Sprintf("nothing at %s, only at %s", stranger.Quote(r.URL.Path), metadata.HTTPPath)}
	}
	key, err := metadata.ParseKey(r.URL.Query().Get("key"))
	if err != nil {
		return 0, nil, &Refusal{http.StatusBadRequest, "invalid", err.Error()}
	}
	c := change{source: g.source, key: key}
	if text := r.Header.Get(metadata.EpochHeader); text != "" {
		if c.epoch, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, nil, &Refusal{http.StatusBadRequest, "invalid", fmt.Sprintf("%s is %s, want a number below 2^64", metadata.EpochHeader, stranger.Quote(text))}
		}
	}
	var body []byte
	if r.Method == http.MethodPut {
		if body, err = readBody(w, r); err != nil {
			return 0, nil, err
		}
	}
	defer g.served()()
	switch r.Method {
	case http.MethodGet:
		s.mu.Lock()
		defer s.mu.Unlock()
		if v, ok := s.table.get(key); ok {
			return http.StatusOK, v, nil
		}
		return 0, nil, &Refusal{http.StatusNotFound, "absent", "metadata not found"}
	case http.MethodPut:
		if err := c.says(body); err != nil { // not under the lock: it may have 1 MiB
			return 0, nil, err
		}
		if err := s.checkHost(c); err != nil {
			return 0, nil, err
		}
		return http.StatusOK, []byte("metadata updated"), s.change(r.Context(), c, func(c change) (*Question, error) {
			return s.table.put(s.cfg.Clock(), c)
		})
	case http.MethodDelete:
		return http.StatusOK, []byte("metadata deleted"), s.change(r.Context(), c, s.table.remove)
	}
	w.Header().Set("Allow", "GET, PUT, DELETE")
	return 0, nil, &Refusal{http.StatusMethodNotAllowed, "method", fmt.Sprintf("%s is not known here: GET, PUT or DELETE", stranger.Quote(r.Method))}
}

// readBody reads a value within its limit.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, metadata.MaxBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, &Refusal{http.StatusRequestEntityTooLarge, "huge", fmt.Sprintf("a value has %d bytes at most", metadata.MaxBytes)}
	}
	if err != nil {
		return nil, &Refusal{http.StatusBadRequest, "cut_off", "the body ended early or came too slowly"}
	}
	return body, nil
}

// change makes a change, after asking the owner whose entry it is.
func (s *Server) change(ctx context.Context, c change, do func(change) (*Question, error)) error {
	for range maxTakeovers {
		s.mu.Lock()
		q, err := do(c)
		s.mu.Unlock()
		if q == nil {
			return err
		}
		is, err := s.askFor(ctx, c.source, q)
		if err != nil {
			return err
		}
		if !is.Gone() {
			return taken(q, is)
		}
		c.gone = q
	}
	return &Refusal{http.StatusServiceUnavailable, "busy", "the entry changes hands too fast"}
}

// askFor asks an owner for a request of a source. What one source has asked at a time
// is bounded, so that it leaves places to others.
func (s *Server) askFor(ctx context.Context, source string, q *Question) (metadata.Outcome, error) {
	s.mu.Lock()
	all, of := s.asking[""], s.asking[source]
	if all >= asksAtATime || of >= asksASource {
		s.mu.Unlock()
		return 0, &Refusal{http.StatusServiceUnavailable, "busy", fmt.Sprintf("%d owners are being asked, %d of them for %s: at most %d and %d", all, of, source, asksAtATime, asksASource)}
	}
	s.asking[""]++
	s.asking[source]++
	s.mu.Unlock()
	is := s.ask(ctx, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking[""]--
	if s.asking[source]--; s.asking[source] == 0 {
		delete(s.asking, source)
	}
	return is, nil
}

// checkHost refuses an endpoint with an address that could never be asked. A name is
// resolved when it is asked.
func (s *Server) checkHost(c change) error {
	if a, err := netip.ParseAddr(c.at.Host); err == nil && !s.mayAsk(c.source, a) {
		why := "not in " + s.cfg.Table + ".allow"
		if s.here(a) {
			why = "of this host, and the request is not"
		}
		return &Refusal{http.StatusForbidden, "not_allowed", fmt.Sprintf("ip_or_host_name is %s, which is %s", a, why)}
	}
	return nil
}

// event is what happened: a method, or "connection", and how it ended.
type event struct{ what, outcome string }

type counts map[event]uint64

// methods are what is counted by name.
var methods = map[string]string{http.MethodGet: "get", http.MethodPut: "put", http.MethodDelete: "delete", "connection": "connection"}

func (s *Server) count(what, outcome string) {
	name, ok := methods[what]
	if !ok {
		name = "other"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = counts{}
	}
	s.seen[event{name, outcome}]++
}

// Stats are the server's counts.
type Stats struct {
	Nodes, Silent int               // that are known; of them, those whose last answer is missing
	Connections   int               // that wait for a request
	Ended         map[string]uint64 // nodes, by why: removed, replaced, displaced, expired
	Requests      map[[2]string]uint64
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Nodes: len(s.table.owners), Connections: s.conns.Len(), Ended: maps.Clone(s.table.ended), Requests: map[[2]string]uint64{}}
	for _, o := range s.table.owners {
		if o.last != metadata.Answers {
			st.Silent++
		}
	}
	for e, n := range s.seen {
		st.Requests[[2]string{e.what, e.outcome}] = n
	}
	return st
}
