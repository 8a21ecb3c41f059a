package llamacpp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// token is an event of a stream.
func token(id, count int) string {
	return fmt.Sprintf(`{"id_slot":-1,"tokens":[%d],"tokens_predicted":%d,"completion_probabilities":[{"id":%d,"bytes":[97,%d],"logprob":-0.5,"top_logprobs":[{"id":%d,"bytes":[255],"logprob":-0.5},{"id":8,"bytes":[],"logprob":null}]}]}`, id, count, id, id, id)
}

func stop(kind string, count int) string {
	return fmt.Sprintf(`{"id_slot":0,"tokens":[],"stop":true,"stop_type":%q,"truncated":false,"tokens_predicted":%d,"timings":{"cache_n":7,"prompt_n":1,"prompt_ms":1.5,"predicted_ms":2.5}}`, kind, count)
}

// stream plays events, and returns the tokens that were told.
func stream(t *testing.T, ctx context.Context, f func(Token) error, events ...string) ([]int32, Done, error) {
	t.Helper()
	s := fake(t, map[string]http.HandlerFunc{"/completion": func(w http.ResponseWriter, _ *http.Request) {
		for _, e := range events {
			_, _ = io.WriteString(w, "data: "+e+"\n\n")
		}
	}})
	var got []int32
	d, err := s.Stream(ctx, Completion{Prompt: []int32{1}, Predict: 10}, func(tok Token) error {
		got = append(got, tok.ID)
		if f != nil {
			return f(tok)
		}
		return nil
	})
	return got, d, err
}

func TestAStreamTellsTokensAndHowItEnded(t *testing.T) {
	var toks []Token
	got, d, err := stream(t, t.Context(), func(tok Token) error { toks = append(toks, tok); return nil }, token(3, 1), token(4, 2), stop("limit", 2))
	if err != nil || len(got) != 2 || got[0] != 3 || got[1] != 4 {
		t.Fatal(got, err)
	}
	want := Done{Cached: 7, Computed: 1, Predicted: 2}
	if d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
	first := toks[0]
	if !bytes.Equal(first.Bytes, []byte{97, 3}) || first.LogProb != -0.5 || first.Part || len(first.Top) != 2 || !bytes.Equal(first.Top[0].Bytes, []byte{255}) {
		t.Errorf("%+v", first)
	}
	if p := first.Top[1].LogProb; p > -1e29 || math.IsInf(p, 0) || math.IsNaN(p) {
		t.Errorf("a probability of 0 has the logarithm %v", p)
	}
	if _, d, err := stream(t, t.Context(), nil, token(3, 1), stop("eos", 1)); err != nil || !d.EOS || d.Lost {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestATokenWhoseIDIsLostEndsTheCallAndIsSaid(t *testing.T) {
	for name, events := range map[string][]string{
		"held back":            {token(3, 1), token(4, 3), token(5, 4), stop("limit", 4)},
		"held back at the end": {token(3, 1), stop("limit", 2)},
		"and then the end":     {token(3, 1), stop("eos", 3)},
		"two in one event":     {token(3, 1), strings.Replace(token(4, 2), `"tokens":[4]`, `"tokens":[4,5]`, 1), stop("limit", 3)},
		"no probability":       {token(3, 1), `{"tokens":[4],"tokens_predicted":2}`, stop("limit", 2)},
		"another's":            {token(3, 1), strings.Replace(token(4, 2), `"tokens":[4]`, `"tokens":[5]`, 1), stop("limit", 2)},
	} {
		got, d, err := stream(t, t.Context(), nil, events...)
		if err != nil || len(got) != 1 || got[0] != 3 || d != (Done{Lost: true}) {
			t.Errorf("%s: told %v, %+v, %v", name, got, d, err)
		}
	}
}

func TestAStreamThatBreaksIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		check  func(error) bool
	}{
		"it just ends": {[]string{token(3, 1)}, func(err error) bool { return errors.Is(err, ErrGone) && errors.Is(err, io.ErrUnexpectedEOF) }},
		"nonsense":     {[]string{token(3, 1), "{"}, func(err error) bool { return !errors.Is(err, ErrGone) }},
		"nothing":      {[]string{token(3, 1), "{}"}, func(err error) bool { return strings.Contains(err.Error(), "no tokens") }},
		"no bytes": {[]string{token(3, 1), strings.Replace(token(4, 2), "[97,", "[256,", 1)},
			func(err error) bool { return strings.Contains(err.Error(), "256 is no byte") }},
		"its own error": {[]string{token(3, 1), `{"error":{"code":501,"message":"compute error","type":"server_error"}}`}, func(err error) bool {
			var e *Error
			return errors.As(err, &e) && *e == Error{501, "server_error", "compute error"}
		}},
		"its error, no code": {[]string{token(3, 1), `{"error":{"message":"compute error","type":"server_error"}}`}, func(err error) bool {
			var e *Error
			return errors.As(err, &e) && *e == Error{500, "server_error", "compute error"}
		}},
		"another slot": {[]string{token(3, 1), strings.Replace(stop("limit", 1), `"id_slot":0`, `"id_slot":1`, 1)},
			func(err error) bool { return strings.Contains(err.Error(), "slot 1 answered a call on slot 0") }},
	} {
		got, d, err := stream(t, t.Context(), nil, c.events...)
		if err == nil || !c.check(err) || len(got) != 1 || d != (Done{}) {
			t.Errorf("%s: told %v, %+v, %v", name, got, d, err)
		}
	}
}

func TestAWholeAnswerMustHaveEveryID(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"stop":true,"tokens":[1,2],"tokens_predicted":2}`:                                                    true,
		`{"stop":true,"tokens":[1],"tokens_predicted":2}`:                                                      false,
		`{"stop":true,"tokens":[1,2,3],"tokens_predicted":2}`:                                                  false,
		`{"stop":true,"tokens":[],"tokens_predicted":0}`:                                                       false,
		`{"stop":true,"tokens_predicted":1,"completion_probabilities":[{"id":1,"logprob":-0.5}]}`:              false,
		`{"stop":true,"tokens":[1],"tokens_predicted":1,"completion_probabilities":[{"id":2,"logprob":-0.5}]}`: false,
		`{"stop":false,"tokens":[1],"tokens_predicted":1}`:                                                     false,
	} {
		s := fake(t, map[string]http.HandlerFunc{"/completion": body(200, text)})
		if toks, _, err := s.Whole(t.Context(), Completion{Prompt: []int32{1}, Predict: 2}); (err == nil) != ok {
			t.Errorf("%s: %v, %v", text, toks, err)
		}
	}
}

func TestTheReceiversErrorEndsTheCall(t *testing.T) {
	own := errors.New("the client is gone")
	got, _, err := stream(t, t.Context(), func(Token) error { return own }, token(3, 1), token(4, 2), stop("limit", 2))
	if !errors.Is(err, own) || len(got) != 1 {
		t.Error(got, err)
	}
}

// The server sees the connection end when the caller gives up.
func TestGivingUpClosesTheConnection(t *testing.T) {
	closed := make(chan struct{})
	s := fake(t, map[string]http.HandlerFunc{"/completion": func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "data: "+token(3, 1)+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(closed)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Stream(ctx, Completion{Prompt: []int32{1}, Predict: 5}, func(Token) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrGone) {
		t.Error(err)
	}
	<-closed
}

func TestProbabilitiesAreGivenToTokensOnlyWhereItIsCertainWhoseTheyAre(t *testing.T) {
	probs := func(ids ...int32) (out []probability) {
		for i, id := range ids {
			v := -float64(i) - 1
			out = append(out, probability{ID: id, LogProb: &v, Bytes: []byte{byte(id)}})
		}
		return out
	}
	for _, c := range []struct {
		ids   []int32
		probs []probability
		want  []float64 // 0: none
	}{
		{[]int32{1, 2, 3}, probs(1, 2, 3), []float64{-1, -2, -3}},
		{[]int32{1, 1, 1}, probs(1, 1, 1), []float64{-1, -2, -3}},
		{[]int32{1, 2, 3}, probs(3), []float64{0, 0, -1}},                                 // 1 2 3 are one character
		{[]int32{9, 1, 2, 3, 8, 1, 2}, probs(9, 3, 8), []float64{-1, 0, 0, -2, -3, 0, 0}}, // and 1 2 begin another
		{[]int32{1, 2, 2}, probs(2), []float64{0, 0, 0}},                                  // either 2 may end it
		{[]int32{7, 1, 2, 2, 7}, probs(7, 2, 7), []float64{-1, 0, 0, 0, -3}},
		{[]int32{1, 2}, nil, []float64{0, 0}},
		{nil, nil, nil},
	} {
		got, ok := match(c.ids, c.probs)
		if !ok || len(got) != len(c.want) {
			t.Fatalf("%v: %d tokens", c.ids, len(got))
		}
		for i, tok := range got {
			if tok.ID != c.ids[i] || tok.LogProb != c.want[i] || tok.Part != (c.want[i] == 0) {
				t.Errorf("%v: token %d is %+v, want %v", c.ids, i, tok, c.want[i])
			}
		}
	}
	for _, c := range []struct {
		ids   []int32
		probs []probability
	}{{[]int32{1, 2}, probs(5)}, {[]int32{1, 2}, probs(2, 1)}, {[]int32{1}, probs(1, 1)}, {nil, probs(1)}} {
		if got, ok := match(c.ids, c.probs); ok {
			t.Errorf("%v: %+v", c.ids, got)
		}
	}
}

func TestAPrefillTellsItsProgressAndHowItEnded(t *testing.T) {
	progress := func(n int) string {
		return fmt.Sprintf(`{"id_slot":-1,"content":"","tokens":[0],"stop":false,"tokens_predicted":0,"prompt_progress":{"total":9,"cache":7,"processed":%d,"time_ms":1}}`, n)
	}
	const last = `{"id_slot":-1,"tokens":[5],"stop":false,"tokens_predicted":1}`
	for _, c := range []struct {
		events []string
		told   []int
		bad    bool
	}{
		{[]string{progress(7), progress(8), progress(9), last, stop("limit", 1)}, []int{7, 8, 9}, false},
		{[]string{last, stop("limit", 1)}, nil, false}, // a build that does not know the question
		{[]string{progress(7)}, []int{7}, true},
		{[]string{progress(7), `{"error":{"code":500,"message":"no","type":"t"}}`}, []int{7}, true},
		{[]string{progress(7), `nonsense`}, []int{7}, true},
		{[]string{strings.Replace(stop("limit", 1), `"id_slot":0`, `"id_slot":1`, 1)}, nil, true},
	} {
		var asked string
		s := fake(t, map[string]http.HandlerFunc{"/completion": func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			asked = string(b)
			for _, e := range c.events {
				_, _ = io.WriteString(w, "data: "+e+"\n\n")
			}
		}})
		var told []int
		done, err := s.Prefill(t.Context(), Completion{Prompt: []int32{1}, Predict: 3}, func(n int) { told = append(told, n) })
		if (err != nil) != c.bad || !slices.Equal(told, c.told) || err == nil && done.Cached != 7 {
			t.Errorf("%q: %+v, %v, told %v", c.events, done, err, told)
		}
		if !strings.Contains(asked, `"return_progress":true`) || !strings.Contains(asked, `"n_predict":0`) || !strings.Contains(asked, `"stream":true`) {
			t.Errorf("asked for %s", asked)
		}
	}
}
