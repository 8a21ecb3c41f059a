package think

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// miniPlay drives the loop one step at a time: each request decodes until the loop or its
// own length ends it, and the trace is what the steps did.
type miniPlay struct {
	m    *mini
	s    queue.Step
	left map[queue.ID]int // tokens to decode
	at   map[queue.ID]int // its tokens
}

func newMiniPlay(t *testing.T, c MiniConfig, blocks, size int) *miniPlay {
	t.Helper()
	m, err := newMini(c, blocks, size, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &miniPlay{m: m, left: map[queue.ID]int{}, at: map[queue.ID]int{}}
}

func (p *miniPlay) add(t *testing.T, id queue.ID, prompt, decode int) {
	t.Helper()
	if err := p.m.Add(0, queue.Request{ID: id, Prompt: prompt}); err != nil {
		t.Fatal(err)
	}
	p.left[id], p.at[id] = decode, prompt
}

// step says what one did: "prefill 1:4 2:4", "preempt 2, decode 1".
func (p *miniPlay) step(t *testing.T) string {
	t.Helper()
	p.m.Schedule(0, &p.s)
	var out []string
	for _, x := range p.s.Preempt {
		out = append(out, fmt.Sprintf("preempt %d", x.ID))
	}
	ran := func(id queue.ID) {
		p.left[id]--
		p.at[id]++
		phase := scheduler.OutputDecode
		if p.left[id] <= 0 {
			phase = scheduler.Complete
		}
		p.m.Ran(0, id, 0, 1, phase)
	}
	for _, x := range p.s.Prefill {
		out = append(out, fmt.Sprintf("prefill %d:%d", x.ID, x.Tokens))
		ran(x.ID)
	}
	for _, id := range p.s.Decode {
		out = append(out, fmt.Sprintf("decode %d", id))
		ran(id)
	}
	for _, id := range p.s.Stuck {
		out = append(out, fmt.Sprintf("stuck %d", id))
	}
	if len(p.s.Prefill) > 0 && len(p.s.Decode) > 0 {
		t.Errorf("a step prefills and decodes: %v", out)
	}
	used := 0
	for _, q := range p.m.all {
		used += q.blocks
	}
	if used != p.m.used || used > p.m.blocks {
		t.Errorf("%d blocks of %d in use, requests have %d", p.m.used, p.m.blocks, used)
	}
	return strings.Join(out, ", ")
}

func (p *miniPlay) expect(t *testing.T, steps ...string) {
	t.Helper()
	for i, want := range steps {
		if got := p.step(t); got != want {
			t.Errorf("step %d: %q, want %q", i, got, want)
		}
	}
}

func TestMinivLLMPrefillsWholePromptsBeforeItDecodes(t *testing.T) {
	p := newMiniPlay(t, MiniConfig{MaxNumSequences: 8, MaxNumBatchedTokens: 10}, 100, 4)
	p.add(t, 1, 6, 3)
	p.add(t, 2, 4, 2)
	p.add(t, 3, 8, 2) // no room in the step
	p.add(t, 4, 1, 1) // which it would fit into, and does not pass
	p.expect(t, "prefill 1:6, prefill 2:4", "prefill 3:8, prefill 4:1", "decode 1, decode 2, decode 3", "decode 1", "")
	if st := p.m.Stats(); st.Completed != 4 || st.Blocks != 0 || st.Running+st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

// A step has at most MaxNumSequences; more may run, and those admitted first are the ones
// that go on.
func TestMinivLLMBoundsAStepNotWhatRuns(t *testing.T) {
	p := newMiniPlay(t, MiniConfig{MaxNumSequences: 2, MaxNumBatchedTokens: 100}, 100, 4)
	for id := range queue.ID(3) {
		p.add(t, id, 4, 3)
	}
	p.expect(t, "prefill 0:4, prefill 1:4", "prefill 2:4", "decode 0, decode 1", "decode 0, decode 1", "decode 2", "decode 2", "")
}

// Who was admitted last loses its blocks, waits before everybody else, and is computed
// anew with what it had decoded.
func TestMinivLLMPreemptsToTheFrontOfWaiting(t *testing.T) {
	p := newMiniPlay(t, MiniConfig{MaxNumSequences: 8, MaxNumBatchedTokens: 100}, 4, 4)
	p.add(t, 1, 8, 2) // 9 tokens after its first one: a third block
	p.add(t, 2, 7, 4) // 8 tokens: no more than its two
	p.add(t, 3, 4, 1)
	p.expect(t, "prefill 1:8, prefill 2:7",
		"preempt 2, decode 1",
		"prefill 2:8, prefill 3:4", // 9 with its next one: before request 3, computed once more
		"decode 2", "decode 2", "")
	if st := p.m.Stats(); st.Recomputed != 1 || st.LostTokens != 8 || st.Completed != 3 {
		t.Errorf("%+v", st)
	}
}

func TestMinivLLMEndsRequests(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  MiniConfig
		want int // decoded tokens of a prompt of 4, which ends by itself after 6
	}{
		"eos":              {MiniConfig{}, 6},
		"max_tokens":       {MiniConfig{MaxTokens: 3}, 3},
		"max_model_length": {MiniConfig{MaxModelLength: 9}, 5},
		"ignore_eos":       {MiniConfig{IgnoreEOS: true, MaxTokens: 8}, 8},
	} {
		c.cfg.MaxNumSequences, c.cfg.MaxNumBatchedTokens = 1, 100
		p := newMiniPlay(t, c.cfg, 100, 4)
		p.add(t, 1, 4, 6)
		for range 50 {
			p.step(t)
		}
		if got := p.at[1] - 4; got != c.want || p.m.Stats().Completed != 1 {
			t.Errorf("%s: %d tokens, want %d; %+v", name, got, c.want, p.m.Stats())
		}
	}
}

func TestMinivLLMRefusesWhatItCouldNeverAdmit(t *testing.T) {
	p := newMiniPlay(t, MiniConfig{MaxNumSequences: 8, MaxNumBatchedTokens: 10}, 5, 4)
	for _, r := range []queue.Request{{ID: 1, Prompt: 11}, {ID: 1, Prompt: 21}} {
		if err := p.m.Add(0, r); !errors.Is(err, queue.ErrTooLong) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []queue.Request{{ID: 1}, {ID: 1, Prompt: 4, Cached: 4}, {ID: 1, Prompt: 4, Cached: -1}} {
		if err := p.m.Add(0, r); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	p.add(t, 1, 10, 3)
	if err := p.m.Add(0, queue.Request{ID: 1, Prompt: 4}); !errors.Is(err, queue.ErrDuplicate) {
		t.Error(err)
	}
	p.m.Ran(0, 9, 0, 1, scheduler.Complete) // of nobody
	for _, c := range []MiniConfig{{}, {MaxNumSequences: 1}, {MaxNumSequences: 1, MaxNumBatchedTokens: 1, MaxTokens: -1}} {
		if _, err := newMini(c, 1, 1, nil); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// One that has outgrown a step, or the memory, is named: it would wait for ever.
func TestMinivLLMNamesWhoIsStuck(t *testing.T) {
	p := newMiniPlay(t, MiniConfig{MaxNumSequences: 8, MaxNumBatchedTokens: 100}, 2, 4)
	p.add(t, 1, 8, 9)
	p.expect(t, "prefill 1:8", "preempt 1", "stuck 1")
}
