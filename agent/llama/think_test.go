package llama

import (
	"slices"
	"testing"

	"meridian/agent/openai"
	"meridian/scheduler"
)

// A server whose model has markers of two and three tokens, and thinks ten tokens
// at most. What a token is written as is in words.
func testServer(t *testing.T, rules *scheduler.Rules) *server {
	t.Helper()
	s := &server{rules: rules, marks: scheduler.Model{Name: "m", Start: []int32{100, 101}, End: []int32{200, 201, 202},
		StartText: "<think>", EndText: "</think>", MaxThink: 10}}
	var err error
	if s.models, err = scheduler.NewModels([]scheduler.Model{s.marks}); err != nil {
		t.Fatal(err)
	}
	return s
}

var words = map[int32]string{100: "<think", 101: ">", 200: "</", 201: "think", 202: ">", 300: "</think", 301: ">\n\n"}

func word(id int32) openai.Token {
	text := words[id]
	if text == "" {
		text = "x"
	}
	return openai.Token{ID: id, Bytes: []byte(text)}
}

// feed gives tokens, and returns the ids that a reader sees, thinking ones
// negative, and those that the daemon is told.
func feed(s *server, th *thought, ids ...int32) (seen, told []int32) {
	show := func(toks []openai.Token) {
		for _, tok := range toks {
			if tok.Thinking {
				seen = append(seen, -tok.ID)
			} else {
				seen = append(seen, tok.ID)
			}
		}
	}
	for _, id := range ids {
		toks, tell := th.token(word(id), &s.marks)
		show(toks)
		told = append(told, tell...)
	}
	show(shown(th.Rest()))
	return seen, append(told, th.untold...)
}

func TestAReaderSeesThinkingAndAnswerAndNoMarker(t *testing.T) {
	for _, c := range []struct {
		name string
		open bool
		in   []int32
		want []int32
	}{
		{"no thinking", false, []int32{5, 6}, []int32{5, 6}},
		{"opened by the prompt", true, []int32{5, 6, 200, 201, 202, 7}, []int32{-5, -6, 7}},
		{"opened by the model", false, []int32{100, 101, 5, 200, 201, 202, 7}, []int32{-5, 7}},
		{"the beginning of a start marker only", false, []int32{100, 5}, []int32{100, 5}},
		{"the beginning of an end marker only", true, []int32{200, 201, 5, 200, 201, 202, 6}, []int32{-200, -201, -5, 6}},
		{"an end marker that begins twice", true, []int32{200, 200, 201, 202, 6}, []int32{-200, 6}},
		{"the end within a marker", true, []int32{5, 200, 201}, []int32{-5, -200, -201}},
		{"a start marker in the answer", false, []int32{5, 100, 101, 6}, []int32{5, 100, 101, 6}},
		{"a marker merged with what follows", true, []int32{5, 300, 301, 6}, []int32{-5, 301, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := testServer(t, nil)
			got, _ := feed(s, s.follow(&prompt{open: c.open, budget: -1}, &Config{Name: "m"}), c.in...)
			if !slices.Equal(got, c.want) {
				t.Errorf("seen %v, want %v", got, c.want)
			}
		})
	}
}

// The daemon's router knows ids only: a marker in other tokens is told as its own.
func TestTheDaemonIsToldMarkersByTheirOwnIDs(t *testing.T) {
	for _, c := range []struct {
		name     string
		open     bool
		in, want []int32
	}{
		{"as they are", false, []int32{100, 101, 5, 200, 201, 202, 7}, []int32{100, 101, 5, 200, 201, 202, 7}},
		{"the end merged with what follows", true, []int32{5, 300, 301, 6}, []int32{5, 200, 201, 202, 6}},
		{"no marker after all", true, []int32{5, 200, 201, 6}, []int32{5, 200, 201, 6}},
		{"the end of the request within a marker", true, []int32{5, 200, 201}, []int32{5, 200, 201}},
		{"no thinking", false, []int32{5, 6}, []int32{5, 6}},
	} {
		s := testServer(t, nil)
		if _, told := feed(s, s.follow(&prompt{open: c.open, budget: -1}, &Config{Name: "m"}), c.in...); !slices.Equal(told, c.want) {
			t.Errorf("%s: told %v, want %v", c.name, told, c.want)
		}
	}
}

func TestThinkingIsForcedAtTheCapThatIsReachedFirst(t *testing.T) {
	for _, c := range []struct {
		name string
		cap  int
		at   int
	}{{"the scheduler's", -1, 10}, {"the request's", 4, 4}, {"a request's above the scheduler's", 99, 10}, {"none at all", 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			s := testServer(t, nil)
			th := s.follow(&prompt{open: true, budget: c.cap}, &Config{Name: "m"})
			n := 0
			for ; n < 50; n++ {
				if f, ok := th.Force(); ok {
					if !slices.Equal(f.IDs, s.marks.End) || th.forced() != "hard_cap" {
						t.Errorf("marker %v, reason %q", f.IDs, th.forced())
					}
					break
				}
				feed(s, th, 5)
			}
			if n != c.at {
				t.Errorf("forced after %d tokens, want %d", n, c.at)
			}
			if _, ok := th.Force(); ok || !th.Closed() {
				t.Error("forced twice, or not at all")
			}
		})
	}
}

func TestAQuantumEndsAtTheCapAndAtEachProbe(t *testing.T) {
	c := &Thinking{Probe: 50, Signals: scheduler.SignalConfig{ProbeInterval: 4}}
	s := testServer(t, nil)
	for _, opened := range []bool{true, false} {
		th := s.follow(&prompt{open: opened, budget: -1}, &Config{Name: "m"})
		if !opened {
			if n, probe := th.next(16, c); n != 3 || probe != 0 {
				t.Errorf("before it is known: %d tokens, probe %d", n, probe)
			}
			feed(s, th, 100, 101)
		}
		var steps, probes []int
		for th.Used() < 10 {
			n, probe := th.next(16, c)
			if n < 1 || probe > 0 && n != 1 {
				t.Fatalf("at %d: %d tokens, probe %d", th.Used(), n, probe)
			}
			steps = append(steps, n)
			for range n {
				feed(s, th, 5)
			}
			if probe > 0 {
				probes = append(probes, th.Used())
			}
		}
		if th.Used() != 10 || !slices.Equal(probes, []int{4, 8}) {
			t.Errorf("steps %v, probes at %v; want 10 tokens and probes at 4 and 8", steps, probes)
		}
	}
}

func TestOnlyWholeWordsOfATemplateAreItsVariables(t *testing.T) {
	source := template{source: "{% if enable_thinking is defined %}{{ thinking_budget }}{{ x.date }} é{{ é_y }}"}
	for name, want := range map[string]bool{"enable_thinking": true, "thinking": false, "thinking_budget": true, "date": true, "y": false, "": false, "budget": false} {
		if got := source.has(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
	if untold := (&template{}); !untold.has("anything") {
		t.Error("a template that is not told is taken for one without variables")
	}
}
