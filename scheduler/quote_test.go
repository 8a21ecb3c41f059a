package scheduler_test

import (
	"testing"

	"meridian/scheduler"
)

// thinks says whether the first decoded token of a request is a thinking one.
func thinks(model string, prompt ...int32) bool {
	c := scheduler.New(scheduler.Config{})
	c.Step(0, []scheduler.Input{{Kind: scheduler.Arrive, Model: model, Tokens: prompt}, {Kind: scheduler.Tokens, Tokens: []int32{20}}})
	return c.Stats().Phases[scheduler.ThinkDecode] == 1
}

// Ids do not tell who wrote a marker, so only one at the very end of a prompt is
// the chat template's. A user's is followed by what opens the answer.
func TestAQuotedStartMarkerOpensNoThinking(t *testing.T) {
	const qwen, start, end, newline = "Qwen/Qwen3-8B", 151667, 151668, 198
	turn := []int32{151645, newline, 151644, 77091, newline} // <|im_end|> newline <|im_start|> assistant newline
	for _, c := range []struct {
		name   string
		prompt []int32
		open   bool
	}{
		{"the template's tail", append(append([]int32{9}, turn...), start), true},
		{"the template's tail and a newline", append(append([]int32{9}, turn...), start, newline), true},
		{"a template that closes it again", append(append([]int32{9}, turn...), start, 271, end, 271), false},
		{"quoted", append([]int32{9, start, 8}, turn...), false},
		{"quoted at the end of a message", append([]int32{9, start}, turn...), false},
		{"quoted twice", append([]int32{start, 9, start}, turn...), false},
		{"an end marker quoted, and the template's tail", append(append([]int32{end, 9}, turn...), start, newline), true},
		{"quoted, and words after it", []int32{9, start, 8, 7}, false},
	} {
		if got := thinks(qwen, c.prompt...); got != c.open {
			t.Errorf("%s: open %t, want %t", c.name, got, c.open)
		}
	}
}

func TestWhiteSpaceBeforeADecodedStartMarkerIsNoOutput(t *testing.T) {
	for _, c := range []struct {
		decoded []int32
		phase   scheduler.Phase
	}{
		{[]int32{198, 151667, 20}, scheduler.ThinkDecode}, {[]int32{271, 198, 151667}, scheduler.ThinkDecode}, {[]int32{198}, scheduler.Prefill},
		{[]int32{198, 20, 151667}, scheduler.OutputDecode}, {[]int32{20, 151667}, scheduler.OutputDecode}, {[]int32{198, 151645}, scheduler.Complete},
	} {
		c2 := scheduler.New(scheduler.Config{})
		c2.Step(0, []scheduler.Input{{Kind: scheduler.Arrive, Model: "qwen3"}})
		for _, id := range c.decoded {
			c2.Step(0, []scheduler.Input{{Kind: scheduler.Tokens, Tokens: []int32{id}}})
		}
		if s := c2.Stats(); s.Phases[c.phase] != 1 {
			t.Errorf("%v: phases %v, want %s", c.decoded, s.Phases, c.phase)
		}
	}
	long := make([]int32, 65)
	for i := range long {
		long[i] = 198
	}
	c := scheduler.New(scheduler.Config{})
	c.Step(0, []scheduler.Input{{Kind: scheduler.Arrive, Model: "qwen3"}, {Kind: scheduler.Tokens, Tokens: append(long, 151667)}})
	if s := c.Stats(); s.Phases[scheduler.OutputDecode] != 1 || s.OutputTokens != 66 {
		t.Errorf("white space without end: phases %v, %d output tokens", s.Phases, s.OutputTokens)
	}
}
