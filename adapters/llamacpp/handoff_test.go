package llamacpp_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"meridian/adapters/llamacpp"
)

const story = "Once upon a time there was a lighthouse keeper who counted the ships that passed, and every evening " +
	"he wrote their names into a book. One evening a ship came that had no name, and so he"

// next lets a slot go on, as it must when it has all of the prompt but the last
// token.
func (p *peer) next(t *testing.T, slot int, prompt []int32) []llamacpp.Token {
	t.Helper()
	tokens, done, err := p.Whole(patience(t), llamacpp.Completion{Prompt: prompt, Slot: slot, Predict: 4, Probs: 5})
	if err != nil {
		t.Fatal(err)
	}
	if done.Cached != len(prompt)-1 || done.Computed != 1 {
		t.Fatalf("of %d tokens %d were cached and %d computed, want %d and 1", len(prompt), done.Cached, done.Computed, len(prompt)-1)
	}
	if len(tokens) != 4 {
		t.Fatalf("%d tokens, want 4", len(tokens))
	}
	return tokens
}

// alike compares tokens and log-probabilities bit by bit.
func alike(t *testing.T, got, want []llamacpp.Token) {
	t.Helper()
	equal := slices.EqualFunc(got, want, func(a, b llamacpp.Token) bool {
		return a.ID == b.ID && math.Float64bits(a.LogProb) == math.Float64bits(b.LogProb) &&
			slices.EqualFunc(a.Top, b.Top, func(x, y llamacpp.TokenProb) bool {
				return x.ID == y.ID && math.Float64bits(x.LogProb) == math.Float64bits(y.LogProb)
			})
	})
	if !equal {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// The rule that a split of prefill and decode hangs on: what comes out there is
// bit-equal to going on here.
func TestBlocksRestoredOnAnotherServerGoOnBitEqual(t *testing.T) {
	a, b := running(t, plain), running(t, other)
	prompt := a.tokens(t, story)
	a.compute(t, 0, prompt)
	state := a.save(t, 0, len(prompt))
	want := a.next(t, 0, prompt)
	b.restore(t, 1, recut(t, state, len(prompt), 16), len(prompt))
	alike(t, b.next(t, 1, prompt), want)

	// A chain that ends early leaves the rest to compute.
	n := len(prompt) / 16 * 16
	b.restore(t, 0, recut(t, state, n, 16), n)
	_, done, err := b.Whole(patience(t), llamacpp.Completion{Prompt: prompt, Predict: 1})
	if err != nil || done.Cached != n || done.Computed != len(prompt)-n {
		t.Errorf("after a state of %d: %+v, %v", n, done, err)
	}
}

func TestAStateOfOneSlotRestoresIntoTheOther(t *testing.T) {
	for _, kind := range []string{plain, q8, nofa, unified} {
		t.Run(kind, func(t *testing.T) {
			p := running(t, kind)
			prompt := p.tokens(t, story)
			for from := range slots {
				to := 1 - from
				p.compute(t, from, prompt)
				state := p.save(t, from, len(prompt))
				want := p.next(t, from, prompt)
				p.restore(t, to, state, len(prompt))
				alike(t, p.next(t, to, prompt), want)
				p.restore(t, to, recut(t, state, len(prompt), 16), len(prompt))
				alike(t, p.next(t, to, prompt), want)
				if err := p.EraseSlot(patience(t), to); err != nil { // a unified cache has no room for a third
					t.Fatal(err)
				}
			}
		})
	}
}

// What follows a token changes nothing of its KV, so the first blocks of a long
// request are those of every other that begins so.
func TestThePrefixOfALongerStateIsTheStateOfThePrefix(t *testing.T) {
	for _, kind := range []string{plain, q8, nofa, unified} {
		t.Run(kind, func(t *testing.T) {
			p := running(t, kind)
			prompt := p.tokens(t, story)
			n := len(prompt) - 11
			p.compute(t, 0, prompt[:n])
			want := p.save(t, 0, n)
			if _, err := p.Compute(patience(t), llamacpp.Completion{Prompt: prompt}); err != nil {
				t.Fatal(err)
			}
			same(t, recut(t, p.save(t, 0, len(prompt)), n, 16), want)
		})
	}
}

// Of a bad state the server keeps nothing, nor what the slot had before.
func TestARefusedStateLeavesTheSlotEmpty(t *testing.T) {
	p := running(t, plain)
	p.compute(t, 0, quick)
	state := p.save(t, 0, len(quick))
	for name, bad := range map[string][]byte{
		"cut":            state[:len(state)/2],
		"other streams":  goldenFile(t, "unified-slot0"),
		"other type":     goldenFile(t, "q8_0-slot0"),
		"transposed":     goldenFile(t, "transposed-slot0"),
		"not one at all": []byte("hello"),
	} {
		t.Run(name, func(t *testing.T) {
			p.restore(t, 0, state, len(quick))
			if err := os.WriteFile(filepath.Join(p.dir, "bad.bin"), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := p.RestoreSlot(patience(t), 0, "bad.bin")
			refused(t, err, 400, "invalid_request_error")
			done, err := p.Compute(patience(t), llamacpp.Completion{Prompt: quick})
			if err != nil || done.Cached != 0 {
				t.Errorf("the slot then had %d tokens, want none; %v", done.Cached, err)
			}
		})
	}
}

func TestAnEmptySlotHasNoState(t *testing.T) {
	p := running(t, plain)
	ctx := patience(t)
	if err := p.EraseSlot(ctx, 0); err != nil {
		t.Fatal(err)
	}
	state := p.save(t, 0, 0)
	if st, err := llamacpp.OpenState(bytes.NewReader(state), int64(len(state))); err == nil {
		t.Errorf("a state of %d tokens", len(st.Tokens()))
	}
}
