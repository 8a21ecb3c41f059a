package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"meridian/agent/openai"
)

// talker is a model: it says what a test tells it, and keeps what it was asked.
type talker struct {
	mu     sync.Mutex
	asked  []openai.Request
	tokens []openai.Token
	err    error
	none   bool          // it lists no model
	begun  chan struct{} // nil: an answer ends by itself; else it waits for its end, and is told here that it does
}

func (b *talker) Models(context.Context) ([]openai.Model, error) {
	if b.none {
		return nil, nil
	}
	return []openai.Model{{ID: "smol"}, {ID: "large"}}, nil
}

func (b *talker) Generate(ctx context.Context, r *openai.Request, emit func(openai.Token) error) (openai.Result, error) {
	b.mu.Lock()
	b.asked = append(b.asked, *r)
	b.mu.Unlock()
	res := openai.Result{Finish: "stop", Prompt: 20, Cached: 16, Completion: len(b.tokens), Forced: "hard_cap", Node: map[string]any{"prefill": "p1"}}
	if b.err != nil {
		return res, b.err
	}
	for _, t := range b.tokens {
		if t.Thinking {
			res.Thinking++
		}
		if err := emit(t); err != nil {
			return res, err
		}
	}
	if b.begun != nil {
		select {
		case b.begun <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return res, ctx.Err()
	}
	return res, nil
}

func says(texts ...string) *talker {
	b := &talker{}
	for _, s := range texts {
		rest, thinking := strings.CutPrefix(s, "(think)")
		b.tokens = append(b.tokens, openai.Token{Bytes: []byte(rest), Thinking: thinking})
	}
	return b
}

// newTalk is a shell whose MERIDIAN_OPENAI_URL is b's front.
func newTalk(t *testing.T, b *talker, token string) *shell {
	t.Helper()
	f, err := openai.New(openai.Config{Backend: b, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	s := newShell(t, nil)
	s.env = []string{"MERIDIAN_OPENAI_URL=" + srv.URL}
	return s
}

func TestChatWritesTheAnswerAndSaysHowItWent(t *testing.T) {
	b := says("(think)hm ", "(think)so", "the sky", " is\x1b[2J blue")
	s := newTalk(t, b, "")
	got := s.run(t, "chat", "why", "is it blue?")
	if got.exit != exitOK || got.out != "the sky is\x1b[2J blue\n" {
		t.Errorf("exit %d, %q, %s", got.exit, got.out, got.err)
	}
	if !strings.HasPrefix(got.err, "4 tokens (2 thinking), ") || !strings.Contains(got.err, "TTFT ") || !strings.HasSuffix(got.err, ", 16 of 20 prompt tokens cached, thinking was ended: hard_cap\n") {
		t.Errorf("%q", got.err)
	}
	want := openai.Request{ID: b.asked[0].ID, Model: "smol", Chat: true, Messages: []openai.Message{{Role: "user", Content: "why is it blue?"}}, Temperature: 1, TopP: 1, LogProbs: -1}
	if !reflect.DeepEqual(b.asked[0], want) {
		t.Errorf("%+v", b.asked[0])
	}
}

func TestChatShowsThinkingOnATerminal(t *testing.T) {
	s := newTalk(t, says("(think)hm\x07 ", "(think)so", "yes\x1b[2J", "\u009b!\n"), "")
	s.terminal = true
	if got := s.run(t, "chat", "x"); got.out != "\x1b[2mhm? so\x1b[0m\n\nyes?[2J?!\n" {
		t.Errorf("%q", got.out)
	}
	if got := s.run(t, "chat", "x", "--no-color"); got.out != "hm? so\n\nyes?[2J?!\n" {
		t.Errorf("%q", got.out)
	}
	s.env = append(s.env, "NO_COLOR=1")
	if got := s.run(t, "chat", "x"); strings.Contains(got.out, "\x1b") {
		t.Errorf("%q", got.out)
	}
	s = newTalk(t, says("(think)never done"), "")
	s.terminal = true
	if got := s.run(t, "chat", "x"); got.out != "\x1b[2mnever done\x1b[0m\n" {
		t.Errorf("the terminal stays dim: %q", got.out)
	}
}

func TestChatTakesThePromptFromAPipe(t *testing.T) {
	b := says("ok")
	s := newTalk(t, b, "")
	s.in = "two\nlines\n"
	expect(t, s.run(t, "chat"), exitOK, "ok\n", "")
	if m := b.asked[0].Messages; len(m) != 1 || m[0].Content != "two\nlines\n" {
		t.Errorf("%+v", m)
	}
	for in, words := range map[string]string{"": "empty", " \n": "empty", "\xff": "UTF-8"} {
		s.in = in
		expect(t, s.run(t, "chat"), exitUsage, "", words)
	}
	if len(b.asked) != 1 {
		t.Error("an empty prompt was sent")
	}
}

func TestChatFlagsReachTheServer(t *testing.T) {
	b := says("ok")
	s := newTalk(t, b, "sesame")
	expect(t, s.run(t, "chat", "x", "--token", "sesame", "--model", "large", "--system", "be brief", "--max-tokens", "7", "--temperature", "0", "--no-think"), exitOK, "ok", "")
	r := b.asked[0]
	if r.Model != "large" || r.MaxTokens != 7 || r.Temperature != 0 || r.Think == nil || *r.Think || !reflect.DeepEqual(r.Messages, []openai.Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: "x"}}) {
		t.Errorf("%+v", r)
	}
	s.env = append(s.env, "MERIDIAN_CLI_CHAT_TOKEN=sesame")
	expect(t, s.run(t, "chat", "x"), exitOK, "ok", "")
}

func TestChatAnswersInJSONAndYAML(t *testing.T) {
	s := newTalk(t, says("(think)hm", "<yes>"), "")
	want := map[string]any{"model": "smol", "text": "<yes>", "reasoning": "hm", "finish_reason": "stop", "prompt_tokens": 20., "cached_tokens": 16.,
		"completion_tokens": 2., "reasoning_tokens": 1., "forced": "hard_cap", "node": map[string]any{"prefill": "p1"}}
	got := s.run(t, "chat", "x", "--json")
	var v map[string]any
	if err := json.Unmarshal([]byte(got.out), &v); err != nil || got.err != "" || got.exit != exitOK {
		t.Fatalf("%v, exit %d, %s %s", err, got.exit, got.out, got.err)
	}
	for _, measured := range []string{"ttft_seconds", "tokens_per_second"} {
		if x, ok := v[measured].(float64); !ok || x <= 0 {
			t.Errorf("%s: %v", measured, v[measured])
		}
		delete(v, measured)
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("\n got %v\nwant %v", v, want)
	}
	got = s.run(t, "chat", "x", "-o", "yaml")
	if err := yaml.Unmarshal([]byte(got.out), &v); err != nil || v["text"] != "<yes>" {
		t.Errorf("%v in %s", err, got.out)
	}
}

func TestChatFailures(t *testing.T) {
	for _, c := range []struct {
		err  *openai.Error
		exit int
		text string
	}{
		{&openai.Error{Status: 400, Message: "too long"}, exitUsage, "error: too long\n"}, {&openai.Error{Status: 429, Message: "full"}, exitRefused, "hint: try again"},
		{&openai.Error{Status: 503, Message: "starting"}, exitUnreachable, "error: starting\nhint: "}, {&openai.Error{Status: 500, Message: "oh"}, exitFailed, "error: oh\n"},
	} {
		b := says()
		b.err = c.err
		expect(t, newTalk(t, b, "").run(t, "chat", "x"), c.exit, "", c.text)
	}
	s := newTalk(t, says(), "sesame")
	expect(t, s.run(t, "chat", "x"), exitRefused, "", "MERIDIAN_CLI_CHAT_TOKEN")
	s = newTalk(t, says(), "")
	expect(t, s.run(t, "chat", "x", "--model", "gpt-4"), exitFailed, "", "gpt-4")
	expect(t, newTalk(t, &talker{none: true}, "").run(t, "chat", "x"), exitFailed, "", "lists no model")
	srv := httptest.NewServer(nil)
	srv.Close()
	expect(t, s.run(t, "chat", "x", "--url", srv.URL), exitUnreachable, "", "hint: is a front there? --url or MERIDIAN_OPENAI_URL names it")
	for _, args := range [][]string{{"--url", "localhost:8080"}, {"--url", "http://"}, {"--temperature", "3"}, {"--temperature", "NaN"}, {"--max-tokens", "-1"}, {"--nope"}} {
		expect(t, s.run(t, append([]string{"chat", "x"}, args...)...), exitUsage, "", "error: ")
	}
	var v map[string]map[string]any
	got := s.run(t, "chat", "x", "--url", srv.URL, "--json")
	if err := json.Unmarshal([]byte(got.err), &v); err != nil || v["error"]["name"] != "UNREACHABLE" || got.out != "" {
		t.Errorf("%v: %s", err, got.err)
	}
}

func TestChatIsCancelledWithItsContext(t *testing.T) {
	b := says("one")
	b.begun = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-b.begun; cancel() }()
	expect(t, newTalk(t, b, "").runIn(ctx, "chat", "x"), exitFailed, "", "error: interrupted before the end")
}

// screen tells when a word is written.
type screen struct {
	text bytes.Buffer
	word string
	seen chan struct{}
}

func (s *screen) String() string { return s.text.String() }

func (s *screen) Write(p []byte) (int, error) {
	if s.word != "" && bytes.Contains(p, []byte(s.word)) {
		s.seen <- struct{}{}
	}
	return s.text.Write(p)
}

// talk is a conversation whose terminal and signals are the test's.
type talk struct {
	out     screen
	err     bytes.Buffer
	lines   chan string
	signals chan os.Signal
	done    chan error
}

func newConversation(t *testing.T, b *talker, word string) *talk {
	t.Helper()
	f, err := openai.New(openai.Config{Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	c := &talk{lines: make(chan string), signals: make(chan os.Signal), done: make(chan error, 1)}
	c.out.word, c.out.seen = word, make(chan struct{})
	s := &chat{a: &app{out: &c.out, err: &c.err, terminal: true, noColor: true, output: "table", timeout: longTimeout}, url: srv.URL, system: "be brief"}
	s.request.Temperature = 1
	if err := s.prepare("", false); err != nil {
		t.Fatal(err)
	}
	go func() { c.done <- s.loop(t.Context(), c.lines, c.signals) }()
	return c
}

func (c *talk) end(t *testing.T) {
	t.Helper()
	if err := <-c.done; err != nil {
		t.Error(err)
	}
}

func contents(r openai.Request) string {
	var s []string
	for _, m := range r.Messages {
		s = append(s, m.Role+":"+m.Content)
	}
	return strings.Join(s, "|")
}

func TestAConversationRemembersUntilItIsReset(t *testing.T) {
	b := says("(think)hm", "yes")
	c := newConversation(t, b, "")
	for _, line := range []string{"one", " ", "two", "/reset", "three", "/quit"} {
		c.lines <- line
	}
	c.end(t)
	want := []string{"system:be brief|user:one", "system:be brief|user:one|assistant:yes|user:two", "system:be brief|user:three"}
	for i, r := range b.asked {
		if contents(r) != want[i] {
			t.Errorf("turn %d: %s", i, contents(r))
		}
	}
	if len(b.asked) != 3 || c.out.String() != "> hm\n\nyes\n> > hm\n\nyes\n> > hm\n\nyes\n> " || strings.Count(c.err.String(), "TTFT") != 3 {
		t.Errorf("%q, %q", c.out.String(), c.err.String())
	}
}

func TestAConversationEndsWithItsInputAndWithCtrlCAtThePrompt(t *testing.T) {
	c := newConversation(t, says("yes"), "")
	close(c.lines)
	c.end(t)
	if c.out.String() != "> \n" {
		t.Errorf("%q", c.out.String())
	}
	c = newConversation(t, says("yes"), "")
	c.signals <- os.Interrupt
	c.end(t)
	if c.out.String() != "> \n" {
		t.Errorf("%q", c.out.String())
	}
}

func TestCtrlCEndsTheAnswerAndNotTheConversation(t *testing.T) {
	b := says("par")
	b.begun = make(chan struct{})
	c := newConversation(t, b, "par")
	for range 2 {
		c.lines <- "one"
		<-c.out.seen
		c.signals <- os.Interrupt
	}
	c.lines <- "/quit"
	c.end(t)
	if strings.Count(c.err.String(), "cancelled") != 2 || c.out.String() != "> par\n> par\n> " {
		t.Errorf("%q, %q", c.out.String(), c.err.String())
	}
	if got := contents(b.asked[1]); got != "system:be brief|user:one" {
		t.Errorf("a cancelled turn is remembered: %s", got)
	}
	c = newConversation(t, b, "par")
	c.lines <- "one"
	<-c.out.seen
	c.signals <- syscall.SIGTERM
	c.end(t)
}

func TestAConversationSurvivesAFailure(t *testing.T) {
	b := says("yes")
	b.err = &openai.Error{Status: 429, Message: "full"}
	c := newConversation(t, b, "")
	c.lines <- "one"
	c.lines <- "/quit"
	c.end(t)
	if c.err.String() != "error: full\nhint: try again when fewer requests run\n" {
		t.Errorf("%q", c.err.String())
	}
}

func TestLinesAreReadToTheEnd(t *testing.T) {
	var got []string
	for line := range linesOf(strings.NewReader("one\ntwo\r\n\nlast")) {
		got = append(got, line)
	}
	if strings.Join(got, "|") != "one|two||last" {
		t.Errorf("%q", got)
	}
}

// The tier goes to the server as it is given; without one nothing is said of it.
func TestChatAsksForTheServiceTier(t *testing.T) {
	var asked map[string]any
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	}))
	defer srv.Close()
	s := newShell(t, nil)
	args := []string{"chat", "--url", srv.URL, "--model", "m", "hello"}
	for _, tier := range openai.ServiceTiers {
		expect(t, s.run(t, append(args, "--service-tier", tier)...), exitOK, "a", "")
		if asked["service_tier"] != tier {
			t.Errorf("--service-tier %s asks for %v", tier, asked["service_tier"])
		}
	}
	expect(t, s.run(t, args...), exitOK, "a", "")
	if tier, ok := asked["service_tier"]; ok {
		t.Errorf("without the flag it asks for %v", tier)
	}
	expect(t, s.run(t, append(args, "--service-tier", "cheap")...), exitUsage, "", `--service-tier: "cheap" is none of auto, default, flex, priority`)
}
