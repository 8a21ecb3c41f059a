package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// row is one line of the transition table: a phase, what is decoded there, and
// the phase and events after it.
type row struct {
	from   Phase
	tokens []int32
	to     Phase
	events []EventKind
}

const (
	tokStart = 101
	tokEnd   = 102
	tokEOS   = 9
	tokText  = 20
)

func oneTokenModel(t *testing.T) *Models {
	t.Helper()
	ms, err := NewModels([]Model{{Name: "m", Start: []int32{tokStart}, End: []int32{tokEnd}, EOS: []int32{tokEOS}, MaxThink: 100}})
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// into brings a new request to a phase.
var into = [phases][]int32{
	Prefill:      nil,
	ThinkDecode:  {tokStart},
	OutputDecode: {tokText},
	Complete:     {tokEOS},
}

func TestTransitions(t *testing.T) {
	ms := oneTokenModel(t)
	for _, r := range []row{
		{Prefill, nil, Prefill, nil},
		{Prefill, []int32{tokStart}, ThinkDecode, []EventKind{EnterThink}},
		{Prefill, []int32{tokEOS}, Complete, []EventKind{Completed}},
		{Prefill, []int32{tokEnd}, OutputDecode, nil},
		{Prefill, []int32{tokText}, OutputDecode, nil},
		{ThinkDecode, nil, ThinkDecode, nil},
		{ThinkDecode, []int32{tokText}, ThinkDecode, nil},
		{ThinkDecode, []int32{tokStart}, ThinkDecode, nil},
		{ThinkDecode, []int32{tokEnd}, OutputDecode, []EventKind{ExitThink}},
		{ThinkDecode, []int32{tokEOS}, Complete, []EventKind{Completed}},
		{ThinkDecode, []int32{tokEnd, tokEOS}, Complete, []EventKind{ExitThink, Completed}},
		{OutputDecode, nil, OutputDecode, nil},
		{OutputDecode, []int32{tokText}, OutputDecode, nil},
		{OutputDecode, []int32{tokStart}, OutputDecode, nil},
		{OutputDecode, []int32{tokEnd}, OutputDecode, nil},
		{OutputDecode, []int32{tokEOS}, Complete, []EventKind{Completed}},
		{Complete, []int32{tokText}, Complete, nil},
		{Complete, []int32{tokStart}, Complete, nil},
		{Complete, []int32{tokEnd}, Complete, nil},
		{Complete, []int32{tokEOS}, Complete, nil},
	} {
		t.Run(fmt.Sprintf("%s%v", r.from, r.tokens), func(t *testing.T) {
			c := New(Config{Models: ms})
			c.Step(0, []Input{{Kind: Arrive, ID: 5, Model: "m"}, {Kind: Tokens, ID: 5, Tokens: into[r.from]}})
			var ready Ready
			c.Ready(&ready)
			if got := c.slots[c.ids.find(5)].phase; got != r.from {
				t.Fatalf("brought to %s, want %s", got, r.from)
			}
			c.Step(0, []Input{{Kind: Tokens, ID: 5, Tokens: r.tokens}})
			c.Ready(&ready)
			var kinds []EventKind
			for _, e := range ready.Events {
				kinds = append(kinds, e.Kind)
			}
			if got := c.slots[c.ids.find(5)].phase; got != r.to {
				t.Errorf("phase %s, want %s", got, r.to)
			}
			if !slices.Equal(kinds, r.events) {
				t.Errorf("events %v, want %v", kinds, r.events)
			}
		})
	}
}

// Abort and Done may come in every phase, in any order and number. Whatever
// they do, the entry is gone, the id is free, and at most one Completed was told.
func TestEndsAreIdempotentInEveryPhase(t *testing.T) {
	ms := oneTokenModel(t)
	for from := range Phase(phases) {
		for _, ends := range [][]Kind{{Abort, Abort}, {Done, Done}, {Abort, Done}, {Done, Abort}} {
			c := New(Config{Models: ms, OffloadThreshold: 2})
			c.Step(0, []Input{
				{Kind: Arrive, ID: 5, Model: "m"},
				{Kind: Tokens, ID: 5, Tokens: into[from]},
				{Kind: KV, ID: 5, Blocks: 1, Think: true},
				{Kind: ends[0], ID: 5},
				{Kind: ends[1], ID: 5},
			})
			var ready Ready
			c.Ready(&ready)
			told := 0
			for _, e := range ready.Events {
				if e.Kind == Completed {
					told++
				}
			}
			want := 1
			if ends[0] == Abort && from != Complete {
				want = 0
			}
			if told != want {
				t.Errorf("%s, %v: %d Completed, want %d", from, ends, told, want)
			}
			s := c.Stats()
			if s.Tracked() != 0 || s.Untracked != 1 || c.timers.head != none {
				t.Errorf("%s, %v: %d tracked, %d untracked", from, ends, s.Tracked(), s.Untracked)
			}
			c.Step(1, []Input{{Kind: Arrive, ID: 5, Model: "m"}})
			if c.Ready(&ready); len(ready.Events) != 0 || c.Stats().Tracked() != 1 {
				t.Errorf("%s, %v: the id could not be used again: %v", from, ends, ready.Events)
			}
		}
	}
}

// A batch is abandoned by an abort; what was emitted before stands.
func TestAbortStopsTheTimer(t *testing.T) {
	c := New(Config{Models: oneTokenModel(t), OffloadThreshold: 4, OffloadAfter: 10})
	c.Step(0, []Input{
		{Kind: Arrive, ID: 1, Model: "m"},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokStart}},
		{Kind: KV, ID: 1, Blocks: 3},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokEnd}},
	})
	var ready Ready
	if c.Ready(&ready); ready.Next != 10 {
		t.Fatalf("next %d, want 10", ready.Next)
	}
	c.Step(5, []Input{{Kind: Abort, ID: 1}})
	c.Tick(DefaultReapAfter)
	if c.Ready(&ready); len(ready.Events) != 0 || ready.Next != Never {
		t.Fatalf("events %v, next %d after an abort", ready.Events, ready.Next)
	}
}

// A caller's block count, however wrong, bounds the events of one input.
func TestBlocksAreBounded(t *testing.T) {
	c := New(Config{Models: oneTokenModel(t), OffloadThreshold: 1 << 40})
	c.Step(0, []Input{
		{Kind: Arrive, ID: 1, Model: "m"},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokStart}},
		{Kind: KV, ID: 1, Blocks: 1<<32 - 1},
		{Kind: KV, ID: 1, Blocks: 7},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokEnd}},
	})
	s := c.Stats()
	if s.Offloaded != MaxBlocks || s.Uncounted != 1<<32-1+7-MaxBlocks || s.Events[Offload] != 1 {
		t.Fatalf("offloaded %d in %d, uncounted %d", s.Offloaded, s.Events[Offload], s.Uncounted)
	}
}

func TestModelsAreChecked(t *testing.T) {
	long := make([]int32, MaxMarker+1)
	for i := range long {
		long[i] = int32(i)
	}
	for _, tt := range []struct {
		m           Model
		field, text string
	}{
		{Model{Start: long}, "start", "33 ids, limit 32"},
		{Model{End: long}, "end", "33 ids, limit 32"},
		{Model{EOS: long[:MaxEOS+1]}, "eos", "17 ids, limit 16"},
		{Model{EOS: []int32{-4}}, "eos", "negative id -4"},
		{Model{Start: []int32{1, 7}, EOS: []int32{7}}, "start", "id 7 is also"},
		{Model{Start: []int32{1}, End: []int32{1}}, "end", "equal to start [1]"},
		{Model{MinThink: 7, MaxThink: 7}, "min", "7 is not below the maximum, which is 7"},
	} {
		tt.m.Name = "zed"
		_, err := NewModels([]Model{{Name: "good", Start: []int32{1}}, tt.m})
		var bad *ModelError
		if !errors.As(err, &bad) || bad.Name != "zed" || bad.Field != tt.field || !strings.Contains(bad.Text, tt.text) {
			t.Errorf("%+v: %v", tt.m, err)
		}
	}
	_, err := NewModels([]Model{{Name: "m"}, {Name: "n"}, {Name: "m"}})
	if want := `model "m": name: used twice`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := NewModels([]Model{{Name: "m", Start: long[:MaxMarker], End: long[1:], EOS: []int32{99}}}); err != nil {
		t.Errorf("at the limits: %v", err)
	}
}

// The caller may change its slices after NewModels.
func TestModelsAreCopied(t *testing.T) {
	start := []int32{tokStart}
	ms, err := NewModels([]Model{{Name: "m", Start: start, End: []int32{tokEnd}}})
	if err != nil {
		t.Fatal(err)
	}
	start[0] = 1
	c := New(Config{Models: ms})
	c.Step(0, []Input{{Kind: Arrive, Model: "m"}, {Kind: Tokens, Tokens: []int32{tokStart}}})
	if c.Stats().Events[EnterThink] != 1 {
		t.Fatal("the model changed under the core")
	}
}

func TestNamesAreTotal(t *testing.T) {
	seen := map[string]bool{}
	for i := range 256 {
		for _, s := range []string{Phase(i).String(), EventKind(i).String(), Reason(i).String()} {
			if s == "" {
				t.Fatalf("%d has no name", i)
			}
			seen[s] = true
		}
	}
	for _, want := range []string{"prefill", "exit_think", "hard_cap", "phase(4)", "event(9)", "reason(255)"} {
		if !seen[want] {
			t.Errorf("no %q", want)
		}
	}
}
