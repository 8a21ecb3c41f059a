package cachebench

import "container/list"

// cache is a policy of eviction. It is given prompts in order of arrival, each as its
// block ids from the first to the last.
type cache interface {
	// serve returns how many leading blocks of the prompt were there, and then has all
	// of the prompt's blocks as far as they fit.
	serve(prompt []int) (hits int)
}

// lru evicts what was used least recently; a prompt is used front to back.
type lru struct {
	capacity int
	at       map[int]*list.Element
	order    *list.List // front: least recently used
}

func newLRU(capacity int) *lru {
	return &lru{capacity, map[int]*list.Element{}, list.New()}
}

func (c *lru) serve(prompt []int) (hits int) {
	leading := true
	for _, id := range prompt {
		e := c.at[id]
		if leading = leading && e != nil; leading {
			hits++
		}
		if e != nil {
			c.order.MoveToBack(e)
			continue
		}
		if c.order.Len() >= c.capacity {
			delete(c.at, c.order.Remove(c.order.Front()).(int))
		}
		c.at[id] = c.order.PushBack(id)
	}
	return hits
}

// s3fifo is the algorithm of "FIFO Queues are All You Need for Cache Eviction" (SOSP
// '23, algorithm 1): a small queue for what is new, a main one for what was used again
// there, and a ghost queue of the keys that left the small one.
type s3fifo struct {
	small, main, ghost *list.List // front: oldest
	smallMost, most    int
	at                 map[int]*s3entry
}

type s3entry struct {
	id   int
	uses int // since it came to its queue, at most s3MostUses
	in   *list.List
	here *list.Element
}

// The paper's parameters.
const (
	s3Small    = 10 // one in so many blocks is in the small queue
	s3Promote  = 1  // uses above which a block goes on to the main queue
	s3MostUses = 3
)

func newS3FIFO(capacity int) *s3fifo {
	return &s3fifo{small: list.New(), main: list.New(), ghost: list.New(), smallMost: max(capacity/s3Small, 1), most: capacity, at: map[int]*s3entry{}}
}

func (c *s3fifo) serve(prompt []int) (hits int) {
	leading := true
	for _, id := range prompt {
		e := c.at[id]
		cached := e != nil && e.in != c.ghost
		if leading = leading && cached; leading {
			hits++
		}
		if cached {
			e.uses = min(e.uses+1, s3MostUses)
			continue
		}
		for c.small.Len()+c.main.Len() >= c.most {
			c.evict()
		}
		if e = c.at[id]; e != nil { // a ghost that making room has left
			c.move(e, c.main)
		} else {
			c.move(&s3entry{id: id}, c.small)
		}
	}
	return hits
}

// move puts an entry at the end of a queue.
func (c *s3fifo) move(e *s3entry, to *list.List) {
	if e.in != nil {
		e.in.Remove(e.here)
	}
	e.in, e.here = to, to.PushBack(e)
	c.at[e.id] = e
}

func (c *s3fifo) drop(e *s3entry) {
	e.in.Remove(e.here)
	delete(c.at, e.id)
}

func (c *s3fifo) evict() {
	if c.small.Len() < c.smallMost && c.main.Len() > 0 {
		c.evictMain()
		return
	}
	for c.small.Len() > 0 {
		e := c.small.Front().Value.(*s3entry)
		uses := e.uses
		e.uses = 0
		if uses > s3Promote {
			c.move(e, c.main)
			continue
		}
		c.move(e, c.ghost)
		if c.ghost.Len() > c.most-c.smallMost {
			c.drop(c.ghost.Front().Value.(*s3entry))
		}
		return
	}
	c.evictMain()
}

func (c *s3fifo) evictMain() {
	for {
		e := c.main.Front().Value.(*s3entry)
		if e.uses == 0 {
			c.drop(e)
			return
		}
		e.uses--
		c.move(e, c.main)
	}
}
