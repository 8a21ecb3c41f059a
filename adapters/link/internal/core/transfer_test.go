package core

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// Every size that meets a boundary, moved in pieces of every awkward length.
func TestPullAndPushCarryTheBytesWhateverThePieces(t *testing.T) {
	sizes := []int{0, 1, 27, 28, 29, 4095, 4096, 4097, 65536, proto.MaxChunk - 1, proto.MaxChunk, proto.MaxChunk + 1, 700001}
	for _, piece := range []int{1, 3, 24, 28, 29, 1000, 4096, 70000, 1 << 30} {
		t.Run(fmt.Sprint(piece), func(t *testing.T) {
			r := newRig(t, 2, proto.Limits{})
			r.quiet = true
			num := r.open(0)
			r.piece = piece
			var names []string
			for _, n := range sizes {
				if piece < 24 && n > 4097 {
					continue
				}
				name := fmt.Sprint("size", n)
				names = append(names, name)
				r.put(1, n, name)
			}
			pull := r.pull(0, proto.ClassUrgent, num, 1<<20, names...)
			r.run()
			if pull.Code != wire.CodeOK {
				t.Fatalf("pull: %v %v", pull.Code, codesOf(pull))
			}
			for i, n := range names {
				it := &pull.Items[i]
				if want := r.store[1].blocks[r.key(n)].Body; it.Code != wire.CodeOK || !bytes.Equal(it.Room[:it.Len], want) {
					t.Errorf("%s: %v, %d bytes", n, it.Code, it.Len)
				}
			}
			push := &Call{Type: proto.TypePush, Class: proto.ClassBulk, Timeout: time.Second}
			for i, n := range names {
				it := pull.Items[i]
				key := r.key("pushed" + n)
				push.Items = append(push.Items, Item{NS: num, Key: key, Room: it.Room[:it.Len], Head: it.Head, Tier: it.Tier, Att: it.Att})
			}
			r.end[0].Start(r.now, push)
			r.run()
			for i, n := range names {
				x := r.store[1].blocks[r.key("pushed"+n)]
				if push.Items[i].Code != wire.CodeOK || x == nil || !bytes.Equal(x.Body, pull.Items[i].Room[:pull.Items[i].Len]) {
					t.Errorf("push %s: %v", n, push.Items[i].Code)
				} else if x.Slot != push.Items[i].Slot || x.Gen != push.Items[i].Gen {
					t.Errorf("push %s: reference %d/%d, want %d/%d", n, push.Items[i].Slot, push.Items[i].Gen, x.Slot, x.Gen)
				}
			}
			r.settled()
		})
	}
}

func TestOneDamagedItemIsNeverReportedOKAndTheOthersAreFine(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 5000, "x", "y", "z")
	r.store[1].blocks[r.key("y")].Body[4999] ^= 1
	c := r.pull(0, proto.ClassUrgent, num, 8000, "x", "y", "z", "nowhere")
	r.run()
	wantCodes(t, c, wire.CodeOK, wire.CodeChecksum, wire.CodeOK, wire.CodeAbsent)
	p := r.push(1, proto.ClassUrgent, r.open(1), 5000, "p", "q")
	p.Items[1].Room[0] ^= 0x80
	r.run()
	wantCodes(t, p, wire.CodeOK, wire.CodeChecksum)
	if r.store[0].blocks[r.key("q")] != nil {
		t.Error("a damaged push became visible")
	}
	if got := r.end[0].Stats().Totals.ChecksumFailures; got != 2 {
		t.Errorf("%d checksum failures were counted, want 2", got)
	}
	r.settled()
}

func TestPushIsInvisibleUntilEndOK(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	p := r.push(0, proto.ClassUrgent, num, 3000, "p")
	for range 400 {
		if r.move(0, 1, 10) == 0 && r.move(1, 1, 10) == 0 {
			break
		}
		if n := len(r.store[1].blocks); n != 0 && !r.end[1].served[1].committedForTest() {
			t.Fatal("visible before COMMIT")
		}
	}
	r.run()
	wantCodes(t, p, wire.CodeOK)
	r.settled()
}

func (r *request) committedForTest() bool { return r == nil || r.serve.state == serveCommitted }

// Whenever a call is taken back, its memory is not touched after Done, and both
// sides come back to zero.
func TestCancelAtEveryPointLeavesNothing(t *testing.T) {
	for _, push := range []bool{false, true} {
		for after := 0; after < 140; after++ {
			r := newRig(t, 1, proto.Limits{})
			r.quiet = true
			num := r.open(0)
			r.put(1, 2000, "x", "y")
			var c *Call
			if push {
				c = r.push(0, proto.ClassUrgent, num, 2000, "p", "q")
			} else {
				c = r.pull(0, proto.ClassUrgent, num, 2000, "x", "y")
			}
			c.Done = make(chan struct{})
			for n := range after {
				r.move(n%2, 1, 100)
			}
			r.end[0].Cancel(r.now, c, wire.CodeCancelled)
			r.end[0].Cancel(r.now, c, wire.CodeDeadline)
			select {
			case <-c.Done:
			default:
				t.Fatalf("after %d moves: Done is not closed though nothing is under way", after)
			}
			var before [][]byte
			for i := range c.Items {
				for k := range c.Items[i].Room {
					c.Items[i].Room[k] = 0xA5
				}
				before = append(before, bytes.Clone(c.Items[i].Room))
			}
			r.run()
			for i := range c.Items {
				if !bytes.Equal(before[i], c.Items[i].Room) {
					t.Fatalf("after %d moves: memory of a finished call was touched", after)
				}
			}
			if push {
				for i := range c.Items {
					x := r.store[1].blocks[c.Items[i].Key]
					if c.Items[i].Code == wire.CodeOK && x == nil {
						t.Fatalf("after %d moves: OK, and not there", after)
					}
				}
			}
			r.settled()
			if r.end[0].Lane(1) == nil {
				t.Fatalf("after %d moves: the lane was closed", after)
			}
		}
	}
}

func TestMemoryIsGivenBackOnlyWhenNoReadIsUnderWay(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 1000, "x")
	c := r.pull(0, proto.ClassUrgent, num, 1000, "x")
	c.Done = make(chan struct{})
	r.move(0, 1, 1<<20) // PULL
	tx, rx := r.end[1].Lane(1), r.end[0].Lane(1)
	var run []byte
	for _, p := range tx.TxWant(nil) {
		run = append(run, p...)
	}
	tx.TxDid(r.now, len(run))
	// Feed up to the middle of the body, then leave a read under way.
	cut := len(run) - 300
	for fed := 0; fed < cut; {
		took := 0
		for _, p := range rx.RxWant(nil) {
			took += copy(p, run[fed+took:cut])
		}
		rx.RxGot(r.now, took)
		fed += took
	}
	rx.RxWant(nil)
	r.end[0].Cancel(r.now, c, wire.CodeCancelled)
	select {
	case <-c.Done:
		t.Fatal("the call was handed back while a read was under way in its memory")
	default:
	}
	rx.RxGot(r.now, 0)
	select {
	case <-c.Done:
	default:
		t.Fatal("the call was not handed back after the read")
	}
	wantCodes(t, c, wire.CodeCancelled)
	for rest := run[cut:]; len(rest) > 0; {
		took := 0
		for _, p := range rx.RxWant(nil) {
			took += copy(p, rest[took:])
		}
		rx.RxGot(r.now, took)
		rest = rest[took:]
	}
	r.run()
	r.settled()
}

func TestResumeBringsOnlyWhatIsMissing(t *testing.T) {
	r := newRig(t, 2, proto.Limits{})
	num := r.open(0)
	r.put(1, 900_000, "x")
	c := r.pull(0, proto.ClassUrgent, num, 900_000, "x")
	r.move(0, 1, 1<<20)
	for range 3 {
		r.move(1, 1, 200_000)
	}
	r.lose(1)
	wantCodes(t, c, wire.CodeLaneLost)
	it := c.Items[0]
	if it.Got == 0 || it.Got >= it.Len {
		t.Fatalf("got %d of %d bytes", it.Got, it.Len)
	}
	again := &Call{Type: proto.TypePull, Timeout: time.Second, Items: []Item{{
		NS: num, Key: it.Key, Slot: it.Slot, Gen: it.Gen, Off: it.Got, Room: it.Room,
	}}}
	out := r.end[1].Stats().Totals.BytesOut
	r.end[0].Start(r.now, again)
	r.run()
	wantCodes(t, again, wire.CodeOK)
	if !bytes.Equal(it.Room, r.store[1].blocks[it.Key].Body) {
		t.Error("the bytes differ")
	}
	if sent := r.end[1].Stats().Totals.BytesOut - out; sent != uint64(it.Len-it.Got) {
		t.Errorf("%d bytes were sent again, %d were missing", sent, it.Len-it.Got)
	}
	r.settled()
}

func TestAReferenceOfAnotherGenerationIsStale(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 100, "x")
	x := r.store[1].blocks[r.key("x")]
	for _, c := range []struct {
		slot, gen uint32
		key       wire.Key
		want      wire.Code
	}{
		{x.Slot, x.Gen, x.Key, wire.CodeOK},
		{x.Slot, x.Gen, wire.Key{}, wire.CodeOK},
		{x.Slot, x.Gen + 2, x.Key, wire.CodeStale},
		{x.Slot + 9, x.Gen, x.Key, wire.CodeStale},
		{x.Slot, x.Gen, r.key("y"), wire.CodeStale},
		{0, 0, r.key("y"), wire.CodeAbsent},
	} {
		for _, typ := range []proto.Type{proto.TypeHas, proto.TypePull} {
			call := &Call{Type: typ, Timeout: time.Second, Items: []Item{{NS: num, Slot: c.slot, Gen: c.gen, Key: c.key, Room: make([]byte, 100)}}}
			if typ == proto.TypeHas {
				call.Items[0].Room = nil
			}
			r.end[0].Start(r.now, call)
			r.run()
			if call.Items[0].Code != c.want {
				t.Errorf("%v %d/%d: %v, want %v", typ, c.slot, c.gen, call.Items[0].Code, c.want)
			}
		}
	}
	r.settled()
}

// A pull from the beginning takes the block that is there now, whatever was known of an
// earlier one.
func TestAPullFromTheBeginningTakesWhatIsThereNow(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 1000, "x")
	c := &Call{Type: proto.TypePull, Timeout: time.Second, Items: []Item{{NS: num, Key: r.key("x"), Room: make([]byte, 1000)}}}
	c.Items[0].Head = [32]byte(bodyHead(999).Append(nil))
	r.end[0].Start(r.now, c)
	r.run()
	wantCodes(t, c, wire.CodeOK)
	r.settled()
}

// What TABLE said of an item stays so, whatever ends the pull.
func TestWhatIsNotThereStaysSoWhenAPullIsCancelled(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 300_000, "x")
	c := r.pull(0, proto.ClassUrgent, num, 300_000, "none", "x")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 2000)
	r.end[0].Cancel(r.now, c, wire.CodeCancelled)
	r.run()
	wantCodes(t, c, wire.CodeAbsent, wire.CodeCancelled)
	r.settled()
}
