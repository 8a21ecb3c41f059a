package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// stored asserts a block's bytes.
func stored(t testing.TB, e *client.Engine, ns client.NS, name string, want []byte) {
	t.Helper()
	l := acquire(t, e, ns, client.AcquireOptions{}, name)
	defer l.Release()
	if !bytes.Equal(l.Blocks[0].Body, want) {
		t.Errorf("%s: %d bytes, not those that were written", name, len(l.Blocks[0].Body))
	}
}

// A block goes into the ring where it is hashed from; no byte is written for one that is
// stored already.
func TestBlocksAreWrittenInPlace(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.inGroup(t, 1, client.Options{})
	put(t, e, client.Block{NS: ns, Key: keyOf("b1"), Tier: wire.OutputCritical, Body: body(1, 100)})
	var list []client.Block
	for i := range 40 { // more than the ring holds
		list = append(list, client.Block{NS: ns, Key: keyOf(fmt.Sprint("b", i)), Tier: wire.OutputCritical, Len: 100_000})
	}
	list = append(list, client.Block{NS: ns, Key: keyOf("b3"), Len: 10}, client.Block{NS: 7, Key: keyOf("x"), Len: 10},
		client.Block{NS: ns, Len: 10}, client.Block{NS: ns, Key: keyOf("empty")}, client.Block{NS: ns, Key: keyOf("large"), Len: 1<<20 + 1})
	var written []int
	errs := e.PutInPlace(ctx, list, func(i int, dst []byte) error {
		written = append(written, i)
		if i == 5 {
			return errors.New("the GPU is gone")
		}
		copy(dst, body(byte(i), len(dst)))
		return nil
	})
	for i, err := range errs {
		want := wire.CodeOK
		switch i {
		case 1, 40:
			want = wire.CodeExists
		case 5:
			if err == nil || err.Error() != "the GPU is gone" {
				t.Errorf("the block that could not be written: %v", err)
			}
			continue
		case 41:
			want = wire.CodeNSUnknown
		case 42, 43:
			want = wire.CodeInvalid
		case 44:
			want = wire.CodeTooLarge
		}
		if wire.CodeOf(err) != want {
			t.Errorf("block %d: %v, want %s", i, err, want)
		}
	}
	if len(written) != 39 {
		t.Errorf("%d blocks were written, 39 are new", len(written))
	}
	for i := range 40 {
		if i != 1 && i != 5 {
			stored(t, e, ns, fmt.Sprint("b", i), body(byte(i), 100_000))
		}
	}
	if st := n.store.Stats(); st.Reserved != 0 {
		t.Errorf("%d reservations are left", st.Reserved)
	}
	if got := n.srv.Digest(); !strings.Contains(got, "0 reservations of 0 items") {
		t.Errorf("the session remembers: %s", got)
	}
	alone, _ := n.open(t)
	if _, err := alone.Reserve(ctx, list[:1], 0); wire.CodeOf(err) != wire.CodeUnsupported {
		t.Errorf("RESERVE without a group: %v", err)
	}
}

// The engine may change its mind: about a block, all of them, or by its context.
func TestRoomThatIsNotFilledComesBack(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.inGroup(t, 1, client.Options{})
	list := []client.Block{{NS: ns, Key: keyOf("a"), Len: 1000}, {NS: ns, Key: keyOf("b"), Len: 1000}, {NS: ns, Key: keyOf("c"), Len: 1000}}
	for _, fill := range []int{0, 1, 2} {
		r, err := e.Reserve(ctx, list, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range fill {
			if r.Errs[i] != nil {
				continue // of the round before
			}
			b, err := r.Room(ctx, i)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Fill(ctx, i, b[:10+i]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Room(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for i, err := range r.Wait(ctx) {
			if i >= fill && wire.CodeOf(err) != wire.CodeCancelled {
				t.Errorf("block %d was not filled: %v", i, err)
			}
		}
		eventually(t, "the room comes back", func() bool { return n.store.Stats().Reserved == 0 })
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if r, err := e.Reserve(gone, list[2:], 0); err == nil {
		r.Wait(ctx) // the answer was faster
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("RESERVE of a caller that has gone: %v", err)
	}
	if err := e.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the room comes back", func() bool { return n.store.Stats().Reserved == 0 })
}

// reservation is a raw session of a group with a ring and room for blocks.
func (n *node) reservation(t *testing.T, m member, names ...string) (r *raw, rsv uint64) {
	t.Helper()
	r, _ = n.join(t, m)
	ns := r.open(1, "acme")
	if _, e := r.ask(3, message(link.TypeMap, 3, link.Map{Segs: []link.Seg{{Kind: link.SegStaging, Size: 1 << 16}}})); e.Code != wire.CodeOK {
		t.Fatalf("MAP: %s %s", e.Code, e.Text)
	}
	return r, r.reserve(5, ns, 0, names...)
}

// reserve asks for rooms of 1,000 bytes.
func (r *raw) reserve(req uint64, ns uint16, ttl uint32, names ...string) uint64 {
	r.t.Helper()
	x := link.Reserve{DeadlineMS: 1000, TTLms: ttl}
	for _, name := range names {
		x.Items = append(x.Items, link.StoreItem{NS: ns, Tier: wire.OutputCritical, Len: 1000, Key: keyOf(name)})
	}
	got, e := r.ask(req, message(link.TypeReserve, req, x))
	if e.Code != wire.CodeOK || len(got) != 1 || got[0].f.Type != link.TypeReserved {
		r.t.Fatalf("RESERVE: %v, END %s %s", got, e.Code, e.Text)
	}
	d, err := link.Parse[link.Reserved](got[0].p)
	if err != nil || len(d.Status) != len(names) {
		r.t.Fatalf("RESERVED %+v, %v", d, err)
	}
	return d.Rsv
}

func (r *raw) fill(req uint64, x link.Fill) link.End {
	r.t.Helper()
	_, e := r.ask(req, message(link.TypeFill, req, x))
	return e
}

// FILL of what is not the session's, not open, not as large, or not in the ring, is
// refused item by item with the values, and what was right in it is done.
func TestFillOfALiar(t *testing.T) {
	n := startNode(t, nil)
	r, rsv := n.reservation(t, member{agent: 9, inc: 1}, "a", "b", "c", "d")
	mate, mates := n.reservation(t, member{agent: 9, inc: 1}, "m")
	if rsv == mates || rsv == 0 {
		t.Fatalf("reservations %d and %d", rsv, mates)
	}
	for name, c := range map[string]struct {
		item link.FillItem
		rsv  uint64
		want wire.Code
		text string
	}{
		"no such item":            {link.FillItem{Item: 4, Len: 10}, rsv, wire.CodeInvalid, "item 4 of a reservation of 4"},
		"an item that wraps":      {link.FillItem{Item: 1<<32 - 1, Len: 10}, rsv, wire.CodeInvalid, "of a reservation of 4"},
		"no byte":                 {link.FillItem{Item: 1}, rsv, wire.CodeInvalid, "0 bytes, item 1 has room for 1 to 1000"},
		"a byte more":             {link.FillItem{Item: 1, Len: 1001}, rsv, wire.CodeInvalid, "room for 1 to 1000"},
		"all bytes":               {link.FillItem{Item: 1, Len: 1<<32 - 1}, rsv, wire.CodeInvalid, "room for 1 to 1000"},
		"behind the ring":         {link.FillItem{Item: 1, Len: 10, Off: 1 << 40}, rsv, wire.CodeInvalid, "of a staging ring of"},
		"over the ring's end":     {link.FillItem{Item: 1, Len: 10, Off: 1<<20 - 9}, rsv, wire.CodeInvalid, "of a staging ring of"},
		"an offset that wraps":    {link.FillItem{Item: 1, Len: 1000, Off: 1<<64 - 1}, rsv, wire.CodeInvalid, "of a staging ring of"},
		"no reservation":          {link.FillItem{Item: 1, Len: 10}, 0, wire.CodeLeaseLost, "no reservation 0"},
		"another's reservation":   {link.FillItem{Item: 0, Len: 10}, mates, wire.CodeLeaseLost, "has no reservation"},
		"a reservation that none": {link.FillItem{Item: 1, Len: 10}, 1 << 63, wire.CodeLeaseLost, "has no reservation"},
	} {
		before := n.digest()
		e := r.fill(101, link.Fill{Rsv: c.rsv, Items: []link.FillItem{c.item}})
		if e.Code != wire.CodeOK || len(e.Status) != 1 || e.Status[0] != c.want || !strings.HasPrefix(e.Text, "item 0: ") || !strings.Contains(e.Text, c.text) {
			t.Errorf("%s: END %s %v %q, want %s and %q", name, e.Code, e.Status, e.Text, c.want, c.text)
		}
		n.same(t, name, before, n.digest())
	}
	e := r.fill(103, link.Fill{Rsv: rsv, Items: []link.FillItem{{Item: 0, Len: 1000}, {Item: 0, Len: 1000}, {Item: 9, Len: 1}, {Item: 1, Len: 1, Off: 5}}})
	if want := []wire.Code{wire.CodeOK, wire.CodeInvalid, wire.CodeInvalid, wire.CodeOK}; fmt.Sprint(e.Status) != fmt.Sprint(want) {
		t.Errorf("an item twice in one FILL: %v, want %v", e.Status, want)
	}
	// Another publishes c meanwhile; the last FILL gives d back.
	other, ons := n.inGroup(t, 2, client.Options{})
	put(t, other, client.Block{NS: ons, Key: keyOf("c"), Tier: wire.OutputCritical, Body: body(1, 10)})
	e = r.fill(105, link.Fill{Rsv: rsv, Last: true, Items: []link.FillItem{{Item: 2, Len: 10}, {Item: 0, Len: 10}}})
	if want := []wire.Code{wire.CodeExists, wire.CodeInvalid}; fmt.Sprint(e.Status) != fmt.Sprint(want) {
		t.Errorf("what is there already: %v, want %v", e.Status, want)
	}
	if st := n.store.Stats(); st.Reserved != 1 {
		t.Errorf("%d reservations, want that of the other session", st.Reserved)
	}
	e = r.fill(107, link.Fill{Rsv: rsv, Items: []link.FillItem{{Item: 3, Len: 10}}})
	if e.Status[0] != wire.CodeLeaseLost {
		t.Errorf("after the last FILL: %v", e.Status)
	}
	if e = r.fill(109, link.Fill{Rsv: rsv, Last: true}); e.Code != wire.CodeOK || e.Text != "" {
		t.Errorf("giving back again: %s %q", e.Code, e.Text)
	}
	if e = mate.fill(111, link.Fill{Rsv: mates, Last: true}); e.Code != wire.CodeOK || n.store.Stats().Reserved != 0 {
		t.Errorf("giving back all: %s, %d reserved", e.Code, n.store.Stats().Reserved)
	}
}

// Each field of a RESERVE or PUTAT item that is wrong is that item's status.
func TestStoreItemsOfALiar(t *testing.T) {
	n := startNode(t, nil)
	r, _ := n.reservation(t, member{agent: 9, inc: 1}, "r")
	good := link.StoreItem{Tier: wire.OutputCritical, Len: 10, Key: keyOf("k")}
	req := uint64(201)
	for name, c := range map[string]struct {
		change  func(*link.StoreItem)
		want    wire.Code
		reserve wire.Code // where that is another
	}{
		"namespace":       {func(x *link.StoreItem) { x.NS = 1 }, wire.CodeNSUnknown, 0},
		"length":          {func(x *link.StoreItem) { x.Len = 1<<20 + 1 }, wire.CodeInvalid, wire.CodeTooLarge},
		"no byte":         {func(x *link.StoreItem) { x.Len = 0 }, wire.CodeOK, wire.CodeInvalid},
		"key":             {func(x *link.StoreItem) { x.Key = wire.Key{} }, wire.CodeInvalid, 0},
		"pin for no time": {func(x *link.StoreItem) { x.Flags = link.StorePin }, wire.CodeInvalid, 0},
		"offset":          {func(x *link.StoreItem) { x.Off = 1 << 30 }, wire.CodeInvalid, wire.CodeOK},
		"no request":      {func(x *link.StoreItem) { x.Req, x.Tier, x.Pos = 77, link.TierAuto, 1<<32-1 }, wire.CodeOK, 0},
	} {
		it := good
		it.Key = keyOf(name)
		c.change(&it)
		_, e := r.ask(req, message(link.TypePutAt, req, link.PutAt{DeadlineMS: 1000, Items: []link.StoreItem{it}}))
		if len(e.Status) != 1 || e.Status[0] != c.want || c.want != wire.CodeOK && e.Text == "" {
			t.Errorf("%s: PUTAT %s %v %q, want %s", name, e.Code, e.Status, e.Text, c.want)
		}
		it.Off = 0
		if it.Key != (wire.Key{}) {
			it.Key = keyOf("reserved " + name)
		}
		want := c.want
		if name == "length" || name == "no byte" || name == "offset" {
			want = c.reserve
		}
		got, e := r.ask(req+2, message(link.TypeReserve, req+2, link.Reserve{DeadlineMS: 1000, Items: []link.StoreItem{it}}))
		d, err := link.Parse[link.Reserved](got[0].p)
		if err != nil || len(d.Status) != 1 || d.Status[0] != want || (d.Rsv != 0) != (want == wire.CodeOK) || want != wire.CodeOK && e.Text == "" {
			t.Errorf("%s: RESERVED %+v, END %s %q, want %s", name, d, e.Code, e.Text, want)
		}
		if d.Rsv != 0 {
			r.fill(req+4, link.Fill{Rsv: d.Rsv, Last: true})
		}
		req += 6
	}
	for name, m := range map[string]func(uint64) []byte{
		"RESERVE": func(q uint64) []byte {
			return message(link.TypeReserve, q, link.Reserve{Items: []link.StoreItem{good}})
		},
		"PUTAT": func(q uint64) []byte { return message(link.TypePutAt, q, link.PutAt{Items: []link.StoreItem{good}}) },
	} {
		if got, e := r.ask(req, m(req)); e.Code != wire.CodeDeadline || len(got) != 0 {
			t.Errorf("%s without a deadline: %v, %s", name, got, e.Code)
		}
		req += 2
	}
}

// Room ends with its time. What is written to its slot afterwards is another's, and
// neither FILL nor giving back touches it.
func TestFillAfterTheTimeOfItsRoom(t *testing.T) {
	c := new(clock)
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) {
		b.Clock, b.Capacity, b.ExtentBytes = c.read, 1<<14, 1<<12
	})
	r, rsv := n.reservation(t, member{agent: 9, inc: 1}, "a", "b")
	c.move(link.MaxLease) // the store's time alone: the session believes that its room is there
	n.store.Step(blocks.Input{})
	if st := n.store.Stats(); st.Reserved != 0 {
		t.Fatalf("%d slots are reserved after their time", st.Reserved)
	}
	// The slots are the session's own again, for other blocks.
	next := r.reserve(7, 0, 0, "c", "d", "e", "f", "g", "h", "i", "j")
	e := r.fill(9, link.Fill{Rsv: rsv, Last: true, Items: []link.FillItem{{Item: 0, Len: 1000}}})
	if e.Code != wire.CodeOK || e.Status[0] != wire.CodeLeaseLost || e.Text == "" {
		t.Errorf("FILL after its time: %s %v %q", e.Code, e.Status, e.Text)
	}
	if st := n.store.Stats(); st.Reserved != 8 {
		t.Errorf("%d slots are reserved, want those of the second reservation", st.Reserved)
	}
	items := make([]link.FillItem, 8)
	for i := range items {
		items[i] = link.FillItem{Item: uint32(i), Len: 1000}
	}
	for _, code := range r.fill(11, link.Fill{Rsv: next, Items: items}).Status {
		if code != wire.CodeOK {
			t.Errorf("the second reservation: %s", code)
		}
	}
	if _, err := n.store.Stat(keyOf("a")); err == nil {
		t.Error("a block was published after its room's time")
	}
}

// Reservations are within the engine's share, and a session remembers only so many.
func TestReservationsThatTakeAllThereIs(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.Shares.Engine = 0.5 })
	r, _ := n.reservation(t, member{agent: 9, inc: 1}, "first")
	big := make([]link.StoreItem, 8)
	for i := range big {
		big[i] = link.StoreItem{Tier: wire.OutputCritical, Len: 1 << 20, Key: keyOf(fmt.Sprint("big", i))}
	}
	got, e := r.ask(7, message(link.TypeReserve, 7, link.Reserve{DeadlineMS: 1000, Items: big}))
	d, err := link.Parse[link.Reserved](got[0].p)
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	for _, code := range d.Status {
		if code == wire.CodeFull {
			full++
		}
	}
	if full < 4 || full == 8 || !strings.Contains(e.Text, "quota.engine_arena_share") {
		t.Errorf("8 MiB of 4: %v %q", d.Status, e.Text)
	}
	r.fill(9, link.Fill{Rsv: d.Rsv, Last: true})
	var last link.End
	held := 1
	for req := uint64(11); ; req += 2 {
		x := link.Reserve{DeadlineMS: 1000, Items: []link.StoreItem{{Tier: wire.OutputCritical, Len: 1, Key: keyOf(fmt.Sprint("small", req))}}}
		_, last = r.ask(req, message(link.TypeReserve, req, x))
		if last.Code != wire.CodeOK {
			break
		}
		held++
	}
	if last.Code != wire.CodeBusy || held != 1024 || !strings.Contains(last.Text, "the limit is 1024") || last.RetryMS == 0 {
		t.Errorf("after %d reservations: %s %q", held, last.Code, last.Text)
	}
	// The others of the group, and other engines, have theirs.
	n.reservation(t, member{agent: 9, inc: 1}, "mate")
	n.reservation(t, member{agent: 9, inc: 2}, "other")
	r.c.Close()
	eventually(t, "the session's room comes back", func() bool { return n.store.Stats().Reserved == 2 })
	n.waited.Add(1)
}

// An engine that is gone in the middle leaves nothing: before it fills, while it does,
// with pins, and with a hand-off that nobody takes.
func TestAnEngineThatDiesAtEachStage(t *testing.T) {
	for name, die := range map[string]func(r *raw, rsv uint64){
		"reserved": func(*raw, uint64) {},
		"filling": func(r *raw, rsv uint64) {
			r.write(message(link.TypeFill, 21, link.Fill{Rsv: rsv, Items: []link.FillItem{{Len: 1000}, {Item: 1, Len: 1000}}}))
		},
		"filled in part": func(r *raw, rsv uint64) { r.fill(21, link.Fill{Rsv: rsv, Items: []link.FillItem{{Len: 1000}}}) },
		"pinned": func(r *raw, rsv uint64) {
			r.ask(21, message(link.TypeBegin, 21, link.Begin{Req: 5}))
			r.ask(23, message(link.TypePutAt, 23, link.PutAt{DeadlineMS: 1000, Items: []link.StoreItem{
				{Tier: link.TierAuto, Flags: link.StorePin, Len: 500, Key: keyOf("p"), Req: 5, PinMS: 60_000}}}))
		},
		"handed off": func(r *raw, rsv uint64) {
			r.write(message(link.TypeBegin, 21, link.Begin{Req: 5}))
			r.write(message(link.TypePutAt, 23, link.PutAt{DeadlineMS: 1000, Items: []link.StoreItem{{Len: 500, Tier: wire.OutputCritical, Key: keyOf("p"), Req: 5}}}))
			r.write(message(link.TypeHandoff, 25, link.Handoff{Req: 5, KeepMS: 60_000}))
		},
		"in the middle of a frame": func(r *raw, rsv uint64) {
			r.write(message(link.TypeFill, 21, link.Fill{Rsv: rsv, Items: []link.FillItem{{Len: 1000}}})[:40])
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nil)
			r, rsv := n.reservation(t, member{agent: 9, inc: 1}, "a", "b", "c")
			die(r, rsv)
			r.c.Close()
			n.wait(1)
			if st := n.store.Stats(); st.Reserved != 0 || st.Pins != 0 || st.PinBytes != 0 || st.Leaked != 0 {
				t.Errorf("%d slots are reserved and %d pinned; %d leaked", st.Reserved, st.Pins, st.Leaked)
			}
		})
	}
}

// FILL says nothing about who may write: bytes that change while they are hashed are
// what was hashed, or nothing.
func TestARingThatChangesDuringFill(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.inGroup(t, 1, client.Options{})
	r, err := e.Reserve(ctx, []client.Block{{NS: ns, Key: keyOf("x"), Tier: wire.OutputCritical, Len: 1 << 19}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Room(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Fill(ctx, 0, b); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; n.store.Stats().Commits == 0 && time.Now().Before(deadline); i++ {
		b[i%len(b)]++ // a liar: these bytes are the daemon's until END
	}
	if errs := r.Wait(ctx); errs[0] != nil {
		t.Fatal(errs)
	}
	if err := n.store.Verify(blocks.View{NS: manifest("acme").Namespace(), Key: keyOf("x")}); err != nil {
		t.Error(err)
	}
}
