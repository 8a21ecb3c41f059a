package core

import (
	"slices"
	"testing"

	"meridian/wire"
	proto "meridian/wire/link"
)

// A lane that was refused and whose ERROR nobody takes is closed all the same.
func TestALaneWhoseErrorIsNotReadIsClosed(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.open(0)
	r.feed(1, frameOf(proto.TypeCommit, 999, proto.Empty{}))
	l := r.end[1].Lane(1)
	if !l.failed {
		t.Fatal("the lane was not refused")
	}
	r.end[1].Tick(r.now + 2*proto.DrainError - 1)
	if l.Dead() {
		t.Error("it is closed before its peer could read why")
	}
	r.end[1].Tick(r.now + 2*proto.DrainError)
	if !l.Dead() {
		t.Error("it is open")
	}
}

// ERROR says where the frame begins that was refused.
func TestAnErrorHasTheOffsetOfItsFrame(t *testing.T) {
	first := frameOf(proto.TypePing, 101, proto.Empty{})
	for name, c := range map[string][]byte{
		"a message":          frameOf(proto.TypeCommit, 999, proto.Empty{}),
		"an unknown frame":   frameOf(0x7f, 103, proto.Empty{}),
		"DATA of no request": append(proto.AppendData(nil, proto.Frame{Req: 999}, 0, 10), make([]byte, 10)...),
	} {
		r := newRig(t, 1, proto.Limits{})
		r.feed(1, first)
		r.end[1].Lane(1).tx.unreadOther = 2 * proto.MaxReqs // so that even an unknown frame is one too many
		r.feed(1, c)
		var m proto.Error
		sp := proto.Splitter{Begun: true}
		for _, p := range r.end[1].Lane(1).TxWant(nil) {
			for len(p) > 0 {
				n, ev, err := sp.Next(p)
				if err != nil {
					t.Fatal(err)
				}
				if p = p[n:]; ev.Kind == proto.EventMessage && ev.Frame.Type == proto.TypeError {
					m, _ = proto.Parse[proto.Error](ev.Payload)
				}
			}
		}
		if m.Code == wire.CodeOK || m.Offset != uint64(len(first)) {
			t.Errorf("%s: %v at %d, want %d", name, m.Code, m.Offset, len(first))
		}
	}
}

// ERROR ends its lane, and is told of with its code and text.
func TestAnErrorOfThePeerEndsItsLane(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.open(0)
	r.feed(1, frameOf(proto.TypeError, 0, proto.Error{Code: wire.CodeCRC, Text: "why"}))
	l := r.end[1].Lane(1)
	i := slices.IndexFunc(r.end[1].TakeEvents(), func(e Event) bool { return e.Kind == EventPeerError && e.Code == wire.CodeCRC && e.Text == "why" })
	if i < 0 || !l.Dead() {
		t.Errorf("told of: %v; dead: %v", i >= 0, l.Dead())
	}
}
