package trace

import "container/list"

// Ideal is what a prefix cache could have hit on a trace.
type Ideal struct {
	Lookups  int // block references, partial last blocks included
	Hits     int // references to a block seen before and still cached, in an unbroken run from the front
	Distinct int
}

// Ratio is Hits / Lookups, 0 for an empty trace.
func (i Ideal) Ratio() float64 {
	if i.Lookups == 0 {
		return 0
	}
	return float64(i.Hits) / float64(i.Lookups)
}

// LRU replays reqs through a plain least-recently-used cache of capacity
// blocks, touching each prompt front to back; capacity <= 0 is a cache
// without bound. A block counts as a hit only while every block before it
// was one, since prefix caches serve prefixes.
func LRU(reqs []Request, capacity int) Ideal {
	var res Ideal
	seen := map[int]*list.Element{}
	order := list.New() // front: most recently used
	distinct := map[int]struct{}{}
	for _, r := range reqs {
		prefix := true
		for _, id := range r.Blocks {
			res.Lookups++
			distinct[id] = struct{}{}
			e, ok := seen[id]
			prefix = prefix && ok
			if prefix {
				res.Hits++
			}
			if ok {
				order.MoveToFront(e)
				continue
			}
			seen[id] = order.PushFront(id)
			if capacity > 0 && order.Len() > capacity {
				last := order.Back()
				delete(seen, order.Remove(last).(int))
			}
		}
	}
	res.Distinct = len(distinct)
	return res
}
