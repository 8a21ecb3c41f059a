package scheduler

import "testing"

// The built-in table knows three families by whole words of the name's last
// element, and nothing else.
func TestBuiltInTable(t *testing.T) {
	for _, tt := range []struct {
		name       string
		start, end int32 // 0: not known
	}{
		{"Qwen3", 151667, 151668},
		{"Qwen/Qwen3-8B", 151667, 151668},
		{"/srv/models/qwen3_0.6b", 151667, 151668},
		{"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", 151648, 151649},
		{"deepseek-ai/DeepSeek-V3.1", 128798, 128799},
		{"DEEPSEEK-V3.1-Terminus", 128798, 128799},
		{"Qwen3.5-9B", 0, 0},
		{"Qwen2.5-7B", 0, 0},
		{"Qwen3/other", 0, 0},
		{"DeepSeek-R1-Distill-Llama-8B", 0, 0},
		{"DeepSeek-V3.10", 0, 0},
		{"", 0, 0},
	} {
		m := builtIn(tt.name)
		if tt.start == 0 {
			if m != nil {
				t.Errorf("%q is taken for a model with start %v", tt.name, m.start.seq)
			}
			continue
		}
		if m == nil {
			t.Errorf("%q is not known", tt.name)
			continue
		}
		if m.start.seq[0] != tt.start || m.end.seq[0] != tt.end || len(m.start.seq) != 1 || len(m.end.seq) != 1 {
			t.Errorf("%q: start %v end %v, want %d %d", tt.name, m.start.seq, m.end.seq, tt.start, tt.end)
		}
	}
}

// In the DeepSeek-V3.1 family 128798 opens and 128799 closes thinking. A table
// that is off by one (128799 opens, 128800 closes) takes the end for a start and
// never leaves the phase.
func TestDeepSeekEndIsNotAStart(t *testing.T) {
	run := func(tokens ...int32) ([phases]uint64, Stats) {
		c := New(Config{})
		c.Step(0, []Input{{Kind: Arrive, ID: 1, Model: "deepseek-ai/DeepSeek-V3.1"}, {Kind: Tokens, ID: 1, Tokens: tokens}})
		s := c.Stats()
		return s.Phases, s
	}
	p, s := run(128798, 20, 128799)
	if p[OutputDecode] != 1 || s.Events[EnterThink] != 1 || s.Events[ExitThink] != 1 || s.Think.Sum != 2 {
		t.Errorf("128798 20 128799: phases %v, events %v", p, s.Events)
	}
	if s.VocabFallback != 1 || s.UnknownModel != 0 {
		t.Errorf("fallback counted %d times", s.VocabFallback)
	}
	if p, _ := run(128799); p[OutputDecode] != 1 {
		t.Errorf("128799 alone opens thinking: phases %v", p)
	}
	if p, _ := run(128798, 20, 128800); p[ThinkDecode] != 1 {
		t.Errorf("128800 closes thinking: phases %v", p)
	}
}

// The configuration wins over the built-in table, and is not a fallback.
func TestConfiguredModelIsNoFallback(t *testing.T) {
	ms, err := NewModels([]Model{{Name: "Qwen/Qwen3-8B", Start: []int32{1}, End: []int32{2}}})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Models: ms})
	c.Step(0, []Input{{Kind: Arrive, Model: "Qwen/Qwen3-8B"}, {Kind: Tokens, Tokens: []int32{1}}})
	if s := c.Stats(); s.VocabFallback != 0 || s.Events[EnterThink] != 1 {
		t.Fatalf("fallback %d, events %v", s.VocabFallback, s.Events)
	}
}
