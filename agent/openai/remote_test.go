package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func remoteOf(t *testing.T, b Backend) *Remote {
	t.Helper()
	s := httptest.NewServer(newFront(t, Config{Backend: b}))
	t.Cleanup(s.Close)
	return NewRemote(ClientConfig{URL: s.URL})
}

func gather(t *testing.T, m *Remote, r *Request) ([]Token, Result, error) {
	t.Helper()
	var got []Token
	res, err := m.Generate(t.Context(), r, func(tok Token) error {
		got = append(got, tok)
		return nil
	})
	return got, res, err
}

// Between nodes nothing of a request, a token or a result is lost.
func TestAForwardedRequestArrivesAsItWas(t *testing.T) {
	seed, no, yes := int64(7), false, true
	tokens := []Token{
		{ID: 1, Bytes: []byte("th\xe2"), Thinking: true}, {ID: 2, Bytes: []byte("\x82\xac"), Thinking: true, Forced: true}, {ID: 3},
		{ID: 0, Bytes: []byte("\xff\xfe"), HasLogProb: true, LogProb: -0.5, Top: []TokenProb{{4, []byte("\xe2"), -0.25}, {0, []byte("b"), -4}}},
		{ID: 6, Bytes: []byte(" end")},
	}
	for _, r := range []Request{
		{Model: "m", Chat: true, Hop: true, Messages: []Message{{Role: "system", Content: "s"}, {Role: "user", Content: "u\n\"é"}}, TopP: 1, LogProbs: -1},
		{Model: "m", Chat: true, Hop: true, Messages: []Message{{Role: "user", Content: ""}}, MaxTokens: 9, Temperature: 0.7, TopP: 0.9, MinP: 0.05, TopK: 40, Seed: &seed,
			FrequencyPenalty: -1, PresencePenalty: 1, LogProbs: 2, MaxThink: 100, Think: &no, Background: true},
		{Model: "m", Chat: true, Hop: true, Messages: []Message{{Role: "user", Content: "u"}, {Role: "assistant", Content: "a", Reasoning: "r"}, {Role: "user", Content: "v"}}, TopP: 1, LogProbs: -1,
			Think: &yes, Effort: "low", Template: map[string]json.RawMessage{"date": json.RawMessage(`"today"`)}},
		{Model: "m", Hop: true, Prompt: "a", TopP: 1, LogProbs: -1, Think: &no},
		{Model: "org/large", Hop: true, Prompt: "a\tb", Temperature: 2, TopP: 1, LogProbs: 0},
		{Model: "m", Hop: true, PromptTokens: []int32{0, 5, 9}, TopP: 1, LogProbs: -1},
	} {
		b := saying(tokens...)
		inner := b.generate
		b.generate = func(ctx context.Context, r *Request, emit func(Token) error) (Result, error) {
			res, err := inner(ctx, r, emit)
			res.Finish, res.Forced, res.Node = "length", "converged", map[string]any{"ttft_ms": 2.5, "prefill": "p"}
			return res, err
		}
		got, res, err := gather(t, remoteOf(t, b), &r)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, tokens) {
			t.Errorf("\n got %+v\nwant %+v", got, tokens)
		}
		if want := (Result{Finish: "length", Prompt: 5, Completion: 5, Cached: 3, Thinking: 2, Forced: "converged", Node: map[string]any{"ttft_ms": 2.5, "prefill": "p"}}); !reflect.DeepEqual(res, want) {
			t.Errorf("\n got %+v\nwant %+v", res, want)
		}
		arrived := *b.asked()
		if arrived.ID = ""; !reflect.DeepEqual(arrived, r) {
			t.Errorf("\n got %+v\nwant %+v", arrived, r)
		}
	}
}

func TestAServerThatSendsTextIsABackendToo(t *testing.T) {
	m := remoteOf(t, saying(
		Token{ID: 1, Bytes: []byte("hm"), Thinking: true}, Token{ID: 2, Bytes: []byte("\xe2\x82"), HasLogProb: true, LogProb: -1},
		Token{ID: 3, Bytes: []byte("\xac"), HasLogProb: true, LogProb: -2, Top: []TokenProb{{3, []byte("\xac"), -2}, {4, []byte("x"), -3}}}))
	for _, c := range []struct {
		r    Request
		want []Token
	}{
		{Request{Model: "m", Chat: true, Messages: []Message{{Role: "user", Content: "u"}}, TopP: 1, LogProbs: -1}, []Token{
			{ID: -1, Bytes: []byte("hm"), Thinking: true}, {ID: -1, Bytes: []byte("€")}}},
		{Request{Model: "m", Chat: true, Messages: []Message{{Role: "user", Content: "u"}}, TopP: 1, LogProbs: 2}, []Token{
			{ID: -1, Bytes: []byte("hm"), Thinking: true}, {ID: -1, Bytes: []byte("\xe2\x82"), HasLogProb: true, LogProb: -1},
			{ID: -1, Bytes: []byte("\xac"), HasLogProb: true, LogProb: -2, Top: []TokenProb{{-1, []byte("\xac"), -2}, {-1, []byte("x"), -3}}}}},
		{Request{Model: "m", Prompt: "p", TopP: 1, LogProbs: 2}, []Token{
			{ID: -1, Bytes: []byte("hm")}, {ID: -1, Bytes: []byte("\xe2\x82"), HasLogProb: true, LogProb: -1, Top: []TokenProb{{-1, []byte("\xe2\x82"), -1}}},
			{ID: -1, Bytes: []byte("\xac"), HasLogProb: true, LogProb: -2, Top: []TokenProb{{-1, []byte("\xac"), -2}, {-1, []byte("x"), -3}}}}},
	} {
		got, res, err := gather(t, m, &c.r)
		if err != nil || !reflect.DeepEqual(got, c.want) || res.Prompt != 5 || res.Completion != 3 || res.Thinking != 1 || res.Finish != "stop" {
			t.Errorf("%v, %+v\n got %+v\nwant %+v", err, res, got, c.want)
		}
	}
}

func TestEnoughOrAnErrorOfEmitEndsTheOtherSideToo(t *testing.T) {
	mine := errors.New("mine")
	for _, stop := range []error{ErrStop, mine} {
		ended := make(chan error, 1)
		b := endless()
		inner := b.generate
		b.generate = func(ctx context.Context, r *Request, emit func(Token) error) (Result, error) {
			res, err := inner(ctx, r, emit)
			ended <- err
			return res, err
		}
		n := 0
		res, err := remoteOf(t, b).Generate(t.Context(), &Request{Model: "m", Hop: true, Prompt: "p", TopP: 1, LogProbs: -1}, func(Token) error {
			if n++; n == 3 {
				return stop
			}
			return nil
		})
		if (stop == ErrStop) != (err == nil) || err != nil && err != mine || res.Completion != 3 || (stop == ErrStop) != (res.Finish == "stop") {
			t.Errorf("%v: %+v, %v", stop, res, err)
		}
		if err := <-ended; err == nil {
			t.Error("the other side came to its own end")
		}
	}
}

func TestARemoteFailsAsABackendShould(t *testing.T) {
	r := &Request{Model: "m", Prompt: "p", TopP: 1, LogProbs: -1}
	code := func(err error) string {
		var e *Error
		if !errors.As(err, &e) {
			return err.Error()
		}
		return e.Code
	}
	said := &Error{Status: 409, Type: "t", Code: "node_mismatch", Param: "p", Message: "m"}
	if _, _, err := gather(t, remoteOf(t, failing(0, said)), r); !reflect.DeepEqual(err, error(said)) {
		t.Errorf("%#v", err)
	}
	if got, _, err := gather(t, remoteOf(t, failing(2, said)), r); code(err) != "node_mismatch" || len(got) != 2 {
		t.Errorf("in a stream: %v after %d tokens", err, len(got))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	gone := NewRemote(ClientConfig{URL: "http://" + ln.Addr().String()})
	_, _, err = gather(t, gone, r)
	var op *net.OpError
	if code(err) != CodeUnreachable || !errors.As(err, &op) || strings.Contains(err.(*Error).Message, ln.Addr().String()) {
		t.Errorf("%v", err)
	}
	if _, err := gone.Models(t.Context()); code(err) != CodeUnreachable {
		t.Errorf("%v", err)
	}
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"choices\":[{\"text\":\"a\"}]}\n\n"))
	}))
	defer cut.Close()
	if got, _, err := gather(t, NewRemote(ClientConfig{URL: cut.URL}), r); code(err) != CodeBroken || len(got) != 1 {
		t.Errorf("%v after %d tokens", err, len(got))
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = remoteOf(t, endless()).Generate(ctx, r, func(Token) error { cancel(); return nil })
	if err != context.Canceled {
		t.Errorf("its own context: %v", err)
	}
}

func TestTokenTextCanBeUndone(t *testing.T) {
	for _, b := range []string{"a", "", "\xff", "\xe2\x82", "é", "bytes:", `bytes:\x`, `bytes:\xzz`, "bytes:abcd"} {
		if got := string(tokenBytes(tokenText([]byte(b)))); got != b {
			t.Errorf("%q became %q", b, got)
		}
	}
}
