package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"meridian/wire"
	proto "meridian/wire/link"
)

// scenario is a rig that text commands drive. What the frames were, and what
// became of the calls, is what happened.
type scenario struct {
	*rig
	num   [2]uint16
	calls map[string]*Call
	owner map[string]int
	told  map[string]bool
}

// TestScenarios runs testdata: a command, ----, what happened.
//
//	new [lanes=2] [reqs=256] [bytes=268435456]    two sides, a (dialled) and b, and their namespaces
//	put side=b size=1000 x y                      blocks that a side holds
//	spoil side=b x                                flips a bit of one
//	full side=b                                   no more room
//	pull NAME [side=a] [class=0] [ms=30000] [lease=0] [room=1000000] x y
//	push NAME [side=a] [class=0] [ms=30000] [size=1000] x y
//	stream NAME [side=a] [class=0] [ms=30000] [size=1000] x    a push whose body comes meanwhile
//	grow NAME size=500                            so many bytes of it are there
//	agree NAME [wrong]                            the proof of it, or of other bytes
//	cancel NAME
//	run                                           until nothing moves
//	frame side=b lane=1                           until one more frame of that side is out
//	lose lane=1, add lane=1, tick ms=100
//	goaway side=b ms=1000
//	drop side=b
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *scenario
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				l := DefaultLimits
				lanes := 2
				d.MaybeScanArgs(t, "lanes", &lanes)
				d.MaybeScanArgs(t, "reqs", &l.Reqs)
				d.MaybeScanArgs(t, "bytes", &l.BytesInFlight)
				r := newRig(t, lanes, l)
				s = &scenario{rig: r, calls: map[string]*Call{}, owner: map[string]int{}, told: map[string]bool{}}
				s.num = [2]uint16{r.open(0), r.open(1)}
				s.log.Reset()
				return ""
			}
			s.log.Reset()
			s.do(t, d)
			return s.log.String() + s.results()
		})
	})
}

// words are the arguments without a value.
func words(d *datadriven.TestData) []string {
	var w []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			w = append(w, a.Key)
		}
	}
	return w
}

func (s *scenario) do(t *testing.T, d *datadriven.TestData) {
	side, class, ms, size, lane, lease, room := "a", 0, 30000, 1000, 1, 0, 1_000_000
	if d.Cmd != "pull" && d.Cmd != "push" && d.Cmd != "stream" {
		side = "b"
	}
	d.MaybeScanArgs(t, "side", &side)
	for name, v := range map[string]*int{"class": &class, "ms": &ms, "size": &size, "lane": &lane, "lease": &lease, "room": &room} {
		d.MaybeScanArgs(t, name, v)
	}
	i := slices.Index(sides[:], side)
	w := words(d)
	switch d.Cmd {
	case "put":
		s.put(i, size, w...)
	case "spoil":
		s.store[i].blocks[s.key(w[0])].Body[0] ^= 1
	case "full":
		s.store[i].full = true
	case "pull", "push":
		var c *Call
		if d.Cmd == "pull" {
			c = &Call{Type: proto.TypePull, LeaseFor: time.Duration(lease) * time.Millisecond}
			for _, n := range w[1:] {
				it := Item{NS: s.num[i], Key: s.key(n), Room: make([]byte, room)}
				if lease > 0 {
					it.Flags = proto.WantKeepLease
				}
				c.Items = append(c.Items, it)
			}
		} else {
			c = &Call{Type: proto.TypePush}
			for _, n := range w[1:] {
				b := body(n, size)
				h := wire.Header{BodyLen: uint32(size), Tier: wire.ThinkActive, Sum: wire.SumOf(b)}
				c.Items = append(c.Items, Item{NS: s.num[i], Key: s.key(n), Room: b, Tier: wire.ThinkActive, Head: [32]byte(h.Append(nil))})
			}
		}
		c.Class, c.Timeout = proto.Class(class), time.Duration(ms)*time.Millisecond
		s.calls[w[0]], s.owner[w[0]] = c, i
		s.end[i].Start(s.now, c)
	case "stream":
		c := s.streamCall(s.num[i], size, w[1])
		c.Class, c.Timeout = proto.Class(class), time.Duration(ms)*time.Millisecond
		s.calls[w[0]], s.owner[w[0]] = c, i
		s.end[i].Start(s.now, c)
	case "grow":
		s.end[s.owner[w[0]]].Grow(s.now, s.calls[w[0]], size)
	case "agree":
		c := s.calls[w[0]]
		proof := wire.Hash(c.Items[0].Room)
		if len(w) > 1 {
			proof = wire.Hash(body("other", len(c.Items[0].Room)))
		}
		s.printf("agreed: %v", s.end[s.owner[w[0]]].Agree(s.now, c, proof))
	case "cancel":
		s.end[s.owner[w[0]]].Cancel(s.now, s.calls[w[0]], wire.CodeCancelled)
	case "run":
		s.run()
	case "frame":
		s.frame(i, uint8(lane))
	case "lose":
		s.lose(uint8(lane))
	case "add":
		s.addLane(uint8(lane))
	case "tick":
		s.now += time.Duration(ms) * time.Millisecond
		s.end[0].Tick(s.now)
		s.end[1].Tick(s.now)
		s.reap()
	case "goaway":
		s.end[i].GoAway(s.now, uint32(ms), wire.CodeDraining, "")
	case "drop":
		s.end[i].Drop(s.now, wire.CodeIncarnation)
		s.reap()
	case "stats":
		for i, e := range s.end {
			st := e.Stats()
			s.printf("%s: %d calls, %d waiting, %d served, %d leases, %d reservations, %d blocks", sides[i], st.Calls, st.Waiting, st.Served,
				len(s.store[i].leases), len(s.store[i].reserved), len(s.store[i].blocks))
		}
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

// results are the calls that finished since the last command.
func (s *scenario) results() string {
	var lines []string
	for name, c := range s.calls {
		if c.over && !s.told[name] {
			s.told[name] = true
			starved := ""
			if c.Starved {
				starved = ", starved"
			}
			lines = append(lines, fmt.Sprintf("%s: %s [%s]%s\n", name, c.Code, strings.Join(codesOf(c), " "), starved))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
