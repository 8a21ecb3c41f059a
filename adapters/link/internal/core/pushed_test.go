package core

import (
	"slices"
	"testing"

	"meridian/wire"
	proto "meridian/wire/link"
)

// grantOf reads what side b sends on lane 1, and gives the statuses of GRANT.
func grantOf(r *rig) (status []wire.Code) {
	l := r.end[1].Lane(1)
	sp := proto.Splitter{Begun: true}
	for l.TxPending() {
		var run []byte
		for _, p := range l.TxWant(nil) {
			run = append(run, p...)
		}
		l.TxDid(r.now, len(run))
		for len(run) > 0 {
			n, ev, err := sp.Next(run)
			if err != nil {
				r.tb.Fatal(err)
			}
			run = run[n:]
			if ev.Kind == proto.EventMessage && ev.Frame.Type == proto.TypeGrant {
				m, _ := proto.Parse[proto.Grant](ev.Payload)
				status = slices.Clone(m.Status)
			}
		}
	}
	return status
}

// What a PUT of an engine is refused for, a PUSH is refused for as well: before
// room is made and before a byte is sent, item by item, with the same code.
func TestAPushIsCheckedLikeAPutBeforeRoomIsMade(t *testing.T) {
	r, num := quietRig(t)
	most := manifest("t").BlockBytes
	head := func(n uint32, tier wire.Tier) [32]byte {
		return [32]byte(wire.Header{BodyLen: n, Tier: tier, Sum: wire.SumOf(nil)}.Append(nil))
	}
	item := func(key string, f func(*proto.PushItem)) proto.PushItem {
		p := proto.PushItem{NS: num, Key: r.key(key), Have: proto.Have{Len: 50, Tier: wire.ThinkActive, Head: head(50, wire.ThinkActive)}}
		if f != nil {
			f(&p)
		}
		return p
	}
	items := []proto.PushItem{
		item("a", nil),
		item("largest", func(p *proto.PushItem) { p.Have.Len, p.Have.Head = most, head(most, wire.ThinkActive) }),
		item("too large", func(p *proto.PushItem) { p.Have.Len, p.Have.Head = most+1, head(most+1, wire.ThinkActive) }),
		item("tier above", func(p *proto.PushItem) { p.Have.Tier = wire.OutputCritical }),
		item("tier below", func(p *proto.PushItem) { p.Have.Tier = wire.ThinkComplete }),
		item("", func(p *proto.PushItem) { p.Key = wire.Key{} }),
		item("no namespace", func(p *proto.PushItem) { p.NS = 0 }),
		item("unknown namespace", func(p *proto.PushItem) { p.NS = num + 1 }),
		item("bad head", func(p *proto.PushItem) { p.Have.Head[0] ^= 1 }),
		item("len", func(p *proto.PushItem) { p.Have.Len++ }),
		item("b", nil),
		item("a", nil),
	}
	r.feed(1, frameOf(proto.TypePush, 201, proto.Push{DeadlineMS: 5000, Items: items}))
	want := []wire.Code{
		wire.CodeOK, wire.CodeOK, wire.CodeTooLarge, wire.CodeInvalid, wire.CodeInvalid, wire.CodeInvalid,
		wire.CodeNSUnknown, wire.CodeNSUnknown, wire.CodeInvalid, wire.CodeInvalid, wire.CodeOK, wire.CodeExists,
	}
	if got := grantOf(r); !slices.Equal(got, want) {
		t.Errorf("GRANT %v\nwant  %v", got, want)
	}
	if n := len(r.store[1].reserved); n != 3 {
		t.Errorf("%d slots are reserved, want 3", n)
	}
	r.lose(1)
	r.settled()
}

// A batch of one key, many times over, is one block: the others are EXISTS, hold
// no slot, and name the block once it is there.
func TestAPushOfOneKeyManyTimesHoldsOneSlot(t *testing.T) {
	for _, full := range []bool{false, true} {
		r := newRig(t, 1, proto.Limits{})
		r.quiet = true
		num := r.open(0)
		r.store[1].full = full
		names := make([]string, 300)
		for i := range names {
			names[i] = "same"
		}
		c := r.push(0, proto.ClassUrgent, num, 100, names...)
		r.move(0, 1, 1<<20)
		r.move(1, 1, 1<<20)
		if n := len(r.store[1].reserved); n > 1 {
			t.Errorf("%d slots are reserved", n)
		}
		r.run()
		first, rest := wire.CodeOK, wire.CodeExists
		if full {
			first, rest = wire.CodeFull, wire.CodeFull
		}
		for i := range c.Items {
			it := &c.Items[i]
			want := rest
			if i == 0 {
				want = first
			}
			if it.Code != want || it.Slot != c.Items[0].Slot || it.Gen != c.Items[0].Gen {
				t.Fatalf("item %d: %v %d/%d, want %v %d/%d", i, it.Code, it.Slot, it.Gen, want, c.Items[0].Slot, c.Items[0].Gen)
			}
		}
		r.settled()
	}
}

// What comes by a bulk push is held like any other copy; what somebody waits for is
// held in the tier of its header.
func TestABulkPushIsHeldAsACopy(t *testing.T) {
	for class := range proto.ClassBulk + 1 {
		r := newRig(t, 1, proto.Limits{})
		r.quiet = true
		c := r.push(0, class, r.open(0), 100, "p")
		r.run()
		wantCodes(t, c, wire.CodeOK)
		want := wire.OutputCritical
		if class == proto.ClassBulk {
			want = wire.ThinkComplete
		}
		x := r.store[1].blocks[r.key("p")]
		if x.Tier != want || x.Head.Tier != wire.OutputCritical || c.Items[0].Tier != want {
			t.Errorf("class %d: held as %v, header %v, told %v; want %v", class, x.Tier, x.Head.Tier, c.Items[0].Tier, want)
		}
	}
}
