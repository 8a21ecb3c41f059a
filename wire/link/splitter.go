package link

import (
	"fmt"
	"hash/crc32"

	"meridian/internal/invariants"
	"meridian/wire"
)

// A lane's bytes go through a Splitter in this order; a shell owns the socket,
// the Splitter only counts and assembles.
//
//	1 the shell reads into its own buffer and calls Next until that is used up
//	2 header bytes are assembled and checked
//	3 a control payload is assembled in buf (or taken from b where it lies whole
//	  in it), its crc32c checked: EventMessage
//	4 of a DATA frame first the place is announced, EventPlace; then either
//	  Next hands body bytes out, EventBytes, or the shell reads the Left bytes
//	  straight to their home, HeadLen bytes of the next frame behind them in
//	  the same readv, and tells Direct how many of the former came
//	5 a frame of unknown type runs through unassembled: EventSkipped

// EventKind says what Next found.
type EventKind uint8

// The kinds of Event.
const (
	EventNone    EventKind = iota // b is used up
	EventMessage                  // a control frame is whole: Frame, Payload without trailer
	EventPlace                    // DATA begins: Frame (Arg: first item), Offset, Left bytes follow
	EventBytes                    // body bytes of DATA: Frame, Offset, Payload
	EventSkipped                  // a frame of unknown type went by; answer END UNSUPPORTED to Frame.Req
)

// Event is one finding of a Splitter.
type Event struct {
	Kind  EventKind
	Frame Frame
	// Payload aliases b or the Splitter's buffer: it is good until the next call
	// of Next and as long as b is.
	Payload []byte
	Offset  uint64 // DATA: place of the next body byte, counted from item Frame.Arg's first
	Left    int    // DATA: body bytes of this frame that are still to come after this event
}

// stage is what the next byte belongs to.
type stage uint8

const (
	stageHead stage = iota
	stageControl
	stageSkip
	stagePrefix
	stageBody
)

// keepBuffer is the largest assembly buffer, in bytes, that stays with a lane
// between two frames: a TABLE of MaxItems fits.
const keepBuffer = 256 << 10

// Splitter cuts a lane's byte stream into frames. It holds at most one control
// payload, for which memory grows with the bytes that came, not with the
// length announced. The zero value stands at a lane's first byte, where only
// HELLO or ERROR may come: anything else is LINK_MAGIC. After an error the lane
// is at its end and Next repeats the error.
type Splitter struct {
	// Begun says that the lane's first HELLO has come. Next sets it; a
	// caller that reads HELLO by other means sets it too.
	Begun bool
	// Plain says that both HELLOs had FeaturePlain: from the next frame on,
	// checksums are 0. Only on an engine's socket, and set after HELLO.
	Plain bool

	stage stage
	frame Frame
	head  [FrameLen]byte // header, then the DATA prefix, as far as they came
	have  int
	left  int    // bytes of the frame still to come
	crc   uint32 // of a skipped frame, trailer excluded
	off   uint64 // DATA: place of the next body byte
	pos   uint64 // bytes of the lane consumed so far
	whole uint64 // of them, those of frames that are whole
	buf   []byte
	err   error
}

// Next takes bytes from the front of b, n of them, up to the first event. It
// always takes at least one of a b that is not empty, unless it returns an
// error. An error is a [*FrameError] whose Offset counts from the lane's start.
func (s *Splitter) Next(b []byte) (n int, ev Event, err error) {
	if s.err != nil {
		return 0, Event{}, s.err
	}
	for n < len(b) && ev.Kind == EventNone && err == nil {
		var took int
		from := b[n:]
		switch s.stage {
		case stageHead:
			took, err = s.takeHead(from)
		case stageControl:
			took, ev, err = s.takeControl(from)
		case stageSkip:
			took, ev, err = s.takeSkipped(from)
		case stagePrefix:
			took, ev = s.takePrefix(from)
		case stageBody:
			took, ev = s.takeBody(from)
		}
		n += took
		s.advance(took)
	}
	s.err = err
	return n, ev, err
}

// Need is how many bytes a shell may read now without passing the end of what
// it is in: the rest of a frame's head (HeadLen at a frame's start), of a
// control payload, or of a DATA frame's body.
func (s *Splitter) Need() int {
	switch s.stage {
	case stageHead:
		return HeadLen - s.have
	case stagePrefix:
		return DataPrefixLen - s.have
	}
	return s.left
}

// Left is how many body bytes of the current DATA frame are still to come: 0
// outside of one.
func (s *Splitter) Left() int {
	if s.stage == stageBody {
		return s.left
	}
	return 0
}

// Direct accounts for n body bytes, at most Left, that the shell has read
// straight to their home.
func (s *Splitter) Direct(n int) error {
	if n < 0 || n > s.Left() {
		return &FrameError{Code: wire.CodeState, Offset: s.pos, Field: "data", Got: uint64(n), Limit: uint64(s.Left()),
			Text: fmt.Sprintf("%d body bytes placed, %d were due", n, s.Left())}
	}
	s.body(n)
	s.advance(n)
	return nil
}

func (s *Splitter) advance(n int) {
	s.pos += uint64(n)
	if s.stage == stageHead && s.have == 0 {
		s.whole = s.pos
	}
}

// Offset is how many bytes of the lane have been consumed.
func (s *Splitter) Offset() uint64 { return s.pos }

// Whole is how many of them are of frames that are whole. The others are the beginning
// of one that is not.
func (s *Splitter) Whole() uint64 { return s.whole }

// takeHead assembles and checks a frame header.
func (s *Splitter) takeHead(b []byte) (int, error) {
	n := copy(s.head[s.have:], b)
	s.have += n
	if s.have < FrameLen {
		return n, nil
	}
	start := s.pos + uint64(n) - FrameLen
	f, fail := parseFrame(s.head[:], s.Plain)
	if !s.Begun && (fail != nil || f.Type != TypeHello && f.Type != TypeError) {
		return n, &FrameError{Code: wire.CodeLinkMagic, Offset: start, Field: "type", Text: "the first frame is no HELLO"}
	}
	if fail != nil {
		return n, fail.at(start)
	}
	if !f.Type.Known() && f.Flags&FlagCritical != 0 {
		return n, &FrameError{Code: wire.CodeUnsupported, Offset: start + 4, Field: "type", Got: uint64(f.Type),
			Text: fmt.Sprintf("critical frame of unknown %s", f.Type)}
	}
	s.Begun = true
	s.frame, s.have, s.left = f, 0, int(f.Len)
	switch {
	case f.Type == TypeData:
		s.stage = stagePrefix
	case f.Type.Known():
		s.stage = stageControl
		if cap(s.buf) > keepBuffer {
			s.buf = nil
		}
		invariants.Overwrite(s.buf)
		s.buf = s.buf[:0]
	default:
		s.stage, s.crc = stageSkip, 0
	}
	return n, nil
}

// takeControl assembles a control payload.
func (s *Splitter) takeControl(b []byte) (int, Event, error) {
	n := min(s.left, len(b))
	whole := b[:n]
	if n < s.left || len(s.buf) > 0 {
		s.buf = append(s.buf, whole...)
		whole = s.buf
	}
	s.left -= n
	if s.left > 0 {
		return n, Event{}, nil
	}
	s.stage = stageHead
	p, fail := payload(s.frame, whole, s.Plain)
	if fail != nil {
		return n, Event{}, fail.at(s.pos + uint64(n) - uint64(s.frame.Len))
	}
	return n, Event{Kind: EventMessage, Frame: s.frame, Payload: p}, nil
}

// takeSkipped lets a frame of unknown type go by and checks its crc32c on the
// way. The trailer is assembled in head.
func (s *Splitter) takeSkipped(b []byte) (int, Event, error) {
	n := min(s.left, len(b))
	covered := min(max(s.left-TrailerLen, 0), n)
	if !s.Plain {
		s.crc = crc32.Update(s.crc, castagnoli, b[:covered])
	}
	s.have += copy(s.head[s.have:TrailerLen], b[covered:n])
	s.left -= n
	if s.left > 0 {
		return n, Event{}, nil
	}
	s.stage, s.have = stageHead, 0
	if got := le.Uint32(s.head[:]); got != s.crc {
		return n, Event{}, errCRC("payload", 0, got, s.crc).at(s.pos + uint64(n) - TrailerLen)
	}
	return n, Event{Kind: EventSkipped, Frame: s.frame}, nil
}

// takePrefix assembles the offset of a DATA frame.
func (s *Splitter) takePrefix(b []byte) (int, Event) {
	n := copy(s.head[s.have:DataPrefixLen], b)
	s.have += n
	s.left -= n
	if s.have < DataPrefixLen {
		return n, Event{}
	}
	s.stage, s.have = stageBody, 0
	s.off = uint64(le.Uint32(s.head[:]))
	return n, Event{Kind: EventPlace, Frame: s.frame, Offset: s.off, Left: s.left}
}

// takeBody hands body bytes out.
func (s *Splitter) takeBody(b []byte) (int, Event) {
	n := min(s.left, len(b))
	off := s.off
	s.body(n)
	return n, Event{Kind: EventBytes, Frame: s.frame, Payload: b[:n], Offset: off, Left: s.left}
}

func (s *Splitter) body(n int) {
	s.left -= n
	s.off += uint64(n)
	if s.left == 0 {
		s.stage = stageHead
	}
}

// at moves a fault found in a piece of the lane to where that piece begins.
func (e *FrameError) at(start uint64) *FrameError {
	e.Offset += start
	return e
}
