package engine

import (
	"fmt"
	"slices"
	"strings"
)

// Digest is what the connections have, in words. The engines may not be sending
// meanwhile.
func (s *Server) Digest() string {
	var lines []string
	s.each(func(ss *session) { lines = append(lines, ss.digest()) })
	slices.Sort(lines)
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d connections, %d sessions, %d flights\n%s", len(s.sessions), s.seated, s.flights.now(), strings.Join(lines, "\n"))
}

func (s *session) digest() string {
	s.wmu.Lock() // the reader took it last, for the answer
	defer s.wmu.Unlock()
	s.fmu.Lock()
	defer s.fmu.Unlock()
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "greeted %v, asks %v, seated %v, %d bytes wait, ring %d of which sent %d;", s.greeted, s.asks, s.place.seated, len(s.out), len(s.ring), s.ringSent)
	for i := range s.spaces {
		fmt.Fprintf(&b, " namespace %d is %x of %q, bodies of %d;", i, s.spaces[i].ns[:4], s.spaces[i].name, s.spaces[i].body)
	}
	fmt.Fprintf(&b, " %d closes, maps", len(s.closes))
	for id := range s.mapped {
		fmt.Fprintf(&b, " %d", id)
	}
	b.WriteString("; flights")
	for req := range s.flights {
		fmt.Fprintf(&b, " %d", req)
	}
	fmt.Fprintf(&b, "; %d blocks of requests, %d held, %d to lower, requests", s.life.blocks, len(s.life.held), len(s.life.lower))
	for id, r := range s.life.reqs {
		fmt.Fprintf(&b, " %d (%d, %d, %v, %v)", id, len(r.think), len(r.rest), r.exited, r.over)
	}
	return b.String()
}
