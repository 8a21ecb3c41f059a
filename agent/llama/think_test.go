package llama

import (
	"slices"
	"testing"

	"meridian/agent/openai"
	"meridian/scheduler"
)

// A model with markers of two and three tokens, and thinking of at most ten.
func testPhases(t *testing.T) (*phases, *scheduler.Model) {
	t.Helper()
	m := scheduler.Model{Name: "m", Start: []int32{100, 101}, End: []int32{200, 201, 202}, MaxThink: 10}
	models, err := scheduler.NewModels([]scheduler.Model{m})
	if err != nil {
		t.Fatal(err)
	}
	return newPhases(models, 10, nil), &m
}

// feed gives tokens and returns the ids that a reader sees, thinking ones
// negative.
func feed(th *thought, ids ...int32) []int32 {
	var out []int32
	show := func(toks []openai.Token) {
		for _, s := range toks {
			if s.Thinking {
				out = append(out, -s.ID)
			} else {
				out = append(out, s.ID)
			}
		}
	}
	for _, id := range ids {
		show(th.token(openai.Token{ID: id}))
	}
	show(th.rest())
	return out
}

func TestAReaderSeesThinkingAndAnswerAndNoMarker(t *testing.T) {
	for _, c := range []struct {
		name   string
		prompt []int32
		in     []int32
		want   []int32
	}{
		{"no thinking", []int32{1}, []int32{5, 6}, []int32{5, 6}},
		{"opened by the prompt", []int32{1, 100, 101}, []int32{5, 6, 200, 201, 202, 7}, []int32{-5, -6, 7}},
		{"opened by the model", []int32{1}, []int32{100, 101, 5, 200, 201, 202, 7}, []int32{-5, 7}},
		{"closed in the prompt", []int32{100, 101, 200, 201, 202}, []int32{5}, []int32{5}},
		{"the beginning of a start marker only", []int32{1}, []int32{100, 5}, []int32{100, 5}},
		{"the beginning of an end marker only", []int32{100, 101}, []int32{200, 201, 5, 200, 201, 202, 6}, []int32{-200, -201, -5, 6}},
		{"an end marker that begins twice", []int32{100, 101}, []int32{200, 200, 201, 202, 6}, []int32{-200, 6}},
		{"the end within a marker", []int32{100, 101}, []int32{5, 200, 201}, []int32{-5, -200, -201}},
		{"a start marker in the answer", []int32{1}, []int32{5, 100, 101, 6}, []int32{5, 100, 101, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ph, m := testPhases(t)
			th := ph.follow(m, c.prompt, 0)
			defer th.end()
			if got := feed(th, c.in...); !slices.Equal(got, c.want) {
				t.Errorf("seen %v, want %v", got, c.want)
			}
		})
	}
}

func TestThinkingIsForcedAtTheCapThatIsReachedFirst(t *testing.T) {
	for _, c := range []struct {
		name string
		cap  int
		at   int
	}{{"the scheduler's", 0, 10}, {"the request's", 4, 4}, {"a request's above the scheduler's", 99, 10}} {
		t.Run(c.name, func(t *testing.T) {
			ph, m := testPhases(t)
			th := ph.follow(m, m.Start, c.cap)
			defer th.end()
			n := 0
			for ; n < 50; n++ {
				if marker := th.injected(); marker != nil {
					if !slices.Equal(marker, m.End) || th.forced != "hard_cap" {
						t.Errorf("marker %v, reason %q", marker, th.forced)
					}
					break
				}
				th.token(openai.Token{ID: 5})
			}
			if n != c.at {
				t.Errorf("forced after %d tokens, want %d", n, c.at)
			}
			for _, id := range m.End {
				th.token(openai.Token{ID: id, Forced: true})
			}
			if th.state != answering || !th.exited {
				t.Errorf("state %d, exited %t after the marker", th.state, th.exited)
			}
			if th.injected() != nil {
				t.Error("forced twice")
			}
		})
	}
}

func TestThinkingThatEndsByItselfAtTheCapIsNotForced(t *testing.T) {
	ph, m := testPhases(t)
	th := ph.follow(m, m.Start, 3)
	defer th.end()
	feed(th, 200, 201, 202)
	if th.injected() != nil || th.forced != "" {
		t.Errorf("forced for %q", th.forced)
	}
}

func TestAQuantumEndsAtTheCapAndAtEachProbe(t *testing.T) {
	c := &Thinking{Max: 100, Probe: 50, Signals: scheduler.SignalConfig{ProbeInterval: 8}}
	th := &thought{cap: 20}
	var steps, probes []int
	for th.used < 20 {
		n, probe := th.next(16, c)
		if n < 1 || probe > 0 && n != 1 {
			t.Fatalf("at %d: %d tokens, probe %d", th.used, n, probe)
		}
		steps = append(steps, n)
		th.used += n
		if probe > 0 {
			probes = append(probes, th.used)
		}
	}
	if th.used != 20 || !slices.Equal(probes, []int{8, 16}) {
		t.Errorf("steps %v, probes at %v; want 20 tokens and probes at 8 and 16", steps, probes)
	}
}
