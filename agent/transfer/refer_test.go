package transfer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// peers is a fabric made of peers a, b and c, each of which has its letter for an
// agent id and runs in incarnation 7.
type peers struct {
	fabric.Fabric
	refs map[fabric.Handle]uint32 // slots of handles that were made
}

func (p *peers) Refer(agent [16]byte, inc uint64) (string, func(slot, gen uint32) fabric.Handle, error) {
	name := string(agent[:1])
	switch {
	case !strings.Contains("abc", name):
		return "", nil, wire.CodeUnreachable
	case inc < 7:
		return name, nil, wire.CodeIncarnation
	case inc != 7:
		return name, nil, wire.CodeStale
	}
	return name, func(slot, gen uint32) fabric.Handle {
		h := wire.Ref{Agent: agent, Inc: inc, Slot: slot, Gen: gen}.Handle()
		p.refs[h] = slot
		return h
	}, nil
}

func hintAt(name string) Hint { return Hint{Agent: [16]byte{name[0]}, Inc: 7} }

// hinted is a room with peers a, b and c of which each has what has says.
type hinted struct {
	*rig
	peers *peers
	f     []*bent
	mu    sync.Mutex
	asked map[string][]string // what each holder was asked for, by name: keys of one letter
}

func newHinted(t *testing.T, has map[string]string) *hinted {
	f := world(t, 3)
	h := &hinted{peers: &peers{Fabric: f[0], refs: map[fabric.Handle]uint32{}}, f: f, asked: map[string][]string{}}
	all := map[string]fabric.Fabric{"peers": h.peers}
	for i, name := range []string{"a", "b", "c"} {
		all["peers/"+name] = f[i]
	}
	h.rig = newRig(t, nil, all)
	for _, k := range "xyz" {
		h.give(f[0], []wire.Key{h.key(string(k))}, size)
	}
	for i, name := range []string{"a", "b", "c"} {
		f[i].find = func(ctx context.Context, it []fabric.Item) {
			h.mu.Lock()
			defer h.mu.Unlock()
			names := ""
			for k := range it {
				by := it[k].H
				slot, ref := h.peers.refs[by]
				it[k].H = fabric.Handle{}
				one := it[k : k+1]
				f[i].Fabric.Find(ctx, one)
				for _, key := range "wxyz" {
					if h.key(string(key)) == it[k].Key {
						if names += string(key); !strings.ContainsRune(has[name], key) {
							it[k].Err = wire.CodeAbsent
						}
						if ref {
							names += "@"
						}
						if ref && slot != 1 {
							it[k].Err = wire.CodeStale
						}
					}
				}
			}
			h.asked[name] = append(h.asked[name], names)
		}
	}
	return h
}

func (h *hinted) key(name string) wire.Key { return wire.KeyOf(h.ns, []byte(name)) }

func (h *hinted) from(at Hint, refs []wire.Ref, rest bool, names string) []error {
	var keys []wire.Key
	for _, k := range names {
		keys = append(keys, h.key(string(k)))
	}
	return h.FetchFrom(fabric.WithClass(h.t.Context(), fabric.ClassUrgent), Job{NS: h.ns, Keys: keys}, at, refs, rest)
}

func (h *hinted) wasAsked(t *testing.T, want map[string]string) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		if got := strings.Join(h.asked[name], " "); got != want[name] {
			t.Errorf("%s was asked for %q, want %q", name, got, want[name])
		}
	}
}

func (h *hinted) outcomes(t *testing.T, want map[HintOutcome]uint64) {
	t.Helper()
	for o := range HintOutcomes {
		if got := h.Hinted(o); got != want[o] {
			t.Errorf("%d hints were %s, want %d", got, o, want[o])
		}
	}
}

// A hinted holder is asked first and alone; the others only for what it has not, and
// only where they may be.
func TestAHintedHolderIsAskedFirstAndAlone(t *testing.T) {
	ref := []wire.Ref{{Slot: 1, Gen: 2}, {Slot: 1, Gen: 2}}
	stale := []wire.Ref{{Slot: 9, Gen: 2}}
	for _, c := range []struct {
		name     string
		at       Hint
		refs     []wire.Ref
		rest     bool
		keys     string
		code     []wire.Code
		why      string
		asked    map[string]string
		outcomes map[HintOutcome]uint64
	}{
		{"it has all", hintAt("b"), ref, true, "xy", []wire.Code{0, 0}, "",
			map[string]string{"b": "x@y@"}, map[HintOutcome]uint64{HintServed: 2}},
		{"it has some, and others the rest", hintAt("b"), nil, true, "xz", []wire.Code{0, 0}, "",
			map[string]string{"a": "z", "b": "xz", "c": "z"}, map[HintOutcome]uint64{HintServed: 1, HintAbsent: 1}},
		{"it has some, and nobody else is asked", hintAt("b"), nil, false, "xz", []wire.Code{0, wire.CodeAbsent}, "the holder has no such block",
			map[string]string{"b": "xz"}, map[HintOutcome]uint64{HintServed: 1, HintAbsent: 1}},
		{"a slot with another block, alone", hintAt("b"), stale, false, "x", []wire.Code{wire.CodeAbsent}, "the holder has another block in that slot",
			map[string]string{"b": "x@"}, map[HintOutcome]uint64{HintStale: 1}},
		{"a slot with another block", hintAt("b"), stale, true, "z", []wire.Code{0}, "",
			map[string]string{"a": "z", "b": "z@", "c": "z"}, map[HintOutcome]uint64{HintStale: 1}},
		{"nobody has it", hintAt("c"), nil, true, "y", []wire.Code{0}, "",
			map[string]string{"a": "y", "b": "y", "c": "y"}, map[HintOutcome]uint64{HintAbsent: 1}},
		{"no such agent, alone", hintAt("q"), nil, false, "x", []wire.Code{wire.CodeAbsent}, "no peer that may be asked is that holder",
			nil, map[HintOutcome]uint64{HintUnknown: 1}},
		{"no such agent", hintAt("q"), nil, true, "x", []wire.Code{0}, "",
			map[string]string{"a": "x", "b": "x", "c": "x"}, map[HintOutcome]uint64{HintUnknown: 1}},
		{"no such agent, and nobody has it", hintAt("q"), nil, true, "xw", []wire.Code{0, wire.CodeAbsent}, "no peer that may be asked is that holder, and no other has the block",
			map[string]string{"a": "xw", "b": "xw", "c": "xw"}, map[HintOutcome]uint64{HintUnknown: 2}},
		{"another incarnation, alone", Hint{[16]byte{'b'}, 8}, ref, false, "x", []wire.Code{wire.CodeAbsent}, "the holder runs in another incarnation",
			nil, map[HintOutcome]uint64{HintOther: 1}},
		{"an earlier incarnation, alone", Hint{[16]byte{'b'}, 6}, ref, false, "x", []wire.Code{wire.CodeAbsent}, "the holder runs in another incarnation, a later one",
			nil, map[HintOutcome]uint64{HintOther: 1}},
		{"an earlier incarnation", Hint{[16]byte{'b'}, 6}, ref, true, "x", []wire.Code{0}, "",
			map[string]string{"a": "x", "b": "x", "c": "x"}, map[HintOutcome]uint64{HintOther: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHinted(t, map[string]string{"a": "z", "b": "xy"})
				errs := h.from(c.at, c.refs, c.rest, c.keys)
				for i, want := range c.code {
					if wire.CodeOf(errs[i]) != want {
						t.Errorf("block %d: %v, want %v", i, errs[i], want)
					}
				}
				if last := errs[len(errs)-1]; c.why != "" && (last == nil || last.Error() != c.why) {
					t.Errorf("it says %v, want %q", last, c.why)
				}
				h.wasAsked(t, c.asked)
				h.outcomes(t, c.outcomes)
			})
		})
	}
}

// A holder that is pointed to and answers nothing is waited for within the bound,
// and then the others are asked, or the asker is told.
func TestASilentHintedHolderCostsTheBound(t *testing.T) {
	for _, rest := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHinted(t, map[string]string{"a": "xyz"})
			h.f[1].find = frozen
			began := time.Now()
			errs := h.from(hintAt("b"), nil, rest, "xy")
			if d := time.Since(began); d != DefaultFindWithin {
				t.Errorf("it took %v, want %v", d, DefaultFindWithin)
			}
			if want := map[bool]wire.Code{true: wire.CodeOK, false: wire.CodeNoProgress}[rest]; wire.CodeOf(errs[0]) != want {
				t.Errorf("%v, want %v", errs[0], want)
			}
			h.outcomes(t, map[HintOutcome]uint64{HintSilent: 2})
		})
	}
}

// A holder that is pointed to, says that it has a block, and stands still while it
// sends it, loses it to another.
func TestAHintedHolderThatStandsStillLosesItsBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t, map[string]string{"a": "x", "b": "x"})
		h.f[1].pull = frozen
		began := time.Now()
		allAre(t, h.from(hintAt("b"), nil, true, "x"), wire.CodeOK)
		if d := time.Since(began); d > 2*pullPatience {
			t.Errorf("it took %v, want at most %v", d, 2*pullPatience)
		}
		h.outcomes(t, map[HintOutcome]uint64{HintSilent: 1})
		synctest.Wait()
	})
}

// A holder that dies with the block on its way, or sends other bytes, is not believed.
func TestAHintedHolderThatFailsLosesItsBlock(t *testing.T) {
	for _, with := range []error{wire.CodeUnreachable, wire.CodeStale, wire.CodeFull} {
		synctest.Test(t, func(t *testing.T) {
			h := newHinted(t, map[string]string{"a": "x", "b": "x"})
			h.f[1].pull = func(_ context.Context, it []fabric.Item) {
				for i := range it {
					it[i].Err = with
				}
			}
			allAre(t, h.from(hintAt("b"), nil, true, "x"), wire.CodeOK)
			if h.Hinted(HintServed) != 0 {
				t.Error("it counts as served")
			}
		})
	}
}

// What is known of an agent depends on the tenant that it proved: one that may not
// see the namespace is like one that does not exist, whatever its incarnation.
func TestAHintTellsNothingOfAHolderThatMayNotBeAsked(t *testing.T) {
	h := newHinted(t, map[string]string{"b": "x"})
	if _, ok := h.reg.Remove("peers/b"); !ok {
		t.Fatal("there is no peer b")
	}
	if err := h.reg.Add("peers/b", &shut{h.f[1]}); err != nil {
		t.Fatal(err)
	}
	for _, inc := range []uint64{7, 8} {
		errs := h.from(Hint{[16]byte{'b'}, inc}, nil, false, "x")
		other := h.from(Hint{[16]byte{'q'}, inc}, nil, false, "x")
		if !errors.Is(errs[0], wire.CodeAbsent) || errs[0].Error() != other[0].Error() {
			t.Errorf("incarnation %d: %v, and of one that does not exist %v", inc, errs[0], other[0])
		}
	}
	h.wasAsked(t, nil)
}

// shut is a peer that has not proved the tenant.
type shut struct{ *bent }

func (*shut) Usable(wire.Namespace) error { return wire.CodeNSUnknown }
