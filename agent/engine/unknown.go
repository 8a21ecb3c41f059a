package engine

import "sync"

// mostUnknown is how many names of models that nobody knows are remembered, and told.
const mostUnknown = 32

// unknown are the models of requests whose thinking is not followed, because no table
// says how it begins.
type unknown struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// tellUnknown logs a model that nobody knows once. scheduler.Stats counts the requests.
func (s *Server) tellUnknown(model string) {
	u := &s.unknown
	u.mu.Lock()
	_, told := u.names[model]
	first := !told && len(u.names) < mostUnknown
	if first {
		if u.names == nil {
			u.names = map[string]struct{}{}
		}
		u.names[string(append([]byte(nil), model...))] = struct{}{}
	}
	u.mu.Unlock()
	if first {
		s.log.Warn("requests of a model that is not known: their thinking is not followed; a table [model.NAME] says how it begins and ends", "model", model)
	}
}
