package synthetic_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

func window(t *testing.T, f *synthetic.Fabric, n int, peers ...string) (fabric.Range, []byte) {
	t.Helper()
	m := make([]byte, n)
	r, err := f.Open(fabric.Window{M: []fabric.Mem{{B: m}}, Write: true, Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

func write(ctx context.Context, f *synthetic.Fabric, r fabric.Range, b []byte) *fabric.Xfer {
	r.Len = uint64(len(b))
	x := []fabric.Xfer{{R: r, M: fabric.Mem{B: b}}}
	f.Write(ctx, x)
	return &x[0]
}

func TestAddressesOnlyGrow(t *testing.T) {
	f := synthetic.New(synthetic.Options{})
	g, err := f.Join("g", 0)
	if err != nil {
		t.Fatal(err)
	}
	var last fabric.Range
	for i := range 200 {
		on := []*synthetic.Fabric{f, g}[i%2]
		r, _ := window(t, on, 1+i*997)
		if r.Addr <= last.Addr+last.Len || r.Addr+r.Len >= 1<<47 || r.Peer != on.Name() {
			t.Fatalf("window %d is %+v after %+v", i, r, last)
		}
		last = r
		if i%3 == 0 {
			if _, err := on.Shut(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := f.Open(fabric.Window{}); !errors.Is(err, wire.CodeInvalid) {
		t.Errorf("a window without memory: %v", err)
	}
}

func TestWindowKnowsWhoMayTouchIt(t *testing.T) {
	f := synthetic.New(synthetic.Options{})
	g, _ := f.Join("g", 0)
	h, _ := f.Join("h", 0)
	r, m := window(t, f, 8, "g")
	if x := write(t.Context(), h, r, []byte("bad")); !errors.Is(x.Err, wire.CodeDenied) {
		t.Errorf("h writes: %v", x.Err)
	}
	if x := write(t.Context(), g, r, []byte("good")); x.Err != nil || string(m[:4]) != "good" {
		t.Errorf("g writes: %v, %q", x.Err, m)
	}
	wrong := r
	wrong.Peer = "h"
	if x := write(t.Context(), g, wrong, []byte("x")); !errors.Is(x.Err, wire.CodeDenied) {
		t.Errorf("under another endpoint's name: %v", x.Err)
	}
	if _, err := h.Shut(t.Context(), r); err != nil {
		t.Error(err)
	}
	if x := write(t.Context(), g, r, []byte("still")); x.Err != nil {
		t.Errorf("another endpoint could shut it: %v", x.Err)
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

// Shut waits for the access under way, and refuses the next one meanwhile.
func TestShutWaitsForAccessesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := synthetic.New(synthetic.Options{})
		g, _ := f.Join("g", 0)
		hold := make(chan struct{})
		m := make([]byte, 8)
		r, err := f.Open(fabric.Window{M: []fabric.Mem{{B: m}}, Write: true, OnWrite: func(wire.Span) { <-hold }})
		if err != nil {
			t.Fatal(err)
		}
		var first *fabric.Xfer
		var wg sync.WaitGroup
		wg.Go(func() { first = write(t.Context(), g, r, []byte("first")) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.Shut(ctx, r); !errors.Is(err, wire.CodeDeadline) {
			t.Errorf("shut with an access under way: %v", err)
		}
		if x := write(t.Context(), g, r, []byte("second")); !errors.Is(x.Err, wire.CodeStale) {
			t.Errorf("access to a closing window: %v", x.Err)
		}
		var touched []wire.Span
		wg.Go(func() { touched, err = f.Shut(t.Context(), r) })
		synctest.Wait()
		close(hold)
		wg.Wait()
		if err != nil || first.Err != nil || len(touched) != 1 || touched[0] != (wire.Span{Off: 0, Len: 5}) {
			t.Errorf("shut: %v, %+v; the access: %v", err, touched, first.Err)
		}
	})
}

func TestLateWriteMissesAShutWindow(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{{Kind: synthetic.Late, Op: synthetic.OpWrite}}})
	r, m := window(t, f, 8)
	x := write(t.Context(), f, r, []byte("late"))
	if !errors.Is(x.Err, wire.CodeDeadline) || !x.Loose {
		t.Fatalf("late write: %v, loose %v", x.Err, x.Loose)
	}
	if _, err := f.Shut(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := f.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if string(m) != string(make([]byte, 8)) {
		t.Errorf("the window was written after Shut: %q", m)
	}
	r, m = window(t, f, 8)
	write(t.Context(), f, r, []byte("late"))
	if err := f.Quiesce(t.Context()); err != nil || string(m[:4]) != "late" {
		t.Errorf("the late write did not come: %v, %q", err, m)
	}
}

// One-sided accesses carry no checksum: damage is delivered as it is.
func TestCorruptAccessIsNotNoticed(t *testing.T) {
	f := synthetic.New(synthetic.Options{Faults: []synthetic.Fault{
		{Kind: synthetic.Corrupt, Op: synthetic.OpWrite | synthetic.OpRead, Bit: 10},
	}})
	r, m := window(t, f, 4)
	if x := write(t.Context(), f, r, make([]byte, 4)); x.Err != nil || !slices.Equal(m, []byte{0, 2, 0, 0}) {
		t.Errorf("write: %v, %v", x.Err, m)
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
