package engine

import "testing"

// After a Recheck no lane of before is used again: not one that was idle, and not one that
// was in use.
func TestLanesAreOpenedAgainWhereTheRulesChanged(t *testing.T) {
	p := newPair(t, 1000)
	read := func() error {
		ops := []Op{{Addr: base, B: make([]byte, 10)}}
		p.seg.Read(t.Context(), ops)
		return ops[0].Err
	}
	if err := read(); err != nil || p.dials.Load() != 1 {
		t.Fatalf("%v, %d lanes", err, p.dials.Load())
	}
	p.in.Recheck()
	if err := read(); err != nil || p.dials.Load() != 2 {
		t.Errorf("an idle lane: %v, %d lanes were opened, want 2", err, p.dials.Load())
	}
	used, reused, err := p.seg.lane(t.Context())
	if err != nil || !reused {
		t.Fatal(reused, err)
	}
	p.in.Recheck()
	p.seg.giveBack(used)
	if err := read(); err != nil || p.dials.Load() != 3 {
		t.Errorf("a lane in use: %v, %d lanes were opened, want 3", err, p.dials.Load())
	}
}
