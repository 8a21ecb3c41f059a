package openai

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const streamed = hello + `,"stream":true,"stream_options":{"include_usage":true}`

func TestAStreamIsFramedAsEvents(t *testing.T) {
	w := post(t, newFront(t, Config{Backend: saying(words("Hel", "lo\n\n", "data: x")...)}), chatPath, streamed+"}")
	if ct := w.Header().Get("Content-Type"); ct != "text/event-stream; charset=utf-8" || w.Code != http.StatusOK || !w.Flushed {
		t.Errorf("%d %q, flushed %v", w.Code, ct, w.Flushed)
	}
	chunks := chunksOf(t, w.Body.String())
	if len(chunks) != 6 { // role, three tokens, the finish, the usage
		t.Fatalf("%d chunks: %s", len(chunks), w.Body)
	}
	for i, c := range chunks {
		if c.ID != chunks[0].ID || c.Object != "chat.completion.chunk" || c.Model != "m" || c.Created == 0 {
			t.Errorf("chunk %d: %+v", i, c)
		}
		if i < 5 && (len(c.Choices) != 1 || c.Usage != nil || (c.Choices[0].FinishReason != nil) != (i == 4)) {
			t.Errorf("chunk %d: %+v", i, c)
		}
	}
	if d := chunks[0].Choices[0].Delta; d.Role != "assistant" || d.Content == nil || *d.Content != "" {
		t.Errorf("the first delta: %+v", d)
	}
	if text, _ := textOf(chunks); text != "Hello\n\ndata: x" {
		t.Errorf("text %q", text)
	}
	if r := *chunks[4].Choices[0].FinishReason; r != "stop" {
		t.Errorf("finish %q", r)
	}
	u := chunks[5].Usage
	if len(chunks[5].Choices) != 0 || u == nil || u.PromptTokens != 5 || u.CompletionTokens != 3 || u.TotalTokens != 8 || u.PromptDetails.CachedTokens != 3 {
		t.Errorf("the usage: %+v", chunks[5])
	}
	if !strings.Contains(w.Body.String(), `"choices":[]`) {
		t.Errorf("choices of the usage chunk are not []")
	}
}

func TestUsageComesOnlyWhenItIsAskedFor(t *testing.T) {
	w := post(t, newFront(t, Config{Backend: saying(words("a")...)}), chatPath, hello+`,"stream":true}`)
	for _, c := range chunksOf(t, w.Body.String()) {
		if c.Usage != nil || len(c.Choices) != 1 {
			t.Errorf("%+v", c)
		}
	}
}

func TestAWholeAnswer(t *testing.T) {
	b := saying(words("a<b> ", "&", " c")...)
	w := post(t, newFront(t, Config{Backend: b}), chatPath, hello+"}")
	var c Chunk
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	m := c.Choices[0].Message
	if c.Object != "chat.completion" || m.Role != "assistant" || *m.Content != "a<b> & c" || m.ReasoningContent != nil || c.Usage.TotalTokens != 8 || *c.Choices[0].FinishReason != "stop" {
		t.Errorf("%s", w.Body)
	}
	if !strings.Contains(w.Body.String(), "a<b> & c") {
		t.Errorf("escaped as if for HTML: %s", w.Body)
	}
	w = post(t, newFront(t, Config{Backend: b}), completionsPath, `{"model":"m","prompt":"x"}`)
	c = Chunk{}
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || c.Object != "text_completion" || *c.Choices[0].Text != "a<b> & c" || c.Usage == nil {
		t.Errorf("%v, %s", err, w.Body)
	}
}

func TestThinkingIsApartInAChatAndInOrderInAText(t *testing.T) {
	b := saying(
		Token{Bytes: []byte("hm\xe2\x82"), Thinking: true}, Token{Bytes: []byte("\xac</s>"), Thinking: true}, Token{Bytes: []byte("\xe2"), Thinking: true, Forced: true},
		Token{Bytes: []byte("yes")}, Token{Bytes: []byte("</s>no")})
	f := newFront(t, Config{Backend: b})
	chunks := chunksOf(t, post(t, f, chatPath, streamed+`,"stop":"</s>"}`).Body.String())
	text, reasoning := textOf(chunks)
	if text != "yes" || reasoning != "hm€</s>\uFFFD" {
		t.Errorf("text %q, reasoning %q", text, reasoning)
	}
	if n := chunks[len(chunks)-1].Usage.CompletionDetails.ReasoningTokens; n != 3 {
		t.Errorf("%d reasoning tokens", n)
	}
	whole := post(t, f, chatPath, hello+`}`).Body.String()
	if !strings.Contains(whole, `"content":"yes</s>no","reasoning_content":"hm€</s>`) {
		t.Errorf("%s", whole)
	}
	text, _ = textOf(chunksOf(t, post(t, f, completionsPath, `{"model":"m","prompt":"x","stream":true}`).Body.String()))
	if text != "hm€</s>\uFFFDyes</s>no" {
		t.Errorf("text completion %q", text)
	}
}

// The backend is told to stop at the token that completes the stop string, and
// is not listened to afterwards.
func TestAStopStringEndsTheGeneration(t *testing.T) {
	tokens, asked := words("one ", "EN", "D", " two", " three"), 0
	b := &fake{generate: func(_ context.Context, _ *Request, emit func(Token) error) (Result, error) {
		var err error
		for _, tok := range tokens {
			asked++
			if err = emit(tok); err != nil {
				break
			}
		}
		if again := emit(Token{Bytes: []byte("late"), Thinking: true}); !errors.Is(err, ErrStop) || !errors.Is(again, ErrStop) {
			t.Errorf("%v, then %v", err, again)
		}
		return Result{Finish: "length", Completion: asked}, nil
	}}
	f := newFront(t, Config{Backend: b})
	for _, stream := range []bool{false, true} {
		asked = 0
		w := post(t, f, chatPath, hello+`,"stop":["END","never"],"stream":`+jsonOf(t, stream)+`}`)
		if asked != 3 || strings.Contains(w.Body.String(), "EN") || strings.Contains(w.Body.String(), "late") || !strings.Contains(w.Body.String(), "one ") {
			t.Errorf("stream %v: %d tokens, %s", stream, asked, w.Body)
		}
		if !strings.Contains(w.Body.String(), `"finish_reason":"stop"`) {
			t.Errorf("stream %v: %s", stream, w.Body)
		}
	}
}

func TestLengthIsTheReasonWhenTheBackendSaysSo(t *testing.T) {
	b := &fake{generate: func(context.Context, *Request, func(Token) error) (Result, error) {
		return Result{Finish: "length"}, nil
	}}
	f := newFront(t, Config{Backend: b})
	for _, body := range []string{hello + "}", hello + `,"stream":true}`} {
		if w := post(t, f, chatPath, body); !strings.Contains(w.Body.String(), `"finish_reason":"length"`) {
			t.Errorf("%s", w.Body)
		}
	}
}

func logProbTokens() []Token {
	return []Token{
		{ID: 1, Bytes: []byte("Hi"), HasLogProb: true, LogProb: -0.5, Top: []TokenProb{{1, []byte("Hi"), -0.5}, {2, []byte("Yo"), -1}}},
		{ID: 3, Bytes: []byte("\xe2\x82"), HasLogProb: true, LogProb: math.Inf(-1), Top: []TokenProb{{4, []byte("\xe2\x82"), -2}, {5, []byte("\xe2\x83"), -3}}},
		{ID: 6, Bytes: []byte("\xac"), HasLogProb: true, LogProb: -0.25},
		{ID: 7, Bytes: []byte("!"), Forced: true},
		{ID: 8, Bytes: []byte(" END"), HasLogProb: true, LogProb: -0.125},
	}
}

func TestLogProbsOfAChat(t *testing.T) {
	f := newFront(t, Config{Backend: saying(logProbTokens()...)})
	want := []ChatLogProb{
		{Token: "Hi", LogProb: -0.5, Bytes: []int{'H', 'i'}, Top: []ChatLogProb{{Token: "Hi", LogProb: -0.5, Bytes: []int{'H', 'i'}}}},
		{Token: `bytes:\xe2\x82`, LogProb: leastLogProb, Bytes: []int{0xe2, 0x82}, Top: []ChatLogProb{{Token: `bytes:\xe2\x82`, LogProb: -2, Bytes: []int{0xe2, 0x82}}}},
		{Token: `bytes:\xac`, LogProb: -0.25, Bytes: []int{0xac}, Top: []ChatLogProb{}},
		{Token: " END", LogProb: -0.125, Bytes: []int{' ', 'E', 'N', 'D'}, Top: []ChatLogProb{}},
	}
	w := post(t, f, chatPath, hello+`,"logprobs":true,"top_logprobs":1}`)
	var whole Chunk
	if err := json.Unmarshal(w.Body.Bytes(), &whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole.Choices[0].LogProbs.Content {
		if e := &whole.Choices[0].LogProbs.Content[i]; e.Top == nil {
			e.Top = []ChatLogProb{}
		}
	}
	if got := whole.Choices[0].LogProbs.Content; !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	// With a stop string, tokens of which nothing is shown are left out.
	var names []string
	for _, c := range chunksOf(t, post(t, f, chatPath, hello+`,"logprobs":true,"stream":true,"stop":"END"}`).Body.String()) {
		if l := c.Choices[0].LogProbs; l != nil {
			for _, e := range l.Content {
				names = append(names, e.Token)
			}
		}
	}
	if got := strings.Join(names, "|"); got != `Hi|bytes:\xe2\x82|bytes:\xac| END` { // of " END" the space is shown
		t.Errorf("with a stop string: %s", got)
	}
	if w := post(t, f, chatPath, hello+`,"logprobs":true,"stop":" END"}`); strings.Contains(w.Body.String(), `"token":" END"`) {
		t.Errorf("a token that is not shown: %s", w.Body)
	}
	if w := post(t, f, chatPath, hello+`}`); !strings.Contains(w.Body.String(), `"logprobs":null`) {
		t.Errorf("not asked for: %s", w.Body)
	}
}

func TestLogProbsOfAText(t *testing.T) {
	f := newFront(t, Config{Backend: saying(logProbTokens()...)})
	var c struct {
		Choices []struct{ LogProbs json.RawMessage }
	}
	w := post(t, f, completionsPath, `{"model":"m","prompt":"x","logprobs":1}`)
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	const want = `{"tokens":["Hi","bytes:\\xe2\\x82","bytes:\\xac","!"," END"],"token_logprobs":[-0.5,-9999,-0.25,null,-0.125],` +
		`"top_logprobs":[{"Hi":-0.5},{"bytes:\\xe2\\x82":-9999},{"bytes:\\xac":-0.25},{},{" END":-0.125}],"text_offset":[0,2,2,3,4]}`
	if got := string(c.Choices[0].LogProbs); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if w := post(t, f, completionsPath, `{"model":"m","prompt":"x","logprobs":0}`); !strings.Contains(w.Body.String(), `"top_logprobs":null`) {
		t.Errorf("%s", w.Body)
	}
}

func TestWhatTheNodeSaysIsInTheLastChunk(t *testing.T) {
	b := &fake{generate: func(_ context.Context, _ *Request, emit func(Token) error) (Result, error) {
		return Result{Finish: "stop", Forced: "hard_cap", Node: map[string]any{"ttft_ms": 1.5}}, emit(Token{Bytes: []byte("a")})
	}}
	f := newFront(t, Config{Backend: b})
	chunks := chunksOf(t, post(t, f, chatPath, hello+`,"stream":true}`).Body.String())
	for i, c := range chunks {
		if last := i == len(chunks)-1; last != (string(c.Meridian) == `{"forced":"hard_cap","ttft_ms":1.5}`) || !last && c.Meridian != nil {
			t.Errorf("chunk %d: %s", i, c.Meridian)
		}
	}
	if w := post(t, f, chatPath, hello+"}"); !strings.Contains(w.Body.String(), `"meridian":{"forced":"hard_cap","ttft_ms":1.5}`) {
		t.Errorf("%s", w.Body)
	}
	b.generate = func(context.Context, *Request, func(Token) error) (Result, error) {
		return Result{Finish: "stop", Node: map[string]any{"x": math.NaN()}}, nil
	}
	if w := post(t, f, chatPath, hello+"}"); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "meridian") {
		t.Errorf("a report that is no JSON: %d %s", w.Code, w.Body)
	}
}

func failing(tokens int, err error) *fake {
	return &fake{generate: func(_ context.Context, _ *Request, emit func(Token) error) (Result, error) {
		for range tokens {
			if e := emit(Token{Bytes: []byte("x")}); e != nil {
				return Result{}, e
			}
		}
		return Result{}, err
	}}
}

func TestAnErrorBeforeTheFirstTokenHasAStatus(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{&Error{Status: 429, Code: "too_many_requests", Message: "full"}, 429, "too_many_requests"},
		{&Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "long"}, 400, "context_length_exceeded"},
		{&Error{Status: 503, Message: "down"}, 503, ""},
		{&Error{Message: "no status"}, 500, ""},
		{&Error{Status: 200, Message: "wrong status"}, 500, ""},
		{errors.New("secret: /etc/passwd"), 500, "internal_error"},
		{context.DeadlineExceeded, 504, "timeout"},
		{context.Canceled, 500, "internal_error"}, // somebody else's: this client is there
	} {
		f := newFront(t, Config{Backend: failing(0, c.err)})
		for _, body := range []string{hello + "}", streamed + "}"} {
			w := post(t, f, chatPath, body)
			e := errorIn(t, w.Body.Bytes())
			if w.Code != c.status || e.Code != c.code || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%v: %d %+v", c.err, w.Code, e)
			}
			if strings.Contains(w.Body.String(), "passwd") {
				t.Errorf("the text of an internal error is shown: %s", w.Body)
			}
			if retry := w.Header().Get("Retry-After"); (retry != "") != (c.status == 429 || c.status == 503) {
				t.Errorf("%v: Retry-After %q", c.err, retry)
			}
		}
		if s := f.Stats(); s.Status[c.status] != 2 || s.Active != 0 {
			t.Errorf("%v: %+v", c.err, s)
		}
	}
}

func TestAnErrorInAStreamIsAnEventWithoutDone(t *testing.T) {
	f := newFront(t, Config{Backend: failing(2, &Error{Status: 502, Code: "engine_failed", Message: "it fell over\nhere"})})
	data := dataOf(t, post(t, f, chatPath, streamed+"}").Body.String())
	if len(data) != 4 { // the role, two tokens, the error
		t.Fatalf("%q", data)
	}
	if e := errorIn(t, []byte(data[3])); e.Code != "engine_failed" || e.Message != "it fell over\nhere" {
		t.Errorf("%+v", e)
	}
	// Nothing has been written of an answer that goes out whole.
	if w := post(t, f, chatPath, hello+"}"); w.Code != 502 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if s := f.Stats(); s.Broken != 1 || s.Status[502] != 1 || s.Total != 2 {
		t.Errorf("%+v", s)
	}
}

func TestAForwardedStreamCarriesTokensAsTheyAre(t *testing.T) {
	f := newFront(t, Config{Backend: saying(Token{ID: 9, Bytes: []byte("\xe2\x82"), Forced: true}, Token{ID: 10, Bytes: []byte("\xac")})})
	var got []string
	for _, c := range chunksOf(t, post(t, f, chatPath, streamed+"}", HopHeader, "1").Body.String()) {
		if c.Meridian != nil {
			got = append(got, string(c.Meridian))
		}
	}
	if want := []string{`{"token_id":9,"bytes":"4oI=","forced_token":true}`, `{"token_id":10,"bytes":"rA=="}`}; !reflect.DeepEqual(got, want) {
		t.Errorf("%s", got)
	}
	if w := post(t, f, chatPath, streamed+"}"); strings.Contains(w.Body.String(), "token_id") {
		t.Errorf("to a client: %s", w.Body)
	}
}
