package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// scene is a state that side b of a rig can be in. a holds x, y; b holds v, w.
type scene struct {
	name string
	set  func(r *rig, num, back uint16)
}

const sceneBody = 3000

// The lengths of frames that go by in a scene, for a batch of one.
const (
	tableFrame = proto.FrameLen + 20 + 48 + proto.TrailerLen
	dataFrame  = proto.HeadLen + sceneBody

	deliverFrame = proto.FrameLen + 8 + 84 + proto.TrailerLen
)

func hasCall(r *rig, back uint16) *Call {
	c := &Call{Type: proto.TypeHas, Timeout: 30 * time.Second, Items: []Item{{NS: back, Key: r.key("x")}}}
	r.end[1].Start(r.now, c)
	return c
}

// all carries everything that side i has on a lane, once.
func (r *rig) all(i int, idx uint8) { r.move(i, idx, 1<<20) }

// pulling brings b's pull of x to where n bytes of the answer have come.
func pulling(n int) func(*rig, uint16, uint16) {
	return func(r *rig, _, back uint16) {
		r.pull(1, proto.ClassUrgent, back, sceneBody, "x")
		r.all(1, 1)
		r.move(0, 1, n)
	}
}

// pushing begins a push of b, and does moves: the side, and how much.
func pushing(moves ...[2]int) func(*rig, uint16, uint16) {
	return func(r *rig, _, back uint16) {
		r.push(1, proto.ClassUrgent, back, sceneBody, "p")
		for _, m := range moves {
			r.move(m[0], 1, m[1])
		}
	}
}

// pushed is a push that b serves, with the moves after it.
func pushed(moves ...[2]int) func(*rig, uint16, uint16) {
	return func(r *rig, num, _ uint16) {
		r.push(0, proto.ClassUrgent, num, sceneBody, "q")
		r.all(0, 1)
		for _, m := range moves {
			r.move(m[0], 1, m[1])
		}
	}
}

// delivering is pushing in one flight.
func delivering(moves ...[2]int) func(*rig, uint16, uint16) {
	return func(r *rig, _, _ uint16) {
		c := r.push(1, proto.ClassUrgent, r.small(1), sceneBody, "p")
		r.mustDeliver(c)
		for _, m := range moves {
			r.move(m[0], 1, m[1])
		}
	}
}

// delivered is a push in one flight that b serves, with the moves after it; before
// it is begun, b does as first says.
func delivered(first func(r *rig), moves ...[2]int) func(*rig, uint16, uint16) {
	return func(r *rig, _, _ uint16) {
		num := r.small(0)
		first(r)
		r.mustDeliver(r.push(0, proto.ClassUrgent, num, sceneBody, "q"))
		for _, m := range moves {
			r.move(m[0], 1, m[1])
		}
	}
}

func asBefore(*rig) {}

func takenBack(set func(*rig, uint16, uint16)) func(*rig, uint16, uint16) {
	return func(r *rig, num, back uint16) {
		set(r, num, back)
		for _, q := range inOrder(r.end[1].calls) {
			r.end[1].endCall(r.now, q, wire.CodeCancelled, "")
		}
	}
}

func held(set func(*rig, uint16, uint16)) func(*rig, uint16, uint16) {
	return func(r *rig, num, back uint16) {
		r.held = true
		set(r, num, back)
	}
}

var scenes = []scene{
	{"idle", func(*rig, uint16, uint16) {}},
	{"OPEN is out", func(r *rig, _, _ uint16) {
		r.end[1].Start(r.now, &Call{Type: proto.TypeOpen, Manifest: manifest("t").Append(nil), Timeout: time.Second})
	}},
	{"HAS is out", func(r *rig, _, back uint16) { hasCall(r, back) }},
	{"HAS has its TABLE", func(r *rig, _, back uint16) {
		hasCall(r, back)
		r.all(1, 0)
		r.move(0, 0, tableFrame)
	}},
	{"RENEW is out", func(r *rig, _, _ uint16) {
		r.end[1].Start(r.now, &Call{Type: proto.TypeRenew, Lease: [16]byte{1}, Timeout: time.Second})
	}},
	{"PULL is out", pulling(0)},
	{"PULL has its TABLE", pulling(tableFrame)},
	{"PULL in mid-body", pulling(tableFrame + proto.HeadLen + 1000)},
	{"PULL has its bytes", pulling(tableFrame + dataFrame)},
	{"PULL ended, being hashed", held(pulling(1 << 20))},
	{"PULL taken back before TABLE", takenBack(pulling(0))},
	{"PULL taken back in mid-body", takenBack(pulling(tableFrame + proto.HeadLen + 1000))},
	{"PUSH is out", pushing()},
	{"PUSH granted", pushing([2]int{1, 1 << 20}, [2]int{0, 1 << 20})},
	{"PUSH in mid-body", pushing([2]int{1, 1 << 20}, [2]int{0, 1 << 20}, [2]int{1, 1000})},
	{"PUSH committed", pushing([2]int{1, 1 << 20}, [2]int{0, 1 << 20}, [2]int{1, 1 << 20})},
	{"PUSH has its TABLE", pushing([2]int{1, 1 << 20}, [2]int{0, 1 << 20}, [2]int{1, 1 << 20}, [2]int{0, tableFrame})},
	{"PUSH taken back", takenBack(pushing())},
	{"PUSH taken back in mid-body", takenBack(pushing([2]int{1, 1 << 20}, [2]int{0, 1 << 20}, [2]int{1, 1000}))},
	{"serves a PULL", func(r *rig, num, _ uint16) {
		r.pull(0, proto.ClassUrgent, num, sceneBody, "v")
		r.all(0, 1)
	}},
	{"serves a PULL in mid-body", func(r *rig, num, _ uint16) {
		r.pull(0, proto.ClassUrgent, num, sceneBody, "v")
		r.all(0, 1)
		r.move(1, 1, tableFrame+1000)
	}},
	{"serves a PUSH, making room", held(pushed())},
	{"serves a PUSH", pushed([2]int{1, 1 << 20})},
	{"serves a PUSH in mid-body", pushed([2]int{1, 1 << 20}, [2]int{0, proto.HeadLen + 1000})},
	{"serves a PUSH with all its bytes", func(r *rig, num, back uint16) {
		pushed([2]int{1, 1 << 20})(r, num, back)
		r.held = true
		r.move(0, 1, dataFrame)
	}},
	{"serves a PUSH committed, being hashed", func(r *rig, num, back uint16) {
		pushed([2]int{1, 1 << 20})(r, num, back)
		r.held = true
		r.all(0, 1)
	}},
	{"serves a PUSH that ran out of time", func(r *rig, num, back uint16) {
		pushed([2]int{1, 1 << 20}, [2]int{0, proto.HeadLen + 1000})(r, num, back)
		for _, q := range inOrder(r.end[1].served) {
			r.end[1].endServed(r.now, q, wire.CodeDeadline, "")
		}
	}},
	{"homes stand ready", func(r *rig, _, _ uint16) { r.small(0); r.small(1) }},
	{"DELIVER in mid-body", delivering([2]int{1, deliverFrame + 1000})},
	{"serves a DELIVER in mid-body", delivered(asBefore, [2]int{0, deliverFrame + proto.HeadLen + 1000})},
	{"serves a DELIVER for which there is no home", delivered(func(r *rig) { r.end[1].giveAllHomes() }, [2]int{0, deliverFrame + proto.HeadLen + 1000})},
	{"serves a DELIVER that was turned away", delivered(func(r *rig) {
		r.end[1].GoAway(r.now, 10_000, wire.CodeDraining, "")
	}, [2]int{0, deliverFrame + proto.HeadLen + 1000})},
	{"serves a DELIVER that was turned away, with all its bytes", delivered(func(r *rig) {
		r.end[1].GoAway(r.now, 10_000, wire.CodeDraining, "")
	}, [2]int{0, deliverFrame + dataFrame})},
	{"makes homes", func(r *rig, _, _ uint16) {
		num := r.small(0)
		r.stockHeld = true
		r.push(0, proto.ClassUrgent, num, sceneBody, "q", "r")
		r.run()
	}},
	{"says GOAWAY", func(r *rig, _, _ uint16) { r.end[1].GoAway(r.now, 10_000, wire.CodeDraining, "") }},
	{"heard GOAWAY", func(r *rig, _, _ uint16) { r.feed(0, frameOf(proto.TypeGoAway, 0, proto.GoAway{MS: 10_000})) }},
	{"busy", func(r *rig, num, back uint16) {
		held(pulling(tableFrame+proto.HeadLen+1000))(r, num, back)
		r.held = false
		r.push(1, proto.ClassNormal, back, sceneBody, "p")
		r.all(1, 2)
		r.all(0, 2)
		r.move(1, 2, 500)
		hasCall(r, back)
		r.push(0, proto.ClassNormal, num, sceneBody, "q")
		r.all(0, 2)
		r.pull(0, proto.ClassUrgent, num, sceneBody, "v")
	}},
}

// likePush are scenes of DELIVER that differ from those of PUSH by nothing but how
// they were come to: for the walk over the page's states.
var likePush = []scene{
	{"DELIVER is out", delivering()},
	{"DELIVER committed", delivering([2]int{1, 1 << 20})},
	{"DELIVER has its TABLE", delivering([2]int{1, 1 << 20}, [2]int{0, tableFrame})},
	{"DELIVER taken back in mid-body", takenBack(delivering([2]int{1, deliverFrame + 1000}))},
	{"serves a DELIVER", delivered(asBefore, [2]int{0, deliverFrame})},
	{"serves a DELIVER with all its bytes", delivered(func(r *rig) { r.held = true }, [2]int{0, deliverFrame + dataFrame})},
	{"serves a DELIVER committed, being hashed", delivered(func(r *rig) { r.held = true }, [2]int{0, 1 << 20})},
}

// inScene makes a rig whose side b is in a scene.
func inScene(t *testing.T, set func(*rig, uint16, uint16)) (r *rig, num, back uint16) {
	t.Helper()
	r = newHomeRig(t, 2, proto.Limits{}, 4)
	r.quiet = true
	num, back = r.open(0), r.open(1)
	r.put(0, sceneBody, "x", "y")
	r.put(1, sceneBody, "v", "w")
	set(r, num, back)
	return r, num, back
}

func busy(t *testing.T) (r *rig, num, back uint16) {
	return inScene(t, scenes[len(scenes)-1].set)
}

// forms are payloads of every message, valid ones and such that only a look at all
// of it shows to be wrong.
func forms(r *rig, num uint16) map[proto.Type][][]byte {
	m := func(list ...proto.Message) (out [][]byte) {
		for _, x := range list {
			out = append(out, x.Append(nil))
		}
		return out
	}
	x := r.store[0].blocks[r.key("x")]
	good := x.have()
	bad, long := good, good
	bad.Head[0] ^= 1
	long.Len++
	absent := proto.Have{Status: wire.CodeAbsent}
	want := proto.Want{NS: num, Key: r.key("v"), Max: sceneBody}
	item := proto.PushItem{NS: num, Key: r.key("n"), Have: good}
	ready := item
	ready.NS, ready.Key = num+1, r.key("m") // where homes stand ready, if any do
	lost := proto.PushItem{NS: num + 9, Key: r.key("n"), Have: bad}
	return map[proto.Type][][]byte{
		proto.TypeHello:    m(proto.Hello{Min: 1, Max: 1}),
		proto.TypeOpen:     m(proto.Open{Manifest: manifest("t").Append(nil)}, proto.Open{Manifest: []byte("{}")}, proto.Open{}),
		proto.TypeOpened:   m(proto.Opened{NS: 1}, proto.Opened{NS: 0}, proto.Opened{Status: wire.CodeNSUnknown}, proto.Opened{NS: 3, Status: wire.CodeManifest}),
		proto.TypeHas:      m(proto.Has{DeadlineMS: 50, Items: []proto.Want{want}}, proto.Has{}),
		proto.TypeStat:     m(proto.Has{DeadlineMS: 50, Items: []proto.Want{want}}, proto.Has{}),
		proto.TypeTable:    m(proto.Table{Items: []proto.Have{good}}, proto.Table{Items: []proto.Have{bad}}, proto.Table{Items: []proto.Have{long}}, proto.Table{Items: []proto.Have{absent}}, proto.Table{Items: []proto.Have{good, good}}, proto.Table{}),
		proto.TypePull:     m(proto.Pull{DeadlineMS: 50, LeaseMS: 9, Items: []proto.Want{want}}, proto.Pull{}, proto.Pull{DeadlineMS: 50, Items: slices.Repeat([]proto.Want{{Max: 1 << 30}}, 9)}),
		proto.TypePush:     m(proto.Push{DeadlineMS: 50, Items: []proto.PushItem{item}}, proto.Push{DeadlineMS: 50, Items: []proto.PushItem{item, lost, item}}, proto.Push{}),
		proto.TypeGrant:    m(proto.Grant{Status: []wire.Code{0}}, proto.Grant{Status: []wire.Code{wire.CodeFull}}, proto.Grant{Status: []wire.Code{0, 0}}, proto.Grant{}),
		proto.TypeCommit:   m(proto.Empty{}),
		proto.TypeEnd:      m(proto.End{}, proto.End{Status: []wire.Code{0}}, proto.End{Status: []wire.Code{0, 0}}, proto.End{Code: wire.CodeDeadline, Text: "late", Status: []wire.Code{wire.CodeDeadline}}),
		proto.TypeRenew:    m(proto.Renew{MS: 5}),
		proto.TypeRelease:  m(proto.Release{Leases: [][16]byte{{0: 1}, {0: 9, 15: 1}}}, proto.Release{}),
		proto.TypePing:     m(proto.Empty{}),
		proto.TypeCancel:   m(proto.Empty{}),
		proto.TypeAbort:    m(proto.Empty{}),
		proto.TypeGoAway:   m(proto.GoAway{MS: 5, Code: wire.CodeDraining, Text: "bye"}),
		proto.TypeStanding: m(proto.Standing{NS: num, N: 9, Len: 4096}, proto.Standing{NS: num + 1}, proto.Standing{}, proto.Standing{NS: 1025, N: 1}),
		proto.TypeDeliver:  m(proto.Push{DeadlineMS: 50, Items: []proto.PushItem{item}}, proto.Push{DeadlineMS: 50, Items: []proto.PushItem{item, lost, item}}, proto.Push{DeadlineMS: 50, Items: []proto.PushItem{ready, ready}}, proto.Push{}, proto.Push{DeadlineMS: 50, Items: slices.Repeat([]proto.PushItem{{Have: proto.Have{Len: 1 << 31}}}, 9)}),
		proto.TypeError:    m(proto.Error{Code: wire.CodeCRC, Offset: 7, Text: "no"}),
	}
}

// bent are some changed copies of a payload: cut, with something behind it, and with
// a byte of its fields at an edge.
func bent(rnd *rand.Rand, p []byte) (out [][]byte) {
	for n := range p {
		if rnd.IntN(12) == 0 {
			out = append(out, p[:n])
		}
	}
	out = append(out, append(slices.Clone(p), 0))
	for at := range p {
		v := []byte{0, 0xff, p[at] + 1, p[at] ^ 0x80}[rnd.IntN(4)]
		if v != p[at] && rnd.IntN(5) == 0 {
			q := slices.Clone(p)
			q[at] = v
			out = append(out, q)
		}
	}
	return out
}

// ids are the ids that side b can meet: of its calls, of a's requests, free ones of
// both sides, and none.
func ids(s *Session) []uint64 {
	out := []uint64{0, 901, 902, 1, 2}
	for id := range s.calls {
		out = append(out, id)
	}
	for id := range s.served {
		out = append(out, id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// A message that is refused changes nothing, whatever it is, whatever is wrong with
// it, and whatever runs: what can be reached from the session and its store is byte
// for byte as it was. Only then is the lane closed.
func TestARefusedMessageChangesNothing(t *testing.T) {
	refusals, taken := 0, 0
	for _, sc := range scenes {
		rnd := rand.New(rand.NewPCG(uint64(len(sc.name)), 7))
		r, num, _ := inScene(t, sc.set)
		before := digest(r.end[1])
		// give hands b one message, and reports whether it was taken.
		give := func(idx uint8, f proto.Frame, p []byte) bool {
			s := r.end[1]
			l := s.Lane(idx)
			var err error
			if f.Type == proto.TypeData {
				err = l.beginData(proto.Event{Frame: f, Offset: uint64(p[0]) * 500, Left: int(f.Len) - proto.DataPrefixLen})
			} else {
				err = l.message(r.now+time.Second, f, p)
			}
			if err == nil {
				taken++
				r, _, _ = inScene(t, sc.set)
				return true
			}
			refusals++
			if after := digest(s); after != before {
				t.Errorf("%s: %v req %d on lane %d, payload %x: refused with %v, and yet\n%s", sc.name, f.Type, f.Req, idx, p, err, firstDifference(before, after))
				r, _, _ = inScene(t, sc.set)
			}
			return false
		}
		all := forms(r, num)
		for typ := proto.TypeHello; typ <= proto.TypeDeliver; typ++ {
			for k, p := range all[typ] {
				for _, id := range ids(r.end[1]) {
					for idx := range uint8(3) {
						if k > 0 && (idx == 2 && sc.name != "busy" || laneRules[typ]&onData == 0 != (idx == 0)) {
							continue // the wrong lane is seen with the first form of each
						}
						f := proto.Frame{Type: typ, Req: id, Len: uint32(len(p) + proto.TrailerLen)}
						// What b takes is bent as well; requests of idle and busy sessions are
						// enough, since what runs does not bear on them.
						if give(idx, f, p) && (typ == proto.TypeOpened || typ == proto.TypeTable || typ == proto.TypeGrant || typ == proto.TypeEnd || sc.name == "idle" || sc.name == "busy") {
							for _, q := range bent(rnd, p) {
								give(idx, f, q)
							}
						}
					}
				}
			}
		}
		for _, id := range ids(r.end[1]) {
			for idx := range uint8(3) {
				for _, n := range []uint32{1, sceneBody - 1000, sceneBody + 1} {
					for _, at := range []byte{0, 2} {
						for arg := range uint32(2) {
							give(idx, proto.Frame{Type: proto.TypeData, Req: id, Arg: arg, Len: n + proto.DataPrefixLen}, []byte{at})
						}
					}
				}
			}
		}
	}
	t.Logf("%d refused, %d taken", refusals, taken)
	if refusals < 4000 || taken < 500 {
		t.Errorf("%d refused, %d taken: too few to show anything", refusals, taken)
	}
}

// firstDifference is the first line in which two digests differ.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("was %.300s\nis  %.300s", x[i], y[i])
		}
	}
	return fmt.Sprintf("%d lines were %d", len(y), len(x))
}
