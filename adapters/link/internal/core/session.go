package core

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// Config is what a session is made of: its own side, and what HELLO told
// about the other.
type Config struct {
	Dialler    bool // its request ids are odd, the acceptor's even
	Store      Store
	Namespaces Namespaces
	Tenants    Tenants      // proved by the peer
	Mine       proto.Limits // granted to the peer
	Theirs     proto.Limits // granted by the peer

	OneFlight bool   // both HELLOs have FeatureStanding
	Homes     int    // most homes that wait for pushes of the peer
	HomeBytes uint64 // and their bytes

	Looker Looker // nil: what is not here is ABSENT
}

// Session is one peer incarnation's requests in both directions, over its
// lanes. Not safe for concurrent use: its owner has one lock round it.
type Session struct {
	cfg     Config
	lanes   [proto.MaxLanes + 1]*Lane
	nextReq uint64

	calls  map[uint64]*request // mine, until END or the lane's end
	served map[uint64]*request // the peer's
	leased map[Lease]*request  // the pulls of the peer that run and whose lease it knows
	queue  [4][]*Call          // mine that wait for the peer's limits, by class

	// Pushes in one flight: homes that wait or are being made for the peer, over all
	// namespaces; jobs that make some; and what the peer told of its own.
	homes     int
	homeBytes uint64
	making    int
	allowed   map[uint16]*allowance

	nsIn  []openNS // what the peer opened here; its number is the index + 1
	nsNum map[wire.Namespace]uint16

	servedReqs, callReqs   int    // that count against Reqs
	servedBytes, callBytes uint64 // that count against BytesInFlight
	growReqs               int    // of callReqs, those of pushes that grow
	growBytes              uint64 // and of callBytes

	wake       uint32 // lanes that have something to send
	events     []Event
	lane0Lost  time.Duration
	lane0Ever  bool
	draining   bool // we said GOAWAY
	peerLeaves bool // the peer said GOAWAY
	closeAt    time.Duration
	dead       bool
	why        wire.Code
	rtt        time.Duration // of the last PING
	released   bool
	totals     Totals

	idleScratch []byte // of no lane; see takeScratch

	// What messages are parsed to and made from, each until the next one.
	scratch struct {
		has   proto.Has
		pull  proto.Pull
		push  proto.Push
		table proto.Table
		grant proto.Grant
		end   proto.End
		seen  []Block
		head  []wire.Header // of table's items that are OK
		want  []proto.Want
		have  []proto.Have
		code  []wire.Code

		pulled []Block
	}

	looking int // HAS that are looked for elsewhere
}

// openNS is a namespace of the peer's.
type openNS struct {
	ns         wire.Namespace
	blockBytes uint32 // the longest body that a push may bring
	stock      stock
}

// Totals count what a session did since it began.
type Totals struct {
	BytesIn, BytesOut       uint64 // bodies, verified or sent
	ChecksumFailures        uint64
	RequestsIn, RequestsOut uint64
	Busy                    uint64
}

// Stats are the counts that return to zero when nothing runs.
type Stats struct {
	Calls, Waiting, Served, Refs int
	CallBytes, ServedBytes       uint64
	Totals                       Totals
}

// EventKind says what an Event tells.
type EventKind uint8

// The events. EventLaneDead asks the caller to close the lane's connection.
const (
	EventLaneDead EventKind = iota + 1
	EventPeerError
	EventGoAway
	EventChecksum
	EventServed
	EventTurnedAway // a request of the peer was not begun: Code is BUSY or DRAINING
	EventRefused
	EventGone
)

// Event is something that the caller may want to act on, log or count.
type Event struct {
	Kind  EventKind
	Lane  uint8
	Code  wire.Code
	Text  string
	Push  bool // EventServed: bytes came in
	Class proto.Class
	Items int
	Bytes uint64
	Took  time.Duration

	Refused []wire.Code // EventServed: a code for each block that was refused
}

// New begins a session without lanes.
func New(cfg Config) *Session {
	s := &Session{
		cfg: cfg, nextReq: 1,
		calls: map[uint64]*request{}, served: map[uint64]*request{}, leased: map[Lease]*request{}, nsNum: map[wire.Namespace]uint16{},
	}
	if !cfg.Dialler {
		s.nextReq = 2
	}
	s.cfg.Theirs = clampLimits(cfg.Theirs)
	s.cfg.Mine = clampLimits(cfg.Mine)
	return s
}

// clampLimits brings limits into the range of the protocol.
func clampLimits(l proto.Limits) proto.Limits {
	l.Reqs = min(max(l.Reqs, 1), proto.MaxReqs)
	l.Items = min(max(l.Items, 1), proto.MaxItems)
	l.Frame = min(max(l.Frame, proto.MinFrame), proto.MaxData)
	l.BytesInFlight = min(max(l.BytesInFlight, 1), proto.MaxBytesInFlight)
	l.LingerMS = min(l.LingerMS, uint32(proto.MaxLinger/time.Millisecond))
	return l
}

// AddLane attaches lane idx, whose HELLOs are done and went through sp. A lane
// that is there already must be taken down first.
func (s *Session) AddLane(now time.Duration, idx uint8, sp proto.Splitter) (*Lane, error) {
	if idx > proto.MaxLanes {
		return nil, fmt.Errorf("lane %d: %w", idx, wire.CodeState)
	}
	if s.dead || s.lanes[idx] != nil {
		return nil, fmt.Errorf("lane %d is taken or the session has ended: %w", idx, wire.CodeState)
	}
	l := &Lane{s: s, idx: idx}
	sp.Begun = true
	l.rx.sp = sp
	l.lastRx, l.lastTx, l.frameRx = now, now, now
	s.lanes[idx] = l
	if idx == 0 {
		s.lane0Ever = true
	}
	s.pump(now)
	return l, nil
}

// LaneDown takes a lane out: its connection is closed, or is about to be.
// Requests on it end with code. It may be called twice.
func (s *Session) LaneDown(now time.Duration, l *Lane, code wire.Code) {
	if s.lanes[l.idx] == l {
		s.lanes[l.idx] = nil
		if l.idx == 0 {
			s.lane0Lost = now
		}
	}
	l.dead = true
	l.dropRequests(now, code, "the lane was lost")
	s.wake |= 1 << l.idx
	s.release()
}

// Lane returns lane idx, or nil.
func (s *Session) Lane(idx uint8) *Lane { return s.lanes[idx] }

// Up reports whether lane idx can carry requests.
func (s *Session) Up(idx uint8) bool { return s.lanes[idx].open() }

// Granted are the limits that the peer granted.
func (s *Session) Granted() proto.Limits { return s.cfg.Theirs }

// DataLanes counts the lanes above 0 that are up.
func (s *Session) DataLanes() int {
	n := 0
	for _, l := range s.lanes[1:] {
		if l.open() {
			n++
		}
	}
	return n
}

// Ready reports whether new calls can be sent: lane 0 and a data lane are up
// and the peer is not leaving.
func (s *Session) Ready() bool {
	return !s.dead && !s.peerLeaves && s.lanes[0].open() && slices.ContainsFunc(s.lanes[1:], (*Lane).open)
}

// Dead reports whether the session has ended, and why.
func (s *Session) Dead() (wire.Code, bool) { return s.why, s.dead }

// RTT is the time that the last PING took; 0 before the first was answered.
func (s *Session) RTT() time.Duration { return s.rtt }

// Leaving reports whether the peer sent GOAWAY.
func (s *Session) Leaving() bool { return s.peerLeaves }

// Drop ends the session at once: every lane is dead, every request ends with
// code, and what the peer held here is freed as soon as nothing touches it.
func (s *Session) Drop(now time.Duration, code wire.Code) {
	if s.dead {
		return
	}
	s.dead, s.why = true, code
	s.giveAllHomes()
	for _, l := range s.lanes {
		if l != nil {
			l.kill(now, code, "the session ended")
		}
	}
	for c := range s.queue {
		for _, call := range s.queue[c] {
			s.finishCall(call, code, "")
		}
		s.queue[c] = nil
	}
	s.events = append(s.events, Event{Kind: EventGone, Code: code})
	s.release()
}

// release gives the store back what the peer held, once nothing is in use.
func (s *Session) release() {
	if !s.dead || s.released || len(s.served) > 0 || s.making > 0 {
		return
	}
	s.released = true
	s.cfg.Store.Drop()
}

// GoAway tells the peer that this side leaves in ms milliseconds.
func (s *Session) GoAway(now time.Duration, ms uint32, code wire.Code, text string) {
	if s.draining || s.dead {
		return
	}
	s.draining = true
	s.giveAllHomes()
	s.closeAt = now + time.Duration(ms)*time.Millisecond
	if l := s.lanes[0]; l.open() {
		l.send(proto.Frame{Type: proto.TypeGoAway}, proto.GoAway{MS: ms, Code: code, Text: text})
	}
}

// Idle reports whether no request of either side runs.
func (s *Session) Idle() bool { return s.Stats().Calls == 0 && len(s.served) == 0 }

// Moves is a number that changes when a body moves, a request begins or one ends:
// while it stays the same, nothing goes on.
func (s *Session) Moves() uint64 {
	n := s.totals.RequestsIn + s.totals.RequestsOut + uint64(len(s.calls)+len(s.served))<<32
	for _, l := range s.lanes {
		if l != nil {
			n += l.moved.total()
		}
	}
	return n
}

// Stats counts what runs.
func (s *Session) Stats() Stats {
	st := Stats{
		Calls: len(s.calls), Served: len(s.served),
		CallBytes: s.callBytes, ServedBytes: s.servedBytes, Totals: s.totals,
	}
	for _, q := range s.queue {
		st.Waiting += len(q)
	}
	for _, r := range s.calls {
		st.Refs += r.refs
	}
	for _, r := range s.served {
		st.Refs += r.refs
	}
	return st
}

// Tick moves time on: deadlines, keepalive, linger. Once in 50 ms is enough.
func (s *Session) Tick(now time.Duration) {
	if s.dead {
		return
	}
	s.tickServed(now)
	s.tickCalls(now)
	s.tickStock(now)
	for _, l := range s.lanes {
		if l != nil {
			l.tick(now)
		}
	}
	ms := s.cfg.Mine.LingerMS // the acceptor's counts
	if s.cfg.Dialler {
		ms = s.cfg.Theirs.LingerMS
	}
	linger := time.Duration(ms) * time.Millisecond
	switch {
	case s.lanes[0] == nil && s.lane0Ever && now-s.lane0Lost >= linger:
		s.Drop(now, wire.CodeLaneLost)
	case s.draining && now >= s.closeAt:
		s.Drop(now, wire.CodeDraining)
	}
}

// TakeWake returns the lanes, one a bit, that got something to send or died
// since the last call.
func (s *Session) TakeWake() uint32 {
	w := s.wake
	s.wake = 0
	return w
}

// EachLane calls f for each lane of a mask of TakeWake.
func EachLane(mask uint32, f func(idx uint8)) {
	for mask != 0 {
		i := bits.TrailingZeros32(mask)
		mask &^= 1 << i
		f(uint8(i))
	}
}

// TakeEvents returns what happened since the last call.
func (s *Session) TakeEvents() []Event {
	e := s.events
	s.events = nil
	return e
}

// inOrder returns requests by id, so that what happens to many of them at once
// happens in the same order each time.
func inOrder(m map[uint64]*request) []*request {
	return slices.SortedFunc(maps.Values(m), func(a, b *request) int { return cmp.Compare(a.id, b.id) })
}
