package scheduler_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"meridian/scheduler"
)

// A model whose markers are ordinary tokens, and one whose markers are control
// tokens without text.
func watched(t testing.TB) *scheduler.Models {
	t.Helper()
	ms, err := scheduler.NewModels([]scheduler.Model{
		{Name: "text", Start: []int32{1, 2, 3}, End: []int32{4, 2, 3}, StartText: "<think>", EndText: "</think>", MaxThink: 1000},
		{Name: "one", Start: []int32{10}, End: []int32{11}, StartText: "<think>", EndText: "</think>", Written: map[int32]string{10: "<think>", 11: "</think>"}},
		{Name: "never", Start: []int32{10}, StartText: "<think>", Written: map[int32]string{10: "<think>"}},
		{Name: "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// ids of the pieces of the markers of "text"; anything else is 99.
var pieces = map[string]int32{"<": 1, "</": 4, "think": 2, ">": 3}

func idOf(text string) int32 {
	if id, ok := pieces[text]; ok {
		return id
	}
	return 99
}

// seen is what a reader gets: thinking and answer apart.
type seen struct{ think, answer string }

func (s *seen) add(ps []scheduler.Piece[string]) {
	for _, p := range ps {
		if p.Think {
			s.think += string(p.Text)
		} else {
			s.answer += string(p.Text)
		}
	}
}

func watch(ms *scheduler.Models, o scheduler.WatchOptions, tokens ...string) (s seen, w *scheduler.Watch[string]) {
	w = scheduler.NewWatch[string](ms, o)
	for _, tok := range tokens {
		s.add(w.Token(tok, idOf(tok), []byte(tok)))
	}
	s.add(w.Rest())
	return s, w
}

func TestTextDecidesWhereTokensCutAMarkerElsewhere(t *testing.T) {
	ms := watched(t)
	for _, c := range []struct {
		name   string
		open   bool
		tokens []string
		want   seen
		used   int
	}{
		{"canonical tokens", false, []string{"<", "think", ">", "plan", "</", "think", ">", "yes"}, seen{"plan", "yes"}, 4},
		{"the end merged with what follows", true, []string{"plan", "</think", ">\n\n", "yes"}, seen{"plan", "\n\nyes"}, 3},
		{"the end merged with what stands before", true, []string{"pl", "an</", "think>", "yes"}, seen{"plan", "yes"}, 3},
		{"the whole in one token, text on both sides", true, []string{"a</think>b"}, seen{"a", "b"}, 1},
		{"the start merged with the plan", false, []string{"<think", ">plan", "</think>", "yes"}, seen{"plan", "yes"}, 2},
		{"all in one token", false, []string{"<think>plan</think>yes"}, seen{"plan", "yes"}, 1},
		{"byte by byte", false, strings.Split("<think>plan</think>yes", ""), seen{"plan", "yes"}, 12},
		{"white space first", false, []string{"\n", " \n", "<think>", "plan", "</think>", "yes"}, seen{"plan", "yes"}, 2},
		{"white space in the token of the marker", false, []string{"\n<", "think>\n", "plan", "</think>", "yes"}, seen{"\nplan", "yes"}, 3},
		{"white space and no marker", false, []string{"\n\n", "yes"}, seen{"", "\n\nyes"}, 0},
		{"white space only", false, []string{"\n"}, seen{"", "\n"}, 0},
		{"a marker after the first word", false, []string{"yes ", "<think>", "x", "</think>"}, seen{"", "yes <think>x</think>"}, 0},
		{"the beginning of a start marker", false, []string{"<", "th", "ree"}, seen{"", "<three"}, 0},
		{"two beginnings", false, []string{"<", "<think>"}, seen{"", "<<think>"}, 0},
		{"the beginning of an end marker", true, []string{"a", "</", "th", "ree", "</think>", "b"}, seen{"a</three", "b"}, 5},
		{"an end marker that begins twice", true, []string{"</", "</", "think", ">", "b"}, seen{"</", "b"}, 4},
		{"the end within a marker", true, []string{"a", "</", "think"}, seen{"a</think", ""}, 3},
		{"a nested start marker", true, []string{"a", "<think>", "</think>", "b"}, seen{"a<think>", "b"}, 3},
		{"a second end marker", true, []string{"a", "</think>", "</think>", "b"}, seen{"a", "</think>b"}, 2},
		{"no thinking", false, []string{"y", "es"}, seen{"", "yes"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, w := watch(ms, scheduler.WatchOptions{Model: "text", Open: c.open, Budget: -1}, c.tokens...)
			if got != c.want || w.Used() != c.used {
				t.Errorf("%q, %d thinking tokens; want %q, %d", got, w.Used(), c.want, c.used)
			}
		})
	}
}

func TestControlTokensWithoutTextAreMarkers(t *testing.T) {
	w := scheduler.NewWatch[string](watched(t), scheduler.WatchOptions{Model: "one", Budget: -1})
	var got seen
	for _, tok := range []struct {
		id   int32
		text string
	}{{5, "\n"}, {10, ""}, {5, "plan"}, {10, ""}, {7, ""}, {11, ""}, {5, "yes"}, {11, ""}} {
		got.add(w.Token(tok.text, tok.id, []byte(tok.text)))
	}
	got.add(w.Rest())
	if got != (seen{"plan", "yes"}) || w.Used() != 4 {
		t.Errorf("%q, %d thinking tokens", got, w.Used())
	}
}

// However a stream is cut into tokens, a reader sees the same.
func TestHowAStreamIsCutChangesNothingThatIsSeen(t *testing.T) {
	ms := watched(t)
	r := rand.New(rand.NewPCG(1, 1))
	parts := []string{"<think>", "</think>", "<", "</", "think", ">", "\n", " ", "a", "bc", "</th", "ink>"}
	for range 5000 {
		var b strings.Builder
		for range r.IntN(10) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		text, open := b.String(), r.IntN(2) == 0
		o := scheduler.WatchOptions{Model: "text", Open: open, Budget: -1}
		want, _ := watch(ms, o, strings.Split(text, "")...)
		var tokens []string
		for rest := text; rest != ""; {
			n := 1 + r.IntN(len(rest))
			tokens, rest = append(tokens, rest[:n]), rest[n:]
		}
		if got, _ := watch(ms, o, tokens...); got != want {
			t.Fatalf("%q, open %t, cut %q: %q, want %q", text, open, tokens, got, want)
		}
		if kept := want.think + want.answer; len(kept) > len(text) {
			t.Fatalf("%q became %q", text, want)
		}
	}
}

// decode plays a model that thinks for ever, in quanta, and appends what Force
// says. It returns the text of all tokens.
func decode(w *scheduler.Watch[string], quantum int, opening []string, stop int) (s seen, all string) {
	give := func(tok string) {
		all += tok
		s.add(w.Token(tok, idOf(tok), []byte(tok)))
	}
	for n := 0; n < stop; {
		if f, ok := w.Force(); ok {
			s.add(f.Shown)
			all += "[" + f.Reason.String() + "]"
		}
		for range min(quantum, w.Left()) {
			tok := "x"
			if n < len(opening) {
				tok = opening[n]
			}
			give(tok)
			n++
		}
	}
	s.add(w.Rest())
	return s, all
}

func TestABudgetHoldsToTheTokenWhateverTheQuantum(t *testing.T) {
	ms := watched(t)
	openings := map[string][]string{"the template": nil, "the model": {"<", "think", ">"}, "the model, after white space": {"\n", "<think>"}}
	for by, opening := range openings {
		for _, quantum := range []int{1, 2, 3, 16, 256} {
			for _, budget := range []int{0, 1, 3, 16, 40} {
				w := scheduler.NewWatch[string](ms, scheduler.WatchOptions{Model: "text", Open: opening == nil, Budget: budget})
				got, _ := decode(w, quantum, opening, 300)
				if w.Used() != budget || got.think != strings.Repeat("x", budget) || w.Forced() != scheduler.HardCap {
					t.Errorf("opened by %s, quantum %d, budget %d: %d thinking tokens %q, forced %s", by, quantum, budget, w.Used(), got.think, w.Forced())
				}
			}
		}
	}
}

func TestTheSmallestBudgetHolds(t *testing.T) {
	ms := watched(t)
	for _, c := range []struct {
		model  string
		budget int
		max    uint32
		want   int
	}{{"text", -1, 7, 1000}, {"text", 5, 0, 5}, {"text", 2000, 0, 1000}, {"one", -1, 7, 7}, {"one", 9, 7, 7}, {"one", -1, 0, scheduler.DefaultMaxThink}} {
		w := scheduler.NewWatch[string](ms, scheduler.WatchOptions{Model: c.model, Open: true, Budget: c.budget, MaxThink: c.max})
		if got := w.Left(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// What the model has begun of an end marker is completed: the cap puts no second
// one beside it.
func TestTheCapCompletesAMarkerThatTheModelHasBegun(t *testing.T) {
	ms := watched(t)
	for _, c := range []struct {
		name, model string
		tokens      []string
		ids         []int32
		text        string
		want        seen
	}{
		{"its own tokens", "text", []string{"a", "</", "think"}, []int32{3}, "", seen{"a", ""}},
		{"other tokens", "text", []string{"a", "b", "</think"}, nil, ">", seen{"ab", ""}},
		{"merged with the plan", "text", []string{"a", "b", "c</"}, nil, "think>", seen{"abc", ""}},
		{"nothing begun", "text", []string{"a", "b", "c"}, []int32{4, 2, 3}, "", seen{"abc", ""}},
		{"a marker of one id has no part", "one", []string{"a", "b", "<"}, []int32{11}, "", seen{"ab<", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := scheduler.NewWatch[string](ms, scheduler.WatchOptions{Model: c.model, Open: true, Budget: 3})
			var got seen
			for _, tok := range c.tokens {
				if _, ok := w.Force(); ok {
					t.Fatal("forced before the budget is used")
				}
				got.add(w.Token(tok, idOf(tok), []byte(tok)))
			}
			f, ok := w.Force()
			if !ok || f.Reason != scheduler.HardCap || f.Text != c.text || len(f.IDs) != len(c.ids) {
				t.Fatalf("%+v, %t", f, ok)
			}
			for i := range c.ids {
				if f.IDs[i] != c.ids[i] {
					t.Errorf("ids %v, want %v", f.IDs, c.ids)
				}
			}
			got.add(f.Shown)
			got.add(w.Token("yes", 99, []byte("yes")))
			got.add(w.Rest())
			if c.want.answer = "yes"; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if _, again := w.Force(); again {
				t.Error("forced twice")
			}
		})
	}
}

// A model that is about to end its thinking when it is ended does so all the same: its
// marker is left out, unless some of the answer is visible already.
func TestAnEndMarkerAfterAForcedOneIsLeftOut(t *testing.T) {
	ms := watched(t)
	for _, c := range []struct {
		name   string
		tokens []string
		want   string
	}{
		{"at once", []string{"</think>", "yes"}, "yes"},
		{"its own tokens", []string{"</", "think", ">", "yes"}, "yes"},
		{"after white space", []string{"\n", " \n", "</think>", "\n\n", "yes"}, "\n \n\n\nyes"},
		{"merged with white space and with the answer", []string{"\n</", "think>\nyes"}, "\n\nyes"},
		{"twice", []string{"</think>", "\n", "</think>", "yes"}, "\nyes"},
		{"twice in one token", []string{"</think></think>yes"}, "yes"},
		{"after text", []string{"yes", "</think>", "no"}, "yes</think>no"},
		{"after text in the same token", []string{"yes</think>no"}, "yes</think>no"},
		{"a second one after text", []string{"</think>", "yes", "</think>"}, "yes</think>"},
		{"the beginning of one", []string{"</", "th", "ree", "</think>"}, "</three</think>"},
		{"it begins twice", []string{"</", "</think>"}, "</</think>"},
		{"the end within it", []string{"\n", "</", "thi"}, "\n</thi"},
		{"none", []string{"\n", "yes"}, "\nyes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, tokens := range [][]string{c.tokens, strings.Split(strings.Join(c.tokens, ""), "")} {
				for _, begun := range []string{"a", "</think"} { // Force gives the whole marker, or its rest
					w := scheduler.NewWatch[string](ms, scheduler.WatchOptions{Model: "text", Open: true, Budget: 1})
					w.Token(begun, 99, []byte(begun))
					if _, ok := w.Force(); !ok {
						t.Fatal("not forced")
					}
					var got seen
					for _, tok := range tokens {
						got.add(w.Token(tok, idOf(tok), []byte(tok)))
					}
					got.add(w.Rest())
					if got != (seen{"", c.want}) || w.Used() != 1 {
						t.Errorf("after %q, %q: %q, %d thinking tokens; want %q", begun, tokens, got, w.Used(), c.want)
					}
				}
			}
		})
	}
}

// White space of the answer is not held back, whatever may follow, and a control token
// is an end marker too.
func TestOnlyWhatMayBecomeAnEndMarkerIsHeldBack(t *testing.T) {
	w := scheduler.NewWatch[string](watched(t), scheduler.WatchOptions{Model: "one", Open: true, Budget: 0})
	if _, ok := w.Force(); !ok {
		t.Fatal("not forced")
	}
	for _, tok := range []struct {
		id   int32
		text string
		want int // pieces
	}{{5, "\n", 1}, {11, "", 0}, {5, "\n", 1}, {5, "yes", 1}, {11, "", 1}} {
		if got := w.Token(tok.text, tok.id, []byte(tok.text)); len(got) != tok.want || w.Holds() {
			t.Errorf("%d %q: %d pieces, want %d; held %t", tok.id, tok.text, len(got), tok.want, w.Holds())
		}
	}
}

func TestThinkingThatEndsByItselfAtTheCapIsNotForced(t *testing.T) {
	w := scheduler.NewWatch[string](watched(t), scheduler.WatchOptions{Model: "text", Open: true, Budget: 2})
	w.Token("a", 99, []byte("a"))
	w.Token("b", 99, []byte("</think>\n"))
	if _, ok := w.Force(); ok || w.Forced() != scheduler.NoReason || w.Used() != 2 {
		t.Errorf("forced %t, %d used", ok, w.Used())
	}
}

func TestAModelWithoutAnEndMarkerIsNeverForced(t *testing.T) {
	w := scheduler.NewWatch[string](watched(t), scheduler.WatchOptions{Model: "never", Open: true, Budget: 1})
	for range 5 {
		w.Token("x", 99, []byte("x"))
	}
	if _, ok := w.Force(); ok || w.Left() < 1000 {
		t.Error("a marker is injected that there is not")
	}
}

func TestASignalEndsTheThinkingOnce(t *testing.T) {
	c := scheduler.DefaultSignalConfig()
	c.Alpha, c.ProbeInterval, c.MinThink = 1, 1, 0
	c.RPDIThreshold, c.TransitionEntropy = 1.01, 1
	rules, err := scheduler.NewRules(c)
	if err != nil {
		t.Fatal(err)
	}
	w := scheduler.NewWatch[string](watched(t), scheduler.WatchOptions{Model: "text", Open: true, Budget: -1, Signals: rules})
	for i := 0; i < 40 && w.Forced() == scheduler.NoReason; i++ {
		w.Token("x", 99, []byte("x"))
		w.Signal(scheduler.Signal{Name: scheduler.SigEntropy, Value: float32(i % 7)})
		w.Force()
	}
	if w.Forced() != scheduler.Overthinking || w.Phase() != scheduler.OutputDecode {
		t.Errorf("forced %s, phase %s", w.Forced(), w.Phase())
	}
	w.Signal(scheduler.Signal{Name: scheduler.SigEntropy, Value: 9})
	if _, ok := w.Force(); ok {
		t.Error("forced twice")
	}
}

func TestOnlyTheTemplatesTailOpensThinking(t *testing.T) {
	ms := watched(t)
	for text, want := range map[string]bool{
		"": false, "<|im_end|>\n<|im_start|>assistant\n": false, "<|im_start|>assistant\n<think>\n": true, "<think>\nOkay, ": true,
		"<think>\n\n</think>\n\n": false, "</think><think>": true, "<thin": false,
	} {
		if got := ms.OpensAfter("text", text); got != want {
			t.Errorf("after %q: %t", text, got)
		}
	}
	for text, want := range map[string]bool{"say <think>": true, "say <think>\n \n": true, "say <think> now": false, "": false, "<think></think>": false} {
		if got := ms.EndsOpen("text", text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	if ms.OpensAfter("none", "<think>") || ms.EndsOpen("none", "<think>") || !ms.OpensAfter("never", "<think>") {
		t.Error("a model without markers thinks, or one without an end does not")
	}
}

func TestWhiteSpaceIsHeldBackOnlySoLong(t *testing.T) {
	w := scheduler.NewWatch[string](watched(t), scheduler.WatchOptions{Model: "text", Budget: -1})
	var got seen
	for range 100 {
		got.add(w.Token("\n", 99, []byte("\n")))
	}
	if got.answer == "" || w.Phase() != scheduler.OutputDecode || w.Holds() {
		t.Errorf("%d bytes shown of 100, phase %s", len(got.answer), w.Phase())
	}
}

func TestMarkerTextThatCannotBeMatchedIsRefused(t *testing.T) {
	for _, m := range []scheduler.Model{
		{StartText: " <think>"}, {EndText: "\n</think>"}, {StartText: "x", EndText: "x"}, {StartText: strings.Repeat("x", 129)}, {Space: make([]int32, 65)}, {Space: []int32{-1}},
	} {
		if _, err := scheduler.NewModels([]scheduler.Model{m}); err == nil {
			t.Errorf("%+v is taken", m)
		}
	}
}
