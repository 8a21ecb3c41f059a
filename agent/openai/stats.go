package openai

import (
	"maps"
	"sync"
)

// Stats counts since the start. When nothing is running, Total is the sum of
// Status, Cancelled, Slow and Broken.
type Stats struct {
	Active    int            // generations, at most Config.MaxRequests
	Total     uint64         // requests of every kind
	Status    map[int]uint64 // answers that were sent whole, by HTTP status
	Cancelled uint64         // the client went away before the end
	Slow      uint64         // the client did not read in time
	Broken    uint64         // an error after the first byte of the answer
}

type counters struct {
	mu         sync.Mutex
	s          Stats
	background int // of s.Active
}

// ending is how a request went: a status, or one of those that have none.
type ending int

const (
	cancelled ending = -1
	slow      ending = -2
	broken    ending = -3
)

func (c *counters) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Total++
}

func (c *counters) end(e ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e {
	case cancelled:
		c.s.Cancelled++
	case slow:
		c.s.Slow++
	case broken:
		c.s.Broken++
	default:
		if c.s.Status == nil {
			c.s.Status = map[int]uint64{}
		}
		c.s.Status[int(e)]++ // statuses are between 200 and 599
	}
}

// free says whether one of limit places is.
func (c *counters) free(limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s.Active < limit
}

// entry is whether a request has a place.
type entry int

const (
	placed entry = iota
	noPlace
	noShare // those in the background have all that they may
)

// enter takes one of limit places, of which those in the background may have share;
// leave gives it back.
func (c *counters) enter(limit, share int, background bool) entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.s.Active >= limit:
		return noPlace
	case !background:
	case c.background >= share:
		return noShare
	default:
		c.background++
	}
	c.s.Active++
	return placed
}

func (c *counters) leave(background bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if background {
		c.background--
	}
	c.s.Active--
}

// Stats is a copy.
func (f *Front) Stats() Stats {
	f.stats.mu.Lock()
	defer f.stats.mu.Unlock()
	s := f.stats.s
	if s.Status = maps.Clone(s.Status); s.Status == nil {
		s.Status = map[int]uint64{}
	}
	return s
}
