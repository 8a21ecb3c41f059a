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
	var b strings.Builder
	fmt.Fprintf(&b, "greeted %v, asks %v, seated %v, %d bytes wait, ring %d of which sent %d;", s.greeted, s.asks, s.seated(), len(s.out), len(s.ring), s.ringSent)
	if !s.greeted {
		return b.String()
	}
	g := s.group
	g.life.mu.Lock()
	defer g.life.mu.Unlock()
	spaces := g.spaces()
	for i := range spaces {
		fmt.Fprintf(&b, " namespace %d is %x of %q, bodies of %d;", i, spaces[i].ns[:4], spaces[i].name, spaces[i].body)
	}
	fmt.Fprintf(&b, " %d closes, maps", len(g.closes))
	for id := range s.mapped {
		fmt.Fprintf(&b, " %d", id)
	}
	b.WriteString("; flights")
	for req := range s.flights {
		fmt.Fprintf(&b, " %d", req)
	}
	fmt.Fprintf(&b, "; %d reservations of %d items", len(s.rooms.of), s.rooms.items)
	fmt.Fprintf(&b, "; %d blocks of requests, %d held, %d to lower, requests", g.life.blocks, len(g.life.used), len(g.life.lower))
	for id, r := range g.life.reqs {
		fmt.Fprintf(&b, " %d (%d, %d, %v, %v)", id, len(r.think), len(r.rest), r.exited, r.over)
	}
	return b.String()
}
