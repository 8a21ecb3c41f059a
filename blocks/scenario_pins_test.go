package blocks

import (
	"fmt"
	"strings"

	"meridian/wire"
)

// The commands of pins, and of who is told of evictions.

// pinOf is a pin of by (or owner), in a set, for a time; none where that is left out.
func (s *scenario) pinOf(a args, time string) Pin {
	return Pin{Owner: s.owners[a.str("by", a.str("owner", "o"))], Set: a.num("set", 0), For: a.dur(time, "0s")}
}

// pin keys=(a) owner=o set=1 for=10s [fresh]
func (s *scenario) pin(a args) string {
	keys := a.keys()
	errs := make([]error, len(keys))
	n, err := s.c.PinKeys(s.now, s.pinOf(a, "for"), nsOf(a.str("ns", "n")), keys, a.d.HasArg("fresh"), errs)
	if err != nil {
		return errText(err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "pinned=%d\n", n)
	for i := range keys {
		fmt.Fprintf(&out, "%s: %s\n", nameOf(keys[i]), errText(errs[i]))
	}
	return out.String()
}

func (s *scenario) unpin(a args) string {
	s.c.Unpin(s.owners[a.str("owner", "o")], a.num("set", 0))
	return s.pins()
}

func (s *scenario) detach(a args) string {
	s.c.Detach(s.owners[a.str("owner", "o")], a.num("set", 0))
	return s.pins()
}

// pulled slots=(a): a peer has pulled what was published there
func (s *scenario) pulled(a args) string {
	var refs []wire.Ref
	for _, n := range a.list("slots") {
		r := s.slots[n].Ref
		r.Gen++
		refs = append(refs, r)
	}
	s.c.Pulled(refs)
	return s.pins()
}

func (s *scenario) pins() string {
	st := s.c.Stats()
	out := fmt.Sprintf("pins=%d bytes=%d", st.Pins, st.PinBytes)
	for e, n := range st.PinsEnded {
		if n > 0 {
			out += fmt.Sprintf(" %s=%d", PinEnd(e), n)
		}
	}
	return out
}

// follow keys=(a) owner=o
func (s *scenario) follow(a args) string {
	keys := a.keys()
	var out strings.Builder
	s.c.Follow(s.owners[a.str("owner", "o")], nsOf(a.str("ns", "n")), keys, func(i int) { fmt.Fprintf(&out, "%s is not here\n", nameOf(keys[i])) })
	return out.String()
}

func (s *scenario) settle(a args) string {
	s.c.Settle(s.owners[a.str("owner", "o")], nsOf(a.str("ns", "n")), a.keys())
	return ""
}

// told renders notices of evictions.
func (s *scenario) told() string {
	var out strings.Builder
	for _, n := range s.c.TakeNotices(nil) {
		for name, o := range s.owners {
			if o == n.Owner {
				fmt.Fprintf(&out, "tell %s: %s is gone\n", name, nameOf(n.Key))
			}
		}
	}
	return out.String()
}
