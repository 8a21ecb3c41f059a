package core

import (
	"slices"
	"strings"
	"testing"

	"meridian/wire"
	proto "meridian/wire/link"
)

// A push whose COMMIT is out is not taken back by ABORT: the holder is publishing it.
func TestAPushThatIsCommittedIsNotAborted(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	c := r.push(0, proto.ClassUrgent, num, 1000, "p")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1<<20)
	r.held = true // the holder has not checked it yet
	r.move(0, 1, 1<<20)
	if c.r.ask.state != askCommitted {
		t.Fatalf("state %v", c.r.ask.state)
	}
	r.end[0].Cancel(r.now, c, wire.CodeCancelled)
	r.move(0, 1, 1<<20)
	r.held = false
	r.work(1)
	r.run()
	if strings.Contains(r.log.String(), "ABORT") {
		t.Error("ABORT after COMMIT")
	}
	r.settled()
}

// An item whose key came before in its push ends as the one before.
func TestATwinEndsAsTheItemBefore(t *testing.T) {
	s := New(Config{Store: newMemStore()})
	end := func(code wire.Code) []wire.Code {
		b := []Block{{}, {Code: wire.CodeExists}, {Code: wire.CodeFull}}
		return slices.Clone(s.endOf(&request{typ: proto.TypePush, code: code, serve: &serve{blocks: b, twin: []int32{-1, 0, -1}}}).Status)
	}
	if got, want := end(wire.CodeOK), []wire.Code{0, wire.CodeExists, wire.CodeFull}; !slices.Equal(got, want) {
		t.Errorf("of one that is done: %v, want %v", got, want)
	}
	if got, want := end(wire.CodeDeadline), []wire.Code{wire.CodeDeadline, wire.CodeDeadline, wire.CodeFull}; !slices.Equal(got, want) {
		t.Errorf("of one that is not: %v, want %v", got, want)
	}
}

// What GRANT, TABLE and END say of a push's items: the first word against an item stands,
// with statuses in END or without.
func TestTheFirstWordAgainstAnItemStands(t *testing.T) {
	both := func(f func(r *rig, c *Call, req uint64), want ...wire.Code) {
		t.Helper()
		r := newRig(t, 1, proto.Limits{})
		r.quiet = true
		c := r.push(1, proto.ClassUrgent, r.open(1), 100, "x", "y")
		r.said(1)
		f(r, c, c.r.id)
		if !c.over {
			t.Fatal("the push is not over")
		}
		wantCodes(t, c, want...)
	}
	both(func(r *rig, c *Call, req uint64) {
		r.feed(1, frameOf(proto.TypeGrant, req, proto.Grant{Status: []wire.Code{wire.CodeOK, wire.CodeFull}}))
		r.said(1)
		r.feed(1, frameOf(proto.TypeTable, req, proto.Table{Items: haves(c, wire.CodeOK, wire.CodeFull)}))
		r.feed(1, frameOf(proto.TypeEnd, req, proto.End{}))
	}, wire.CodeOK, wire.CodeFull)
	both(func(r *rig, c *Call, req uint64) {
		r.feed(1, frameOf(proto.TypeEnd, req, proto.End{Code: wire.CodeTooMany, Status: []wire.Code{wire.CodeOK, wire.CodeFull}}))
	}, wire.CodeTooMany, wire.CodeFull)
	it := &Item{Code: wire.CodeFull}
	if it.told(proto.TypePush, &proto.Have{Slot: 1, Gen: 2}); it.Code != wire.CodeFull || it.Slot != 0 {
		t.Errorf("an item that GRANT refused: %v, slot %d", it.Code, it.Slot)
	}
}

func haves(c *Call, codes ...wire.Code) (h []proto.Have) {
	for i, code := range codes {
		x := proto.Have{Status: code}
		if code == wire.CodeOK {
			x = proto.Have{Len: 100, Slot: uint32(i + 1), Gen: 2, Tier: wire.OutputCritical, Att: wire.AttestProducer, Head: c.Items[i].Head}
		}
		h = append(h, x)
	}
	return h
}
