package synthetic_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

func payload(t *testing.T, i, n int) []byte {
	t.Helper()
	body := bytes.Repeat([]byte{byte(i), byte(i >> 8), 0x33}, n/3+1)[:n]
	p, err := wire.AppendPayload(nil, wire.ThinkActive, body)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func keyOf(i int) wire.Key { return wire.KeyOf(wire.Namespace{}, fmt.Append(nil, i)) }

// items makes pushes of n blocks of size body bytes.
func items(t *testing.T, n, size int) []fabric.Item {
	t.Helper()
	list := make([]fabric.Item, n)
	for i := range list {
		list[i] = fabric.Item{Key: keyOf(i), M: fabric.Mem{B: payload(t, i, size)}}
	}
	return list
}

// pulls makes pulls of the same blocks.
func pulls(list []fabric.Item) []fabric.Item {
	got := make([]fabric.Item, len(list))
	for i, it := range list {
		got[i] = fabric.Item{Key: it.Key, M: fabric.Mem{B: make([]byte, len(it.M.B))}}
	}
	return got
}

func codes(list []fabric.Item) (c []wire.Code) {
	for _, it := range list {
		c = append(c, wire.CodeOf(it.Err))
	}
	return c
}

func pushAll(t *testing.T, f *synthetic.Fabric, list []fabric.Item) {
	t.Helper()
	f.Push(t.Context(), list)
	for _, it := range list {
		if it.Err != nil {
			t.Fatal(it.Err)
		}
	}
}

func TestHandlesCountFromOne(t *testing.T) {
	f := synthetic.New(synthetic.Options{})
	list := items(t, 3, 10)
	pushAll(t, f, list)
	for i, it := range list {
		if it.H != (fabric.Handle{0: byte(i + 1)}) {
			t.Errorf("handle %d is %x", i, it.H)
		}
		if it.Via != "mem" || f.Label() != "nixl-synth" {
			t.Errorf("via %q on %q", it.Via, f.Label())
		}
	}
	nameless := []fabric.Item{{M: list[0].M}, {M: list[0].M}}
	pushAll(t, f, nameless)
	if nameless[0].H == nameless[1].H {
		t.Error("two blocks without a key share a handle")
	}
}

func TestFullCarriesHaveAndNeed(t *testing.T) {
	f := synthetic.New(synthetic.Options{Capacity: 300})
	list := items(t, 3, 100) // 132 each
	f.Push(t.Context(), list)
	if got := codes(list); !slices.Equal(got, []wire.Code{0, 0, wire.CodeFull}) {
		t.Fatalf("codes %v", got)
	}
	var e *fabric.Error
	if !errors.As(list[2].Err, &e) || e.Have != 36 || e.Need != 132 {
		t.Errorf("error %v", list[2].Err)
	}
	f.Drop(t.Context(), list[:1])
	f.Push(t.Context(), list[2:])
	if list[2].Err != nil {
		t.Errorf("after a drop: %v", list[2].Err)
	}
}

func TestDelayTakesItsTimeAndEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{
			{Kind: synthetic.Delay, Op: synthetic.OpPull, Key: keyOf(1), For: 3 * time.Second},
		}})
		list := items(t, 3, 10)
		pushAll(t, f, list)
		start := time.Now()
		got := pulls(list)
		f.Pull(t.Context(), got)
		if took := time.Since(start); took != 3*time.Second || !slices.Equal(codes(got), []wire.Code{0, 0, 0}) {
			t.Errorf("took %v, codes %v", took, codes(got))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got = pulls(list)
		f.Pull(ctx, got)
		if want := []wire.Code{0, wire.CodeDeadline, 0}; !slices.Equal(codes(got), want) {
			t.Errorf("codes %v, want %v: an item that waits holds no other up", codes(got), want)
		}
		if got[1].Loose || !bytes.Equal(got[1].M.B, make([]byte, len(got[1].M.B))) {
			t.Error("the item that never came left bytes")
		}
	})
}

func TestDropTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := synthetic.New(synthetic.Options{Timeout: 7 * time.Second, Faults: []synthetic.Fault{
			{Kind: synthetic.Drop, Op: synthetic.OpPush, Skip: 1, Times: 1},
		}})
		list := items(t, 3, 10)
		start := time.Now()
		f.Push(t.Context(), list)
		if want := []wire.Code{0, wire.CodeNoProgress, 0}; !slices.Equal(codes(list), want) {
			t.Errorf("codes %v, want %v", codes(list), want)
		}
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("took %v", took)
		}
		got := pulls(list)
		f.Pull(t.Context(), got)
		if want := []wire.Code{0, wire.CodeAbsent, 0}; !slices.Equal(codes(got), want) {
			t.Errorf("a lost push was stored: %v", codes(got))
		}
	})
}

func TestCorruptIsNoticedOnBothWays(t *testing.T) {
	for _, size := range []int{0, 1, 5000} {
		f := synthetic.New(synthetic.Options{Seed: 9, Faults: []synthetic.Fault{
			{Kind: synthetic.Corrupt, Op: synthetic.OpPush, Key: keyOf(0)},
			{Kind: synthetic.Corrupt, Op: synthetic.OpPull, Key: keyOf(1), Times: 1},
			{Kind: synthetic.Corrupt, Op: synthetic.OpPull, Key: keyOf(2), Times: 1, Bit: 1 << 20},
		}})
		list := items(t, 4, size)
		f.Push(t.Context(), list)
		if want := []wire.Code{wire.CodeChecksum, 0, 0, 0}; !slices.Equal(codes(list), want) {
			t.Errorf("push of %d bytes: %v, want %v", size, codes(list), want)
		}
		for round, want := range [][]wire.Code{
			{wire.CodeAbsent, wire.CodeChecksum, wire.CodeChecksum, 0},
			{wire.CodeAbsent, 0, 0, 0},
		} {
			got := pulls(list)
			f.Pull(t.Context(), got)
			if !slices.Equal(codes(got), want) {
				t.Errorf("pull %d of %d bytes: %v, want %v", round, size, codes(got), want)
			}
		}
	}
}

func TestDuplicateHasNoEffect(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{{Kind: synthetic.Duplicate}}})
	list := items(t, 3, 10)
	list[2].Key = wire.Key{} // without a name, too
	pushAll(t, f, list)
	if s := f.Stats(); s.Blocks != 3 || s.Hits["duplicate"] != 3 {
		t.Errorf("stats %+v", s)
	}
	var told int
	r, content := open(t, serve(f), f, window.Spec{Bytes: 8, Wrote: func(wire.Span) { told++ }})
	x := []fabric.Xfer{{R: r, M: fabric.Mem{B: []byte("12345678")}}}
	f.Write(t.Context(), x)
	if x[0].Err != nil || told != 2 || content() != "12345678" {
		t.Errorf("write twice: %v, told %d times, %q", x[0].Err, told, content())
	}
}

func TestReorderChangesTheOrderOnly(t *testing.T) {
	f := synthetic.New(synthetic.Options{Seed: 3, Faults: []synthetic.Fault{{Kind: synthetic.Reorder, Op: synthetic.OpPush}}})
	list := items(t, 16, 10)
	pushAll(t, f, list)
	inOrder := slices.IsSortedFunc(list, func(a, b fabric.Item) int { return bytes.Compare(a.H[:8], b.H[:8]) })
	if inOrder {
		t.Error("16 messages of a reordered batch came in order")
	}
	got := pulls(list)
	f.Pull(t.Context(), got)
	for i := range got {
		if got[i].Err != nil || !bytes.Equal(got[i].M.B, list[i].M.B) || got[i].H != list[i].H {
			t.Errorf("item %d: %v, or another item's bytes", i, got[i].Err)
		}
	}
}

// Late with no time of its own happens inside Quiesce, and no earlier.
func TestLatePullTouchesMemoryInsideQuiesce(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{{Kind: synthetic.Late, Op: synthetic.OpPull, Times: 1}}})
	list := items(t, 2, 100)
	pushAll(t, f, list)
	got := pulls(list)
	f.Pull(t.Context(), got)
	if want := []wire.Code{wire.CodeDeadline, 0}; !slices.Equal(codes(got), want) || !got[0].Loose || got[1].Loose {
		t.Fatalf("codes %v, loose %v %v", codes(got), got[0].Loose, got[1].Loose)
	}
	untouched := make([]byte, len(got[0].M.B))
	if !bytes.Equal(got[0].M.B, untouched) {
		t.Error("touched before Quiesce")
	}
	if s := f.Stats(); s.Loose != 1 {
		t.Errorf("stats %+v", s)
	}
	if err := f.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[0].M.B, list[0].M.B) {
		t.Error("the late bytes did not come")
	}
	if s := f.Stats(); s.Loose != 0 || s.LateDone != 1 || s.Reused != 0 {
		t.Errorf("stats %+v", s)
	}
	clear(got[0].M.B)
	if err := errors.Join(f.Quiesce(t.Context()), f.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[0].M.B, untouched) {
		t.Error("touched after Quiesce")
	}
}

func TestLateWithATimeIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{
			{Kind: synthetic.Late, Op: synthetic.OpPull, Times: 1, For: 10 * time.Second},
		}})
		list := items(t, 1, 100)
		pushAll(t, f, list)
		got := pulls(list)
		f.Pull(t.Context(), got)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := f.Quiesce(ctx); !errors.Is(err, wire.CodeDeadline) {
			t.Errorf("quiesce before its time: %v", err)
		}
		start := time.Now()
		if err := f.Quiesce(t.Context()); err != nil || time.Since(start) != 6*time.Second {
			t.Errorf("quiesce: %v after %v", err, time.Since(start))
		}
		if !bytes.Equal(got[0].M.B, list[0].M.B) {
			t.Error("the late bytes did not come")
		}
	})
}

// A caller that uses loose memory again before Quiesce is found out.
func TestReuseOfLooseMemoryIsCounted(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{{Kind: synthetic.Late}}})
	list := items(t, 2, 100)
	f.Push(t.Context(), list)
	list[1].M.B[40]++ // too early
	if err := f.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := f.Stats(); s.LateDone != 2 || s.Reused != 1 || s.Blocks != 0 {
		t.Errorf("stats %+v: a late push may not be stored", s)
	}
}

func TestDisconnectLastsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{
			{Kind: synthetic.Disconnect, Op: synthetic.OpPush, Skip: 1, Times: 1, For: time.Minute},
		}})
		list := items(t, 3, 10)
		f.Push(t.Context(), list)
		if want := []wire.Code{0, wire.CodeUnreachable, wire.CodeUnreachable}; !slices.Equal(codes(list), want) {
			t.Errorf("codes %v, want %v", codes(list), want)
		}
		one := list[:1]
		f.Find(t.Context(), one)
		if !errors.Is(one[0].Err, wire.CodeUnreachable) {
			t.Errorf("find while disconnected: %v", one[0].Err)
		}
		time.Sleep(time.Minute)
		f.Find(t.Context(), one)
		if one[0].Err != nil {
			t.Errorf("find after it: %v", one[0].Err)
		}
		f.Inject(synthetic.Fault{Kind: synthetic.Disconnect})
		f.Push(t.Context(), list[1:])
		time.Sleep(time.Hour)
		if _, _, err := f.Probe(t.Context(), ""); !errors.Is(err, wire.CodeUnreachable) {
			t.Errorf("a disconnect without a time ended by itself: %v", err)
		}
		f.Heal()
		pushAll(t, f, list[1:])
	})
}

func TestFullByAFault(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{{Kind: synthetic.Full, Times: 2}}})
	list := items(t, 2, 10)
	if _, err := f.Place(t.Context(), list[:1]); err != nil || !errors.Is(list[0].Err, wire.CodeFull) {
		t.Errorf("place: %v, %v", err, list[0].Err)
	}
	f.Push(t.Context(), list)
	if want := []wire.Code{wire.CodeFull, 0}; !slices.Equal(codes(list), want) {
		t.Errorf("codes %v, want %v", codes(list), want)
	}
}

// One seed gives one run, another one another.
func TestFaultsRepeatBySeed(t *testing.T) {
	run := func(seed uint64) string {
		f := synthetic.New(synthetic.Options{Seed: seed, Faults: []synthetic.Fault{
			{Kind: synthetic.Corrupt, Chance: 0.2}, {Kind: synthetic.Late, Chance: 0.2}, {Kind: synthetic.Full, Chance: 0.2},
		}})
		out := ""
		for range 4 {
			list := items(t, 40, 10)
			f.Push(t.Context(), list)
			got := pulls(list)
			f.Pull(t.Context(), got)
			out += fmt.Sprint(codes(list), codes(got))
		}
		return out + fmt.Sprint(f.Stats().Hits)
	}
	if first, again := run(1), run(1); first != again {
		t.Error("one seed gave two runs")
	}
	if run(1) == run(2) {
		t.Error("two seeds gave one run")
	}
}

func TestChanceIsKept(t *testing.T) {
	f := synthetic.New(synthetic.Options{Seed: 5, Faults: []synthetic.Fault{{Kind: synthetic.Full, Chance: 0.25}}})
	for range 10 {
		f.Push(t.Context(), items(t, 400, 1))
	}
	if n := f.Stats().Hits["full"]; n < 850 || n > 1150 { // 1000 expected, 5 standard deviations
		t.Errorf("%d of 4000 at a chance of 0.25", n)
	}
}
