package blocks

import "meridian/wire"

// Published names a block that everybody of its namespace can find from now on.
type Published struct {
	NS  wire.Namespace
	Key wire.Key
}

// Watch makes the core list what is published, or ends that. Transient blocks are
// not published.
func (c *Core) Watch(on bool) {
	if c.watched = on; !on {
		c.news = nil
	}
}

// News returns what was published since the last call while Watch was on. The
// caller owns the slice.
func (c *Core) News() []Published {
	p := c.news
	c.news = nil
	return p
}

// OnPublish names who is told what is published while Watch is on. It is called
// once, before anything is published. f runs on the publisher's goroutine after
// the block can be found, without a lock of the store, and must not wait.
func (s *Store) OnPublish(f func([]Published)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onPublish = f
}

// Watch turns the calls of OnPublish's function on or off. What is published after
// Watch(true) has returned is told. So who notes what it waits for, calls Watch, and
// only then looks whether the block is there, misses nothing.
func (s *Store) Watch(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Watch(on)
}
