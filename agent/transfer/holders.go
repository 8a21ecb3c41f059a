package transfer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// holder is somebody outside who may have a block: a peer of a fabric, or a
// fabric that keeps blocks itself.
type holder struct {
	name   string // in the registry
	fabric fabric.Fabric
	find   fabric.Finder
}

// holders are those who may have a block of ns, in the order of their names: the
// fabrics that can look a block up and can be asked now. down are those that could
// be asked if they were there. A fabric that must not learn of the namespace is
// neither (I11).
func (m *Mover) holders(ns wire.Namespace) (out []holder, down []string) {
	for _, name := range m.cfg.Fabrics.Names() {
		f, ok := m.cfg.Fabrics.Get(name)
		if !ok {
			continue
		}
		finder, ok := f.(fabric.Finder)
		if !ok {
			continue
		}
		switch err := usable(f, ns); {
		case err == nil:
			out = append(out, holder{name, f, finder})
		case !saysAbsent(err):
			down = append(down, name)
		}
	}
	return out, down
}

// usable says why a fabric cannot be called now.
func usable(f fabric.Fabric, ns wire.Namespace) error {
	if g, ok := f.(fabric.Gate); ok {
		return g.Usable(ns)
	}
	return nil
}

// slowHolders remembers who kept a load waiting, by registry name. There is at
// most one background question a holder.
type slowHolders struct {
	mu sync.Mutex
	by map[string]*slowness
}

// slowness is what a holder owes.
type slowness struct {
	now     bool // it is not asked and not waited for
	strikes uint // misses in a row
	pulled  bool // the last one was a pull that stood still
}

// The pause before a slow holder is asked again: it doubles with each miss.
const (
	minRest = 250 * time.Millisecond
	maxRest = 30 * time.Second
)

func (s *slowness) rest() time.Duration {
	if s.strikes > 7 {
		return maxRest
	}
	return min(minRest<<(s.strikes-1), maxRest)
}

// isSlow says whether a holder is being left alone.
func (m *Mover) isSlow(name string) bool {
	m.slow.mu.Lock()
	defer m.slow.mu.Unlock()
	s := m.slow.by[name]
	return s != nil && s.now
}

// missed notes that a holder kept a load waiting. It is left alone, and asked for
// one block in the background until it answers.
func (m *Mover) missed(h *holder, about fabric.Item, pulled bool) {
	m.slow.mu.Lock()
	defer m.slow.mu.Unlock()
	if m.slow.by == nil {
		m.slow.by = map[string]*slowness{}
	}
	s := m.slow.by[h.name]
	if s == nil {
		s = &slowness{}
		m.slow.by[h.name] = s
	}
	if s.now || m.ctx.Err() != nil {
		return // known, and asked already
	}
	s.now, s.pulled = true, pulled
	s.strikes++
	m.cfg.Observer.Slow(family(h.name))
	m.cfg.Log(slog.LevelWarn, "slow."+h.name, "a holder is not waited for until it answers again", "holder", h.name, "asked_again_in", s.rest())
	m.wg.Go(func() { m.askAgain(*h, about) })
}

// answered notes that a holder did what it was asked for in time. A pull that
// stood still is forgotten with a pull that did not.
func (m *Mover) answered(name string, pulled bool) {
	m.slow.mu.Lock()
	defer m.slow.mu.Unlock()
	if s := m.slow.by[name]; s != nil && !s.now && (pulled || !s.pulled) {
		delete(m.slow.by, name)
	}
}

// askAgain asks a slow holder for a block until it answers, whatever it says, or
// cannot be called any more: then it begins anew when it is back.
func (m *Mover) askAgain(h holder, about fabric.Item) {
	for {
		m.slow.mu.Lock()
		rest := m.slow.by[h.name].rest()
		m.slow.mu.Unlock()
		if !sleep(m.ctx, rest) {
			return
		}
		gone := usable(h.fabric, about.NS) != nil
		if !gone && !m.answers(&h, about) {
			m.slow.mu.Lock()
			m.slow.by[h.name].strikes++
			m.slow.mu.Unlock()
			continue
		}
		m.slow.mu.Lock()
		if s := m.slow.by[h.name]; gone {
			delete(m.slow.by, h.name)
		} else {
			s.now = false
		}
		m.slow.mu.Unlock()
		return
	}
}

// answers asks for one block, and says whether an answer came in time. The answer
// is not waited for beyond that, even where the call hangs.
func (m *Mover) answers(h *holder, about fabric.Item) bool {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.FindWithin)
	defer cancel()
	came := make(chan bool, 1)
	go func() { // not waited for by Close: it touches nothing but its own item
		it := []fabric.Item{about}
		h.find.Find(ctx, it)
		came <- ctx.Err() == nil
	}()
	select {
	case ok := <-came:
		return ok
	case <-ctx.Done():
	}
	select { // one question at a time
	case <-came:
	case <-m.ctx.Done():
	}
	return false
}

// sleep waits, and says whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
