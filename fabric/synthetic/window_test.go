package synthetic_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// open makes a window that an endpoint serves, and looks into it.
func open(t *testing.T, table *window.Table, f *synthetic.Fabric, s window.Spec) (fabric.Range, func() string) {
	t.Helper()
	s.TTL, s.Read, s.Write = window.Forever, true, true
	w, err := table.Open(1, s)
	if err != nil {
		t.Fatal(err)
	}
	return fabric.Range{Peer: f.Name(), Addr: w.Addr, Len: w.Len}, func() string {
		b, leave, err := table.Own(1, w.Addr, w.Len)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		return string(b)
	}
}

func write(ctx context.Context, f *synthetic.Fabric, r fabric.Range, b []byte) *fabric.Xfer {
	r.Len = uint64(len(b))
	x := []fabric.Xfer{{R: r, M: fabric.Mem{B: b}}}
	f.Write(ctx, x)
	return &x[0]
}

func TestAnEndpointServesItsWindowsByItsName(t *testing.T) {
	f := synthetic.New(synthetic.Options{})
	g, _ := f.Join("g", 0)
	h, _ := f.Join("h", 0)
	table := serve(f)
	serve(h)
	r, content := open(t, table, f, window.Spec{Bytes: 8, Peers: []string{"g"}})
	if x := write(t.Context(), h, r, []byte("bad")); !errors.Is(x.Err, wire.CodeDenied) {
		t.Errorf("h writes: %v", x.Err)
	}
	if x := write(t.Context(), g, r, []byte("good")); x.Err != nil || content()[:4] != "good" {
		t.Errorf("g writes: %v, %q", x.Err, content())
	}
	wrong := r
	wrong.Peer = "h"
	if x := write(t.Context(), g, wrong, []byte("x")); x.Err == nil {
		t.Error("reached under another endpoint's name")
	}
	wrong.Peer = "g" // which has none
	if x := write(t.Context(), g, wrong, []byte("x")); !errors.Is(x.Err, wire.CodeUnreachable) {
		t.Errorf("at an endpoint without windows: %v", x.Err)
	}
	if _, err := f.Join("g", 0); !errors.Is(err, wire.CodeExists) {
		t.Errorf("a name twice: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if x := write(t.Context(), g, r, []byte("gone")); !errors.Is(x.Err, wire.CodeUnreachable) {
		t.Errorf("after the owner's Close: %v", x.Err)
	}
}

func TestLateWriteMissesAClosedWindow(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{{Kind: synthetic.Late, Op: synthetic.OpWrite}}})
	table := serve(f)
	r, _ := open(t, table, f, window.Spec{Bytes: 8})
	x := write(t.Context(), f, r, []byte("late"))
	if !errors.Is(x.Err, wire.CodeDeadline) || !x.Loose {
		t.Fatalf("late write: %v, loose %v", x.Err, x.Loose)
	}
	table.Close(1, r.Addr)
	if err := f.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := table.Stats(); st.Late != 1 || st.InFlight != 0 {
		t.Errorf("the late write was not refused: %+v", st)
	}
	r, content := open(t, table, f, window.Spec{Bytes: 8})
	write(t.Context(), f, r, []byte("late"))
	if err := f.Quiesce(t.Context()); err != nil || content()[:4] != "late" {
		t.Errorf("the late write did not come: %v, %q", err, content())
	}
}

// One-sided accesses carry no checksum: damage is delivered as it is.
func TestCorruptAccessIsNotNoticed(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{
		{Kind: synthetic.Corrupt, Op: synthetic.OpWrite | synthetic.OpRead, Bit: 10},
	}})
	r, content := open(t, serve(f), f, window.Spec{Bytes: 4})
	if x := write(t.Context(), f, r, make([]byte, 4)); x.Err != nil || content() != "\x00\x02\x00\x00" {
		t.Errorf("write: %v, %q", x.Err, content())
	}
	x := []fabric.Xfer{{R: r, M: fabric.Mem{B: make([]byte, 4)}}}
	f.Read(t.Context(), x)
	if x[0].Err != nil || !slices.Equal(x[0].M.B, make([]byte, 4)) {
		t.Errorf("read: %v, %v", x[0].Err, x[0].M.B)
	}
}

func TestPlacementThatNobodySealsIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := synthetic.New(synthetic.Options{Capacity: 200})
		list := items(t, 1, 100)
		r, err := f.Place(t.Context(), list)
		if err != nil || list[0].Err != nil {
			t.Fatal(err, list[0].Err)
		}
		other := []fabric.Item{{Key: keyOf(7), M: list[0].M}}
		f.Push(t.Context(), other)
		if !errors.Is(other[0].Err, wire.CodeFull) {
			t.Errorf("push beside a placement: %v", other[0].Err)
		}
		time.Sleep(synthetic.PlaceTTL)
		pushAll(t, f, other)
		if x := write(t.Context(), f, r[0], list[0].M.B); !errors.Is(x.Err, wire.CodeStale) {
			t.Errorf("write to a placement that ran out: %v", x.Err)
		}
		if err := f.Seal(t.Context(), list, []bool{true}); err != nil || !errors.Is(list[0].Err, wire.CodeAbsent) {
			t.Errorf("seal of a placement that ran out: %v, %v", err, list[0].Err)
		}
		if s := f.Stats(); s.Placed != 0 || s.Blocks != 1 || s.Bytes != 132 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestPlacementLosesToAPushOfTheSameKey(t *testing.T) {
	f := synthetic.New(synthetic.Options{})
	list := items(t, 1, 100)
	r, err := f.Place(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	pushAll(t, f, items(t, 1, 100))
	if x := write(t.Context(), f, r[0], list[0].M.B); x.Err != nil {
		t.Fatal(x.Err)
	}
	if err := f.Seal(t.Context(), list, []bool{true}); err != nil || !errors.Is(list[0].Err, wire.CodeExists) {
		t.Errorf("seal: %v, %v", err, list[0].Err)
	}
	if s := f.Stats(); s.Blocks != 1 || s.Bytes != 132 || s.Placed != 0 {
		t.Errorf("stats %+v", s)
	}
	if err := f.Seal(t.Context(), list, nil); !errors.Is(err, wire.CodeInvalid) {
		t.Errorf("seal without ok: %v", err)
	}
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{
			{Kind: synthetic.Delay, Op: synthetic.OpPull, For: time.Hour},
			{Kind: synthetic.Late, Op: synthetic.OpPush, For: time.Hour, Key: keyOf(5)},
		}})
		pushAll(t, f, items(t, 2, 10))
		late := items(t, 6, 10)[5:]
		f.Push(t.Context(), late)
		got := pulls(items(t, 2, 10))
		var wg sync.WaitGroup
		wg.Go(func() { f.Pull(t.Context(), got) })
		synctest.Wait()
		start := time.Now()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if want := []wire.Code{wire.CodeUnreachable, wire.CodeUnreachable}; !slices.Equal(codes(got), want) {
			t.Errorf("codes %v, want %v", codes(got), want)
		}
		if s := f.Stats(); s.Loose != 0 || s.LateDone != 1 || time.Since(start) != 0 {
			t.Errorf("close took %v and left %+v", time.Since(start), s)
		}
	})
}
