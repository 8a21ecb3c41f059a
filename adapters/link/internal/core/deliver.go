package core

import (
	"meridian/wire"
	proto "meridian/wire/link"
)

// A standing grant, at the side that pushes.

// allowance is what STANDING last told of a namespace: homes that the peer keeps
// ready. It is only ever what the peer said; what it still has it decides when
// DELIVER comes.
type allowance struct {
	have int    // homes that no DELIVER has taken
	out  int    // items of the DELIVERs that wait for END
	size uint32 // bytes of a home
	tier wire.Tier
}

// standing takes STANDING. What is under way may have been counted or not: it is
// taken off.
func (s *Session) standing(p []byte) error {
	m, err := proto.Parse[proto.Standing](p)
	switch {
	case err != nil:
		return err
	case m.NS == 0 || m.NS > proto.MaxNamespaces:
		return refuse(wire.CodeInvalid, "STANDING for a number that no namespace has")
	}
	a := s.allowed[m.NS]
	if a == nil {
		a = &allowance{}
		if s.allowed == nil {
			s.allowed = map[uint16]*allowance{}
		}
		s.allowed[m.NS] = a
	}
	a.have, a.size, a.tier = max(int(m.N)-a.out, 0), m.Len, m.Tier
	return nil
}

// oneFlight is the allowance that a push may use without a GRANT: it has a home for
// each item, and all are of one namespace.
func (s *Session) oneFlight(c *Call) *allowance {
	if c.Type != proto.TypePush || c.TwoFlights || c.Grows || len(c.Items) == 0 || !s.cfg.OneFlight {
		return nil
	}
	a := s.allowed[c.Items[0].NS]
	if a == nil || len(c.Items) > a.have {
		return nil
	}
	for i := range c.Items {
		it := &c.Items[i]
		tier := it.Tier
		if c.Class == proto.ClassBulk {
			tier = wire.ThinkComplete
		}
		if it.NS != c.Items[0].NS || tier < a.tier || !fitsHome(uint32(len(it.Room)), a.size) {
			return nil
		}
	}
	return a
}

// deliver sends a push with its bodies behind it.
func (l *Lane) deliver(f proto.Frame, ms uint32, r *request, a *allowance) {
	c := r.call
	f.Type = proto.TypeDeliver
	l.send(f, proto.Push{DeadlineMS: ms, Items: offers(c.Items)})
	a.have -= r.items
	a.out += r.items
	r.flight = a
	r.ask.state = askGranted
	r.out.items = make([]outItem, len(c.Items))
	l.sendBodies(r)
}

// landed ends a DELIVER's use of its allowance.
func (r *request) landed() {
	if r.flight != nil {
		r.flight.out -= r.items
		r.flight = nil
	}
}

// Homeless is a call that pushes by GRANT what found no home by DELIVER, and the
// items of c that it is of; nil where all is well. The peer's homes may have gone
// while the push was under way.
func (c *Call) Homeless() (again *Call, at []int) {
	if !c.Delivered || c.Code != wire.CodeOK {
		return nil, nil
	}
	for i := range c.Items {
		if c.Items[i].Code != wire.CodeFull {
			continue
		}
		if again == nil {
			again = &Call{Type: proto.TypePush, Class: c.Class, Hops: c.Hops, TwoFlights: true}
		}
		it := c.Items[i]
		it.Code, it.Seen = wire.CodeOK, false
		again.Items, at = append(again.Items, it), append(at, i)
	}
	return again, at
}

// Merge takes over what became of the items at of c, which again pushed.
func (c *Call) Merge(again *Call, at []int) {
	for n, i := range at {
		c.Items[i] = again.Items[n]
	}
	c.Code, c.Text, c.Retry = again.Code, again.Text, again.Retry
}
