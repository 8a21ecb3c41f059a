package openai

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"meridian/internal/realpart"
)

// scripted does what the text of a request says.
func scripted(ctx context.Context, r *Request, emit func(Token) error) (Result, error) {
	text := r.Prompt
	if r.Chat {
		text = r.Messages[len(r.Messages)-1].Content
	}
	if r.PromptTokens != nil {
		return saying(words("ids ", fmt.Sprint(r.PromptTokens))...).generate(ctx, r, emit)
	}
	switch {
	case text == "hello":
		var tokens []Token
		for _, s := range []string{"Hi", " \xe2\x82", "\xac", "!"} {
			tokens = append(tokens, Token{Bytes: []byte(s), HasLogProb: true, LogProb: -0.5, Top: []TokenProb{{Bytes: []byte("Yo"), LogProb: -0.75}}})
		}
		res, err := saying(tokens...).generate(ctx, r, emit)
		if r.Think != nil {
			res.Node = map[string]any{"max_think": r.MaxThink, "think": *r.Think}
		}
		return res, err
	case text == "think":
		return saying(Token{Bytes: []byte("hm, "), Thinking: true}, Token{Bytes: []byte("so"), Thinking: true}, Token{Bytes: []byte("yes")}).generate(ctx, r, emit)
	case text == "break":
		for _, t := range words("one ", "two ") {
			if err := emit(t); err != nil {
				return Result{}, err
			}
		}
		return Result{}, &Error{Status: 502, Code: "engine_failed", Message: "it fell over"}
	case text == "endless":
		return endless().generate(ctx, r, emit)
	}
	e := &Error{Message: "as you wish"}
	if _, err := fmt.Sscanf(text, "fail %d", &e.Status); err != nil {
		return Result{}, err
	}
	return Result{}, e
}

// pulsing is scripted, and has requests that wait for signs of life first.
type pulsing struct {
	fake
	beats chan struct{}
}

func (b *pulsing) Alive(context.Context) (Progress, error) {
	select {
	case b.beats <- struct{}{}:
	default:
	}
	return Progress{}, nil
}

func (b *pulsing) scripted(ctx context.Context, r *Request, emit func(Token) error) (Result, error) {
	if r.Chat {
		last := &r.Messages[len(r.Messages)-1]
		if text, waits := strings.CutPrefix(last.Content, "wait "); waits {
			last.Content = text
			for range 2 { // before the second one the first was sent
				<-b.beats
			}
		}
	}
	return scripted(ctx, r, emit)
}

func TestThePythonClientOfOpenAIWorksWithTheFront(t *testing.T) {
	packages := realpart.Packages(t, "openai")
	b := &pulsing{beats: make(chan struct{})}
	b.generate = b.scripted
	f := newFront(t, Config{CommentEvery: BeatEvery, Backend: b, Token: "sesame"})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(f, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, realpart.Python(t), "testdata/client.py", "http://"+ln.Addr().String(), "sesame")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script, err := os.ReadFile("testdata/client.py")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^def (check_\w+)`).FindAllSubmatch(script, -1) {
		want = append(want, string(m[1]))
	}
	if got := strings.Fields(string(out)); len(want) < 13 || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("passed %q, want %q", got, want)
	}
	s.Shutdown(ctx)
	if err := <-served; err != nil {
		t.Error(err)
	}
	st := f.Stats()
	if st.Active != 0 || st.Cancelled != 2 || st.Broken != 2 || st.Slow != 0 || st.Status[http.StatusTooManyRequests] != 1 {
		t.Errorf("%+v", st)
	}
}
