package llamacpp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake is a server whose answers a test chooses, by path; /props and /v1/models
// are those of a server of two slots unless it chooses those too.
func fake(t *testing.T, answers map[string]http.HandlerFunc) *Server {
	t.Helper()
	h := http.NewServeMux()
	say := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	for path, body := range map[string]string{
		"/props":     `{"default_generation_settings":{"n_ctx":64},"total_slots":2,"build_info":"b1"}`,
		"/v1/models": `{"data":[{"meta":{"n_vocab":9}}]}`,
	} {
		if answers[path] == nil {
			h.HandleFunc(path, say(body))
		}
	}
	for path, f := range answers {
		h.HandleFunc(path, f)
	}
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	s := NewServer(hs.URL)
	return s
}

// body answers with a status and a text.
func body(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// calls is every method that sends a request; a nil error means that it took the
// answer for a good one.
func calls(s *Server) map[string]func(context.Context) error {
	q := Completion{Prompt: []int32{1}, Predict: 1}
	none := func(Token) error { return nil }
	return map[string]func(context.Context) error{
		"Health": s.Health,
		"Adapters": func(ctx context.Context) error {
			a, err := s.Adapters(ctx)
			if err == nil && len(a) == 0 { // an empty list is an answer
				err = errors.New("none")
			}
			return err
		},
		"Props":      func(ctx context.Context) error { _, err := s.Props(ctx); return err },
		"Tokenize":   func(ctx context.Context) error { _, err := s.Tokenize(ctx, "a", true, true); return err },
		"Detokenize": func(ctx context.Context) error { _, err := s.Detokenize(ctx, []int32{1}); return err },
		"ApplyTemplate": func(ctx context.Context) error {
			_, err := s.ApplyTemplate(ctx, []Message{{Role: "user", Content: "a"}}, nil)
			return err
		},
		"SaveSlot":    func(ctx context.Context) error { _, err := s.SaveSlot(ctx, 0, "f"); return err },
		"RestoreSlot": func(ctx context.Context) error { _, err := s.RestoreSlot(ctx, 0, "f"); return err },
		"EraseSlot":   func(ctx context.Context) error { return s.EraseSlot(ctx, 0) },
		"Compute":     func(ctx context.Context) error { _, err := s.Compute(ctx, q); return err },
		"Prefill":     func(ctx context.Context) error { _, err := s.Prefill(ctx, q, func(int) {}); return err },
		"Whole":       func(ctx context.Context) error { _, _, err := s.Whole(ctx, q); return err },
		"Stream":      func(ctx context.Context) error { _, err := s.Stream(ctx, q, none); return err },
	}
}

// everywhere is a server that gives one answer to all.
func everywhere(t *testing.T, h http.HandlerFunc) *Server {
	t.Helper()
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	s := NewServer(hs.URL + "/")
	return s
}

func TestAnAnswerThatIsNotUnderstoodIsAnError(t *testing.T) {
	for _, text := range []string{"", "null", "{}", "nonsense", `{"stop":false}`, `{"n_saved":"a","n_restored":-1,"n_erased":1e99}`, `{"tokens":`, `[]`, `{"data":"a"}`, "data: {\"stop\":\n\n", "\x00\xff", "<html>"} {
		s := everywhere(t, body(200, text))
		s.slots.Store(1)
		for name, call := range calls(s) {
			if err := call(t.Context()); err == nil {
				t.Errorf("%s took %q for an answer", name, text)
			}
		}
	}
}

func TestAServersErrorIsTypedWithItsStatus(t *testing.T) {
	const told = `{"error":{"code":400,"message":"too long","type":"exceed_context_size_error","n_ctx":64}}`
	for _, c := range []struct {
		status int
		text   string
		want   Error
	}{
		{400, told, Error{400, "exceed_context_size_error", "too long"}},
		{503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, Error{503, "unavailable_error", "Loading model"}},
		{502, "<html>Bad\xffGateway", Error{502, "unknown", `502 Bad Gateway: "<html>Bad?Gateway"`}},
		{500, strings.Repeat("x", 1<<20), Error{500, "unknown", `500 Internal Server Error: "` + strings.Repeat("x", 200) + `"`}},
		{302, "", Error{302, "unknown", `302 Found: ""`}},
		{500, "", Error{500, "unknown", `500 Internal Server Error: ""`}},
	} {
		for name, call := range calls(everywhere(t, body(c.status, c.text))) {
			var e *Error
			if err := call(t.Context()); !errors.As(err, &e) || *e != c.want {
				t.Errorf("%s: %v, want %v", name, err, &c.want)
			}
		}
	}
}

func TestAServerThatIsGoneIsToldFromOneThatRefuses(t *testing.T) {
	hs := httptest.NewServer(nil)
	url := hs.URL
	hs.Close()
	for name, call := range calls(NewServer(url)) {
		if err := call(t.Context()); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range calls(NewServer(filepath.Join(t.TempDir(), "none.sock"))) {
		if err := call(t.Context()); !errors.Is(err, ErrGone) {
			t.Errorf("%s by a socket: %v", name, err)
		}
	}
	status := http.StatusOK
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"tokens":[1,`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, status = range []int{200, 400} {
		for name, call := range calls(everywhere(t, cut)) {
			if err := call(t.Context()); !errors.Is(err, ErrGone) {
				t.Errorf("%s of an answer %d that ends early: %v", name, status, err)
			}
		}
	}
}

// A caller that gives up is told that, not that the server is gone.
func TestACallerThatGivesUpGetsItsOwnError(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is the end of the connection seen
		<-r.Context().Done()
	}
	for name, call := range calls(everywhere(t, hang)) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestAnAnswerOrEventThatIsTooLongIsNotRead(t *testing.T) {
	long := body(200, "data: "+strings.Repeat(" ", 5000))
	s := everywhere(t, long)
	s.limit = 4096
	s.slots.Store(1)
	for name, call := range calls(s) {
		if err := call(t.Context()); err == nil || errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "longer than 4096 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASlotThatThereIsNotIsRefusedBeforeTheServerTakesAnother(t *testing.T) {
	s := fake(t, map[string]http.HandlerFunc{"/slots/": body(200, `{"n_saved":1}`), "/completion": body(200, `{"id_slot":1,"stop":true}`)})
	for _, slot := range []int{-1, 2, 100} {
		q := Completion{Prompt: []int32{1}, Predict: 1, Slot: slot}
		_, err1 := s.SaveSlot(t.Context(), slot, "f")
		_, err2 := s.RestoreSlot(t.Context(), slot, "f")
		_, err3 := s.Compute(t.Context(), q)
		_, _, err4 := s.Whole(t.Context(), q)
		_, err5 := s.Stream(t.Context(), q, nil)
		_, err6 := s.Prefill(t.Context(), q, nil)
		for i, err := range []error{err1, err2, err3, err4, err5, err6, s.EraseSlot(t.Context(), slot)} {
			if want := fmt.Sprintf("slot %d of 2", slot); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("call %d: %v, want %q", i, err, want)
			}
		}
	}
	if n, err := s.SaveSlot(t.Context(), 1, "f"); err != nil || n != 1 {
		t.Error(n, err)
	}
	if _, err := s.Compute(t.Context(), Completion{Prompt: []int32{1}}); err == nil || !strings.Contains(err.Error(), "slot 1 answered a call on slot 0") {
		t.Error(err)
	}
}

func TestAdaptersAreThoseThatTheServerTells(t *testing.T) {
	for _, c := range []struct {
		status int
		text   string
		want   []Adapter
	}{
		{200, `[]`, nil},
		{200, `[{"id":0,"path":"/a.gguf","scale":0.5},{"id":1,"path":"b","scale":1}]`, []Adapter{{"/a.gguf", 0.5}, {"b", 1}}},
		{404, `{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`, nil}, // a build without the request
	} {
		got, err := fake(t, map[string]http.HandlerFunc{"/lora-adapters": body(c.status, c.text)}).Adapters(t.Context())
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d %s: %v, %v", c.status, c.text, got, err)
		}
	}
}

func TestPropsOfAServerThatDoesNotSayItsSizesAreRefused(t *testing.T) {
	for _, c := range []struct{ path, text string }{
		{"/props", `{}`},
		{"/props", `{"default_generation_settings":{"n_ctx":64},"total_slots":0,"build_info":"b1"}`},
		{"/props", `{"default_generation_settings":{"n_ctx":64},"total_slots":1000000,"build_info":"b1"}`},
		{"/props", `{"default_generation_settings":{"n_ctx":64},"total_slots":1}`},
		{"/props", `{"default_generation_settings":{"n_ctx":-1},"total_slots":1,"build_info":"b1"}`},
		{"/v1/models", `{"data":[]}`},
		{"/v1/models", `{"data":[{"meta":null}]}`},
	} {
		if p, err := fake(t, map[string]http.HandlerFunc{c.path: body(200, c.text)}).Props(t.Context()); err == nil {
			t.Errorf("%s %s: %+v", c.path, c.text, p)
		}
	}
}

func TestTextThatIsNotUTF8IsRefusedAndNotChanged(t *testing.T) {
	s := everywhere(t, body(200, `{}`))
	_, err1 := s.Tokenize(t.Context(), "a\xffb", false, false)
	_, err2 := s.ApplyTemplate(t.Context(), []Message{{Role: "user", Content: "a"}, {Role: "user", Content: "\xc3"}}, nil)
	_, err3 := s.ApplyTemplate(t.Context(), []Message{{Role: "\xff", Content: "a"}}, nil)
	for _, err := range []error{err1, err2, err3} {
		if err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Error(err)
		}
	}
}

// llama-server closes connections that its answers say are kept, after every
// stream for one.
func TestEachRequestHasAConnectionOfItsOwn(t *testing.T) {
	s := everywhere(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.Close {
			t.Errorf("%s asks for the connection to be kept", r.URL)
		}
		_, _ = io.WriteString(w, `{}`)
	})
	for _, call := range calls(s) {
		_ = call(t.Context())
	}
}

func TestAServerMayListenOnASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	hs := &httptest.Server{Listener: l, Config: &http.Server{Handler: body(200, `{"status":"ok"}`)}}
	hs.Start()
	defer hs.Close()
	s := NewServer(path)
	if err := s.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

// sent is the request's body, which the server got.
func sent(t *testing.T, q Completion) map[string]any {
	t.Helper()
	got := map[string]any{}
	s := fake(t, map[string]http.HandlerFunc{"/completion": func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, `{"id_slot":0,"stop":true,"tokens":[1],"tokens_predicted":1}`)
	}})
	if _, _, err := s.Whole(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return got
}

// Whatever the server was started with, what Completion says is what is asked for.
func TestEveryChoiceOfSamplingIsSent(t *testing.T) {
	got := sent(t, Completion{Prompt: []int32{1, 2}, Predict: 3})
	for field, want := range map[string]any{
		"id_slot": 0., "n_predict": 3., "cache_prompt": true, "return_tokens": true, "stream": false, "n_probs": 1., "temperature": 0., "top_k": 0.,
		"top_p": 1., "min_p": 0., "seed": 0., "frequency_penalty": 0., "presence_penalty": 0., "repeat_penalty": 1.,
	} {
		if got[field] != want {
			t.Errorf("%s is %v by default, want %v", field, got[field], want)
		}
	}
	got = sent(t, Completion{
		Prompt: []int32{1}, Predict: 1, Temperature: 0.5, TopP: 0.9, MinP: 0.1, TopK: 5, Seed: 1<<32 - 1,
		FrequencyPenalty: 0.2, PresencePenalty: 0.3, Probs: 7,
	})
	for field, want := range map[string]any{
		"temperature": 0.5, "top_p": 0.9, "min_p": 0.1, "top_k": 5., "seed": float64(1<<32 - 2), "frequency_penalty": 0.2,
		"presence_penalty": 0.3, "repeat_penalty": 1., "n_probs": 7.,
	} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
}

func TestACallWithoutAnEndIsRefused(t *testing.T) {
	s := everywhere(t, body(200, `{}`))
	for _, n := range []int{0, -1} {
		_, err1 := s.Stream(t.Context(), Completion{Prompt: []int32{1}, Predict: n}, nil)
		_, _, err2 := s.Whole(t.Context(), Completion{Prompt: []int32{1}, Predict: n})
		for _, err := range []error{err1, err2} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint(n)) {
				t.Error(err)
			}
		}
	}
}

func TestVariablesOfTheTemplateAndReasoningAreSent(t *testing.T) {
	var got []byte
	s := everywhere(t, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, `{"prompt":"p"}`)
	})
	kwargs := map[string]json.RawMessage{"enable_thinking": json.RawMessage("false")}
	if _, err := s.ApplyTemplate(t.Context(), []Message{{Role: "assistant", Content: "a", Reasoning: "r"}, {Role: "user", Content: "b"}}, kwargs); err != nil {
		t.Fatal(err)
	}
	const want = `{"chat_template_kwargs":{"enable_thinking":false},"messages":[{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"user","content":"b"}]}`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}
