package llamacpp_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"meridian/adapters/llamacpp"
)

// Texts that the model goes on with as their tests need. Each emoji is three
// tokens there, of which two end within it.
const (
	faces    = "😀😁😂🤣😃😄 日本語 😀😁😂🤣😃😄 日本語 😀😁😂🤣"
	lettered = "a 😀 b 😁 c 😀 d 😁"
)

func ids(tokens []llamacpp.Token) []int32 {
	out := make([]int32, len(tokens))
	for i := range tokens {
		out[i] = tokens[i].ID
	}
	return out
}

// stream collects what a stream tells.
func (p *peer) stream(t *testing.T, q llamacpp.Completion) ([]llamacpp.Token, llamacpp.Done) {
	t.Helper()
	var out []llamacpp.Token
	done, err := p.Stream(patience(t), q, func(tok llamacpp.Token) error {
		out = append(out, tok)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, done
}

func (p *peer) whole(t *testing.T, q llamacpp.Completion) ([]llamacpp.Token, llamacpp.Done) {
	t.Helper()
	out, done, err := p.Whole(patience(t), q)
	if err != nil {
		t.Fatal(err)
	}
	return out, done
}

func TestStreamAndWholeTellTheSame(t *testing.T) {
	p := running(t, plain)
	prompt := p.tokens(t, story)
	p.compute(t, 0, prompt)
	for _, n := range []int{1, 6} {
		q := llamacpp.Completion{Prompt: prompt, Predict: n, Probs: 3}
		got, done := p.stream(t, q)
		want, done2 := p.whole(t, q)
		if len(got) != n || done.Lost || done.EOS || done.Cached != len(prompt)-1 || done.Computed != 1 {
			t.Errorf("%d of %d tokens, %+v", len(got), n, done)
		}
		if done2.Lost || done2.EOS || done2.Cached != done.Cached || done2.Computed != done.Computed {
			t.Errorf("as a whole %+v, streamed %+v", done2, done)
		}
		alike(t, got, want)
		for i, tok := range got {
			if tok.Part || len(tok.Bytes) == 0 || string(tok.Bytes) != string(want[i].Bytes) {
				t.Errorf("token %d is %q, as a whole %q", i, tok.Bytes, want[i].Bytes)
			}
			if len(tok.Top) != 3 || tok.Top[0].ID != tok.ID || math.Float64bits(tok.Top[0].LogProb) != math.Float64bits(tok.LogProb) {
				t.Errorf("token %d is %d (%g), and the most likely are %v", i, tok.ID, tok.LogProb, tok.Top)
			}
		}
	}
}

// The server closes the connection of a stream, though it says that it keeps it.
func TestACallAfterAStreamReachesTheServer(t *testing.T) {
	p := running(t, plain)
	p.compute(t, 0, quick)
	for range 25 {
		_, err := p.Stream(patience(t), llamacpp.Completion{Prompt: quick, Predict: 1}, func(llamacpp.Token) error {
			_, err := p.SaveSlot(patience(t), 0, "after.bin") // waits for the end of the stream
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Detokenize(patience(t), quick); err != nil {
			t.Fatal(err)
		}
	}
}

func TestComputingAPromptLeavesItsLastTokenToTheNextCall(t *testing.T) {
	p := running(t, plain)
	prompt := p.tokens(t, story)
	p.compute(t, 0, prompt)
	p.save(t, 0, len(prompt))
	for range 2 {
		done, err := p.Compute(patience(t), llamacpp.Completion{Prompt: prompt})
		if err != nil || done.Cached != len(prompt)-1 || done.Computed != 1 {
			t.Errorf("%+v, %v", done, err)
		}
	}
	// Quanta: each goes on where the last has stopped.
	all, _ := p.whole(t, llamacpp.Completion{Prompt: prompt, Predict: 6})
	have := slices.Clone(prompt)
	for range 3 {
		part, done := p.whole(t, llamacpp.Completion{Prompt: have, Predict: 2})
		if done.Cached != len(have)-1 || done.Computed != 1 {
			t.Errorf("after %d tokens: %+v", len(have), done)
		}
		have = append(have, ids(part)...)
	}
	if got := have[len(prompt):]; !slices.Equal(got, ids(all)) {
		t.Errorf("in quanta %v, at once %v", got, ids(all))
	}
}

// The server says how far it is after each batch, so that one which works can be
// told from one which is stuck.
func TestTheProgressOfAPromptIsToldAfterEachBatch(t *testing.T) {
	p := running(t, nofa)
	prompt := p.tokens(t, story)
	for len(prompt) < 150 {
		prompt = append(prompt, prompt...)
	}
	prompt = prompt[:150]
	p.compute(t, 0, prompt[:10])
	var told []int
	done, err := p.Prefill(patience(t), llamacpp.Completion{Prompt: prompt}, func(n int) { told = append(told, n) })
	if err != nil || done.Cached != 10 || done.Computed != 140 || !slices.Equal(told, []int{10, 74, 138, 150}) {
		t.Errorf("%+v, %v; told %v", done, err, told)
	}
	if n := len(p.save(t, 0, len(prompt))); n == 0 {
		t.Error("nothing was saved")
	}
}

// The end of a sequence is a token of its own, told and counted, without text.
func TestTheEndOfASequenceIsTheLastToken(t *testing.T) {
	const eos = 2
	p := running(t, plain)
	chat, err := p.ApplyTemplate(patience(t), []llamacpp.Message{{Role: "user", Content: "Say: ok"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	prompt := p.tokens(t, chat)
	p.compute(t, 0, prompt)
	all, done := p.whole(t, llamacpp.Completion{Prompt: prompt, Predict: 100})
	n := len(all)
	if last := all[n-1]; !done.EOS || last.ID != eos || len(last.Bytes) != 0 || last.Part || len(last.Top) == 0 {
		t.Fatalf("%d tokens, the last %+v; %+v", n, last, done)
	}
	// Again from two tokens before the end, and from the end itself.
	for _, c := range []struct {
		left, predict, tokens int
		eos                   bool
	}{{2, 1, 1, false}, {2, 2, 2, true}, {2, 3, 2, true}, {1, 5, 1, true}} {
		want := all[n-c.left:][:c.tokens]
		q := llamacpp.Completion{Prompt: append(slices.Clone(prompt), ids(all[:n-c.left])...), Predict: c.predict}
		got, done := p.stream(t, q)
		if done.EOS != c.eos || done.Lost {
			t.Errorf("%+v streamed: %+v", c, done)
		}
		alike(t, got, want)
		got, done = p.whole(t, q)
		if done.EOS != c.eos {
			t.Errorf("%+v as a whole: %+v", c, done)
		}
		alike(t, got, want)
	}
}

// A stream tells no id of a token that ends within a character. It must say so as
// soon as there is one, and a whole answer from there on must be what a whole answer
// from the start is.
func TestAStreamSaysThatAnIdIsLostAndWholeGoesOn(t *testing.T) {
	p := running(t, plain)
	for _, c := range []struct {
		name, prompt string
		predict      int
		told         int // tokens before the first that is lost
		lost         bool
	}{
		{"at the start", faces, 8, 0, true},
		{"in the middle", lettered, 5, 1, true},
		{"at the end", lettered, 2, 1, true},
		{"only one", faces, 1, 0, true},
		{"none yet", lettered, 1, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			prompt := p.tokens(t, c.prompt)
			p.compute(t, 0, prompt)
			q := llamacpp.Completion{Prompt: prompt, Predict: c.predict}
			want, _ := p.whole(t, q)
			if len(want) != c.predict {
				t.Fatalf("%d tokens, want %d", len(want), c.predict)
			}
			got, done := p.stream(t, q)
			if done.Lost != c.lost || len(got) != c.told {
				t.Fatalf("%v, %+v; want %d of %v, lost %t", ids(got), done, c.told, ids(want), c.lost)
			}
			alike(t, got, want[:c.told])
			if !c.lost {
				return
			}
			q.Prompt = append(slices.Clone(prompt), ids(got)...)
			q.Predict -= len(got)
			rest, done := p.whole(t, q)
			if done.Cached != len(q.Prompt)-1 || done.Computed != 1 {
				t.Errorf("the whole answer began with %d cached of %d", done.Cached, len(q.Prompt))
			}
			if all := append(got, rest...); !slices.Equal(ids(all), ids(want)) {
				t.Errorf("stream and whole: %v, whole: %v", ids(all), ids(want))
			}
		})
	}
}

// With a temperature, what follows what was told must not be drawn anew: a token
// within a character would then be drawn more rarely than it should. The same call
// as a whole draws the same.
func TestTheSameCallAsAWholeDrawsWhatTheStreamLost(t *testing.T) {
	p := running(t, plain)
	prompt := p.tokens(t, lettered)
	p.compute(t, 0, prompt)
	lost := 0
	for seed := range uint32(6) {
		q := llamacpp.Completion{Prompt: prompt, Predict: 4, Temperature: 0.8, Seed: seed}
		got, done := p.stream(t, q)
		want, _ := p.whole(t, q)
		alike(t, got, want[:len(got)])
		if complete := len(got) == len(want); complete == done.Lost {
			t.Errorf("seed %d: the stream told %v of %v, lost %t", seed, ids(got), ids(want), done.Lost)
		}
		if done.Lost {
			lost++
		}
	}
	if lost == 0 {
		t.Error("no stream lost an id")
	}
}

// Of a character's tokens the last has the text of all. The text of the others can
// be had for all of them together.
func TestAWholeAnswerNamesTheTokensWithinACharacter(t *testing.T) {
	p := running(t, plain)
	prompt := p.tokens(t, faces)
	p.compute(t, 0, prompt)
	tokens, _ := p.whole(t, llamacpp.Completion{Prompt: prompt, Predict: 7, Probs: 2})
	var text strings.Builder
	for i, tok := range tokens {
		text.Write(tok.Bytes)
		if within := i%3 != 2; tok.Part != within || (len(tok.Bytes) == 0) != within || (len(tok.Top) == 0) != within {
			t.Errorf("token %d: %+v", i, tok)
		}
	}
	whole, err := p.Detokenize(patience(t), ids(tokens[:6]))
	if err != nil || whole != text.String() {
		t.Errorf("the tokens' text is %q, that of their ids %q; %v", text.String(), whole, err)
	}
}

// With as many alternatives as there are tokens, the distribution is all there.
func TestAllProbabilitiesSumToOne(t *testing.T) {
	p := running(t, plain)
	p.compute(t, 0, quick)
	tokens, _ := p.whole(t, llamacpp.Completion{Prompt: quick, Predict: 1, Probs: 49152})
	sum, last := 0.0, math.Inf(1)
	for _, alt := range tokens[0].Top {
		sum += math.Exp(alt.LogProb)
		if alt.LogProb > last {
			t.Fatalf("%g after %g", alt.LogProb, last)
		}
		last = alt.LogProb
	}
	if len(tokens[0].Top) != 49152 || math.Abs(sum-1) > 1e-3 {
		t.Errorf("%d probabilities sum to %g", len(tokens[0].Top), sum)
	}
}

func TestASeedDecides(t *testing.T) {
	p := running(t, plain)
	p.compute(t, 0, quick)
	draw := func(seed uint32) []int32 {
		tokens, _ := p.whole(t, llamacpp.Completion{Prompt: quick, Predict: 6, Temperature: 2, Seed: seed})
		return ids(tokens)
	}
	for _, seed := range []uint32{0, math.MaxUint32} {
		if a, b := draw(seed), draw(seed); !slices.Equal(a, b) {
			t.Errorf("seed %d: %v and %v", seed, a, b)
		}
	}
	if a, b := draw(1), draw(2); slices.Equal(a, b) {
		t.Errorf("two seeds drew %v", a)
	}
}

func TestAPromptThatCannotBeIsRefused(t *testing.T) {
	p := running(t, plain)
	for _, c := range []struct {
		name   string
		prompt []int32
		kind   string
	}{
		{"none", nil, "invalid_request_error"},
		{"empty", []int32{}, "invalid_request_error"},
		{"negative", []int32{-1}, "invalid_request_error"},
		{"beyond the vocabulary", []int32{49152}, "invalid_request_error"},
		{"as long as the context", slices.Repeat(quick[:1], 1024), "exceed_context_size_error"},
		{"longer", slices.Repeat(quick[:1], 3000), "exceed_context_size_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := llamacpp.Completion{Prompt: c.prompt, Predict: 1}
			_, err := p.Compute(patience(t), q)
			refused(t, err, 400, c.kind)
			_, _, err = p.Whole(patience(t), q)
			refused(t, err, 400, c.kind)
			_, err = p.Stream(patience(t), q, func(llamacpp.Token) error { t.Error("a token was told"); return nil })
			refused(t, err, 400, c.kind)
		})
	}
}

// A slot ends at its context, without an error.
func TestAnAnswerEndsWhereTheContextDoes(t *testing.T) {
	p := running(t, unified)
	prompt := slices.Repeat(quick[:2], 127)
	p.compute(t, 0, prompt)
	got, done := p.stream(t, llamacpp.Completion{Prompt: prompt, Predict: 50})
	if len(got) != 256-len(prompt) || done.EOS || done.Lost {
		t.Errorf("%d tokens after a prompt of %d in a context of 256: %+v", len(got), len(prompt), done)
	}
	if err := p.EraseSlot(patience(t), 0); err != nil {
		t.Fatal(err)
	}
}

// Two slots of a unified cache that outgrow it together end in an error, of which
// a stream learns in its middle.
func TestAnErrorInTheMiddleOfAStreamIsTold(t *testing.T) {
	p := running(t, unified)
	var wg sync.WaitGroup
	errs := make([]error, slots)
	for slot := range slots {
		p.compute(t, slot, slices.Repeat(quick[:2], 55+slot))
	}
	for slot := range slots {
		wg.Go(func() {
			_, errs[slot] = p.Stream(patience(t), llamacpp.Completion{Prompt: slices.Repeat(quick[:2], 55+slot), Slot: slot, Predict: 120},
				func(llamacpp.Token) error { return nil })
		})
	}
	wg.Wait()
	for slot := range slots {
		refused(t, errs[slot], 500, "server_error")
		if err := p.EraseSlot(patience(t), slot); err != nil {
			t.Fatal(err)
		}
	}
}
