package engine

import (
	"slices"

	"meridian/blocks"
	"meridian/wire/link"
)

// tellEvictions tells engines which blocks of their running requests were evicted, until
// the server closes. Whoever evicts waits for nobody: the store keeps notices.
func (s *Server) tellEvictions() {
	var notices []blocks.Notice
	for {
		select {
		case <-s.cfg.Store.Notices():
		case <-s.closing:
			return
		}
		notices = s.cfg.Store.TakeNotices(notices[:0])
		of := map[blocks.Owner][]blocks.Notice{}
		for _, n := range notices {
			of[n.Owner] = append(of[n.Owner], n)
		}
		s.mu.Lock()
		groups := make([]*group, 0, len(s.groups))
		for g := range s.groups {
			if of[g.owner] != nil {
				groups = append(groups, g)
			}
		}
		s.mu.Unlock()
		for _, g := range groups {
			g.life.evicted(of[g.owner])
		}
	}
}

// evictedItems is how many blocks one EVICTED names: what a socket has no room for is
// dropped a frame at a time.
const evictedItems = 256

// tellEvicted sends EVICTED to the sessions of a group that speak it.
func (g *group) tellEvicted(items []link.EvictedItem) {
	for _, s := range *g.members.Load() {
		if !s.grouped {
			continue
		}
		for part := range slices.Chunk(items, evictedItems) {
			advise(s, link.TypeEvicted, link.Evicted{Items: part})
			s.push()
		}
	}
}
