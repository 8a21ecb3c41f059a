package llamacpp_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"meridian/adapters/llamacpp"
)

// refused checks what the server said.
func refused(t *testing.T, err error, status int, kind string) {
	t.Helper()
	var said *llamacpp.Error
	if !errors.As(err, &said) || said.Status != status || said.Type != kind || said.Message == "" {
		t.Errorf("%#v, want status %d and type %s", err, status, kind)
	}
}

func TestPropsAreThoseThatTheServerWasStartedWith(t *testing.T) {
	p := running(t, plain)
	got, err := p.Props(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	if got.Context != 1024 || got.Slots != slots || got.Vocabulary != 49152 || got.Build == "" {
		t.Errorf("%+v", got)
	}
}

func TestTextGoesToTokensAndBack(t *testing.T) {
	p := running(t, plain)
	ctx := patience(t)
	for _, c := range []struct {
		text           string
		special, parse bool
		want           []int32
	}{
		{"", false, false, []int32{}},
		{"x", false, false, []int32{104}},
		{"x", true, false, []int32{104}}, // this model has no token in front
		{"<|im_start|>x", false, true, []int32{1, 104}},
		{"<|im_start|>x", false, false, []int32{44, 108, 306, 79, 3738, 108, 46, 104}},
		{"a\x00b", false, false, []int32{81, 190, 82}},
		{"😀", false, false, []int32{10813, 242, 218}},
	} {
		got, err := p.Tokenize(ctx, c.text, c.special, c.parse)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q, %t, %t: %v, %v; want %v", c.text, c.special, c.parse, got, err, c.want)
			continue
		}
		back, err := p.Detokenize(ctx, got)
		if err != nil || back != c.text {
			t.Errorf("%v: %q, %v; want %q", got, back, err, c.text)
		}
	}
	if text, err := p.Detokenize(ctx, []int32{10813, 242}); err != nil || strings.Trim(text, "\ufffd") != "" || text == "" {
		t.Errorf("part of a character is %q, %v", text, err)
	}
	if _, err := p.Tokenize(ctx, "a\xffb", false, false); err == nil {
		t.Error("text that is no UTF-8 was taken")
	}
	_, err := p.Detokenize(ctx, []int32{49152})
	refused(t, err, 500, "server_error")
}

func TestATemplateEndsWhereTheAssistantAnswers(t *testing.T) {
	p := running(t, plain)
	ctx := patience(t)
	got, err := p.ApplyTemplate(ctx, []llamacpp.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "hi"}}, nil)
	const want = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	if err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if _, err := p.ApplyTemplate(ctx, []llamacpp.Message{{Role: "user", Content: "\xff"}}, nil); err == nil {
		t.Error("a message that is no UTF-8 was taken")
	}
}

// The server itself takes slot 2 of 2 for slot 0.
func TestASlotThatThereIsNotIsRefused(t *testing.T) {
	p := running(t, plain)
	ctx := patience(t)
	prompt := p.tokens(t, story)
	p.compute(t, 0, prompt)
	p.compute(t, 1, prompt)
	for _, slot := range []int{-1, -2, slots, slots + 1} {
		q := llamacpp.Completion{Prompt: quick, Slot: slot, Predict: 1}
		_, err := p.Compute(ctx, q)
		_, _, err2 := p.Whole(ctx, q)
		_, err3 := p.Stream(ctx, q, func(llamacpp.Token) error { return nil })
		_, err4 := p.SaveSlot(ctx, slot, "none.bin")
		_, err5 := p.RestoreSlot(ctx, slot, "none.bin")
		for i, err := range []error{err, err2, err3, err4, err5, p.EraseSlot(ctx, slot)} {
			if err == nil {
				t.Errorf("call %d on slot %d of %d was taken", i, slot, slots)
			}
		}
	}
	for slot := range slots {
		p.save(t, slot, len(prompt)) // it still has it
	}
}

func TestAFileNameMayNotLeaveTheFolder(t *testing.T) {
	p := running(t, plain)
	for _, name := range []string{"", "../x.bin", "a/b.bin"} {
		_, err := p.SaveSlot(patience(t), 0, name)
		refused(t, err, 400, "invalid_request_error")
	}
	_, err := p.RestoreSlot(patience(t), 0, "there-is-none.bin")
	refused(t, err, 400, "invalid_request_error")
}

func TestAServerThatIsKilledIsGone(t *testing.T) {
	p := start(t, unified)
	defer p.stop()
	ctx := patience(t)
	_, err := p.Stream(ctx, llamacpp.Completion{Prompt: quick, Predict: 200}, func(llamacpp.Token) error {
		p.kill()
		return nil
	})
	if !errors.Is(err, llamacpp.ErrGone) {
		t.Errorf("in the middle of a stream: %v", err)
	}
	if err := p.Health(ctx); !errors.Is(err, llamacpp.ErrGone) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestACancelledCallStopsTheServer(t *testing.T) {
	p := running(t, plain)
	prompt := p.tokens(t, story)
	const all = 900
	calls := map[string]func(context.Context, context.CancelFunc, llamacpp.Completion) error{
		"stream": func(ctx context.Context, cancel context.CancelFunc, q llamacpp.Completion) error {
			_, err := p.Stream(ctx, q, func(llamacpp.Token) error { cancel(); return nil })
			return err
		},
		"whole": func(ctx context.Context, cancel context.CancelFunc, q llamacpp.Completion) error {
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil && !p.busy(t, 0) {
				}
				cancel()
			})
			_, _, err := p.Whole(ctx, q)
			cancel()
			wg.Wait()
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			p.compute(t, 0, prompt)
			ctx, cancel := context.WithCancel(patience(t))
			defer cancel()
			err := call(ctx, cancel, llamacpp.Completion{Prompt: prompt, Predict: all, Temperature: 1, Seed: 1})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want the context's error", err)
			}
			// A save waits until the slot is free.
			n, err := p.SaveSlot(patience(t), 0, "cancelled.bin")
			if err != nil || n < len(prompt) || n >= len(prompt)+all/2 {
				t.Errorf("the slot then had %d tokens of %d and %d: the server went on; %v", n, len(prompt), all, err)
			}
			if p.busy(t, 0) {
				t.Error("the slot is still busy")
			}
		})
	}
}

func TestAnErrorOfTheCallbackEndsTheStream(t *testing.T) {
	p := running(t, plain)
	stop := errors.New("enough")
	told := 0
	_, err := p.Stream(patience(t), llamacpp.Completion{Prompt: quick, Predict: 500}, func(llamacpp.Token) error {
		if told++; told == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || told != 2 {
		t.Errorf("%v after %d tokens, want %v after 2", err, told, stop)
	}
	if n, err := p.SaveSlot(patience(t), 0, "stopped.bin"); err != nil || n > 250 {
		t.Errorf("the slot then had %d tokens: the server went on; %v", n, err)
	}
}
