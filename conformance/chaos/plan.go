package chaos

import (
	"time"

	"meridian/wire/link"
)

// ActionKind is a way to hurt a stream.
type ActionKind uint8

const (
	// Delay holds the bytes from the trigger on back for For.
	Delay ActionKind = iota + 1
	// Cut closes both directions at the trigger, in the middle of a frame or not.
	Cut
	// Reset is Cut with a TCP reset instead of an orderly end.
	Reset
	// HalfClose ends this direction at the trigger; what its sender still sends
	// is read and thrown away, the other direction goes on.
	HalfClose
	// Duplicate sends the Len bytes from the trigger on twice, or with Frame the
	// whole frame.
	Duplicate
	// Flip turns one bit, once in the whole proxy unless Repeat is set.
	Flip
	// Throttle lets at most Rate bytes a second through from the trigger on.
	Throttle
	actionKinds
)

var actionNames = [actionKinds]string{"", "delay", "cut", "reset", "half-close", "duplicate", "flip", "throttle"}

// String is the kind's name in lower case.
func (k ActionKind) String() string {
	if k < actionKinds {
		return actionNames[k]
	}
	return "unknown"
}

// Direction is a direction through the proxy.
type Direction uint8

// The directions; Both is the zero value.
const (
	Both    Direction = iota
	ToBack            // from the side that dialled the proxy to the target
	ToFront           // from the target back
)

var directionNames = [3]string{"both", "to-back", "to-front"}

// String names the direction.
func (d Direction) String() string {
	return directionNames[d%3]
}

// Action is one line of a plan. Its trigger is a place in the stream of one
// direction of one connection: a byte, a frame, or again and again by the seed.
// The places depend on the seed, the connection's number and the direction
// alone, never on how the bytes happened to be cut into reads.
type Action struct {
	Kind   ActionKind
	Dir    Direction
	Conn   int           // only the n-th connection, from 1; 0: every one
	At     uint64        // offset of the byte that triggers
	Every  uint64        // instead: on average once in so many bytes, by the seed
	Frame  int           // instead: the n-th frame of Type, from 1
	Type   link.Type     // 0: DATA
	Body   int64         // Flip with Frame: offset in the frame's body; -1: by the seed
	Bit    uint8         // Flip: 0..7
	For    time.Duration // Delay
	Len    int           // Duplicate: bytes, at most MaxDuplicate
	Rate   int64         // Throttle: bytes a second
	Repeat bool          // Flip: on every connection and direction that the trigger fits
}

// MaxDuplicate bounds what a Duplicate keeps, in bytes: one frame of the largest kind.
const MaxDuplicate = link.FrameLen + link.MaxControl

// Flipped says where a bit was turned.
type Flipped struct {
	Conn  int
	Dir   Direction
	Off   uint64 // of the byte in the direction's stream
	Bit   uint8
	Frame int    // the how manieth frame of its type it lay in, from 1; 0 where frames were not looked at
	Req   uint64 // of that frame
	Body  uint64 // offset in the frame's body bytes (DATA: after the u32 offset)
}

// trigger is an action with its place in one stream.
type trigger struct {
	*Action
	at    uint64 // absolute offset
	end   uint64 // Duplicate: where the bytes to repeat end
	lead  []byte // Duplicate with Frame: the frame's header, which has passed already
	place Flipped
	salt  uint64 // Every: the action's place in the plan
	draws uint64 // Every: how many places were drawn
}

// stream is the plan of one direction of one connection, and how far it is.
type stream struct {
	conn    int
	dir     Direction
	seed    uint64
	off     uint64
	pending []trigger // by no order; few
	frames  *frames   // nil: nothing looks at frames
}

func newStream(seed uint64, conn int, dir Direction, plan []Action) *stream {
	s := &stream{conn: conn, dir: dir, seed: splitMix(seed ^ splitMix(uint64(conn)<<2|uint64(dir)))}
	for i := range plan {
		a := &plan[i]
		if a.Dir != Both && a.Dir != dir || a.Conn != 0 && a.Conn != conn {
			continue
		}
		switch {
		case a.Frame > 0:
			if s.frames == nil {
				s.frames = &frames{}
			}
			s.frames.actions = append(s.frames.actions, a)
		case a.Every > 0:
			t := trigger{Action: a, salt: uint64(i)}
			s.redraw(&t)
			s.pending = append(s.pending, t)
		default:
			s.add(trigger{Action: a, at: a.At})
		}
	}
	return s
}

// add arms a trigger.
func (s *stream) add(t trigger) {
	if t.Kind == Duplicate && t.end == 0 {
		t.end = t.at + uint64(min(max(t.Len, 1), MaxDuplicate))
	}
	if t.place == (Flipped{}) {
		t.place = Flipped{Off: t.at, Bit: t.Bit}
	}
	t.place.Conn, t.place.Dir = s.conn, s.dir
	s.pending = append(s.pending, t)
}

// redraw moves a repeated trigger to its next place: a uniform step with the
// mean Every.
func (s *stream) redraw(t *trigger) {
	t.draws++
	draw := splitMix(s.seed ^ splitMix(t.salt<<32|t.draws))
	t.at += 1 + draw%(2*t.Every)
	if t.Kind == Duplicate {
		t.end = t.at + uint64(min(max(t.Len, 1), MaxDuplicate))
	}
	t.place = Flipped{Conn: s.conn, Dir: s.dir, Off: t.at, Bit: t.Bit}
}

// next is the index of the earliest armed trigger below limit, or -1.
func (s *stream) next(limit uint64) int {
	best := -1
	for i := range s.pending {
		if at := s.pending[i].at; at < limit && (best < 0 || at < s.pending[best].at) {
			best = i
		}
	}
	return best
}

// take disarms a trigger and returns it; one that repeats by the seed is armed anew.
func (s *stream) take(i int) trigger {
	t := s.pending[i]
	if t.Every > 0 && t.Kind != Throttle {
		s.redraw(&s.pending[i])
		return t
	}
	s.pending[i] = s.pending[len(s.pending)-1]
	s.pending = s.pending[:len(s.pending)-1]
	return t
}

// frames follows the frames of a stream. It needs no more than one header of
// memory, and gives up where the stream is not the link's (TLS, junk).
type frames struct {
	actions []*Action
	head    [link.FrameLen]byte
	have    int    // bytes of head
	skip    uint64 // bytes of the present payload still to come
	seen    map[link.Type]int
	lost    bool
}

// follow looks at the next bytes of the stream, which begin at off, and calls
// found with each header and the offset where its frame begins.
func (f *frames) follow(b []byte, off uint64, found func(h link.Frame, nth int, at uint64)) {
	for len(b) > 0 && !f.lost {
		if f.skip > 0 {
			n := min(f.skip, uint64(len(b)))
			f.skip, b, off = f.skip-n, b[n:], off+n
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have, b, off = f.have+n, b[n:], off+uint64(n)
		if f.have < link.FrameLen {
			return
		}
		f.have = 0
		h, err := link.ParseFrame(f.head[:])
		if err != nil {
			f.lost = true
			return
		}
		f.skip = uint64(h.Len)
		if f.seen == nil {
			f.seen = make(map[link.Type]int)
		}
		f.seen[h.Type]++
		found(h, f.seen[h.Type], off-link.FrameLen)
	}
}

// arm turns the actions that wait for this frame into triggers inside it. They
// lie behind its header, which has passed already or passes now.
func (s *stream) arm(h link.Frame, nth int, at uint64) {
	for _, a := range s.frames.actions {
		want := a.Type
		if want == 0 {
			want = link.TypeData
		}
		if h.Type != want || nth != a.Frame {
			continue
		}
		t := trigger{Action: a, at: at + link.FrameLen}
		switch a.Kind {
		case Flip:
			prefix := uint64(0)
			if h.Type == link.TypeData {
				prefix = link.DataPrefixLen
			}
			if uint64(h.Len) <= prefix {
				continue // no byte of body to turn
			}
			room := uint64(h.Len) - prefix
			body := uint64(a.Body)
			if a.Body < 0 {
				body = splitMix(s.seed^uint64(nth)) % room
			}
			body = min(body, room-1)
			t.at += prefix + body
			t.place = Flipped{Off: t.at, Bit: a.Bit, Frame: nth, Req: h.Req, Body: body}
		case Duplicate:
			t.end = at + link.FrameLen + uint64(h.Len)
			t.lead = h.Append(nil)
		}
		s.add(t)
	}
}
