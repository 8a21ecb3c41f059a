package blocks

import "meridian/wire"

// Peek fills v[i] for every key like Lookup. It is for the daemon's own decisions:
// no engine looked anything up, so it counts as no look-up.
func (c *Core) Peek(ns wire.Namespace, keys []wire.Key, v []View) {
	nsi, ok := c.nsOf[ns]
	for i := range keys {
		if !ok {
			v[i] = View{NS: ns, Err: errNS}
			continue
		}
		c.describe(&v[i], c.find(nsi, &keys[i]), ns, &keys[i])
	}
}

// Peek is Core.Peek.
func (s *Store) Peek(ns wire.Namespace, keys []wire.Key, v []View) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Peek(ns, keys, v)
}

// Moved takes note of copies that were made outside, or were not. The slot of one
// that was is freed as soon as nobody holds a reference.
func (s *Store) Moved(m []Moved) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Moved(m)
}

// Moved is Store.Moved.
func (c *Core) Moved(m []Moved) {
	for i := range m {
		c.moved(&m[i])
	}
}
