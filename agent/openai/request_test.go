package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each wrong input gets the status, the code and the parameter that say what is
// wrong; the message has the given words.
func TestBadInputIsRefusedByName(t *testing.T) {
	const chat, text = chatPath, completionsPath
	with := func(more string) string { return hello + "," + more + "}" }
	prompt := func(p string) string { return `{"model":"m","prompt":` + p + `}` }
	message := func(m string) string { return `{"model":"m","messages":[` + m + `]}` }
	for _, c := range []struct {
		path, body  string
		code, param string
		words       string
	}{
		{chat, ``, "invalid_json", "", "empty"},
		{chat, `{"model":`, "invalid_json", "", "at byte 9"},
		{chat, `{"model" "m"}`, "invalid_json", "", "at byte 10"},
		{chat, hello + `}x`, "invalid_json", "", "at byte"},
		{chat, `[1]`, "invalid_json", "", "an array"},
		{chat, `"x"`, "invalid_json", "", "a string"},
		{chat, `7`, "invalid_json", "", "a number"},
		{chat, `null`, "invalid_json", "", "null"},
		{chat, strings.Repeat("[", 20000), "invalid_json", "", "depth"},
		{chat, "{\"model\":\"\xff\"}", "invalid_utf8", "", "byte 10 is 0xff"},
		{chat, "{\"model\":\"a\xe2\x82\"}", "invalid_utf8", "", "byte 11 is 0xe2"},
		{chat, message(`{"role":"user","content":"\ud800"}`), "invalid_utf8", "", `\ud800`},
		{chat, message(`{"role":"user","content":"\udc00\ud800"}`), "invalid_utf8", "", `\udc00`},
		{chat, message(`{"role":"user","content":"\ud800\n"}`), "invalid_utf8", "", `\ud800`},
		{chat, `{}`, "missing_required_parameter", "model", "needed"},
		{chat, `{"model":""}`, "missing_required_parameter", "model", "needed"},
		{chat, `{"model":null}`, "missing_required_parameter", "model", "needed"},
		{chat, `{"model":7}`, "invalid_type", "model", "a number; it must be a string"},
		{chat, `{"model":"m\u0000"}`, "invalid_value", "model", "NUL at byte 1"},
		{chat, `{"model":"m"}`, "missing_required_parameter", "messages", "at least one"},
		{chat, `{"model":"m","messages":[]}`, "missing_required_parameter", "messages", "at least one"},
		{chat, `{"model":"m","messages":"hi"}`, "invalid_type", "messages", "a string; it must be an array"},
		{chat, message(`"hi"`), "invalid_type", "messages[0]", "an object"},
		{chat, message(`null`), "invalid_type", "messages[0]", "an object"},
		{chat, message(`{}`), "missing_required_parameter", "messages[0].role", "needed"},
		{chat, message(`{"role":"user"}`), "missing_required_parameter", "messages[0].content", "needed"},
		{chat, message(`{"role":"user","content":null}`), "missing_required_parameter", "messages[0].content", "needed"},
		{chat, message(`{"role":"user","content":7}`), "invalid_type", "messages[0].content", "text parts"},
		{chat, message(`{"role":"user","content":"a\u0000"}`), "invalid_value", "messages[0].content", "NUL at byte 1"},
		{chat, message(`{"role":"robot","content":"a"}`), "invalid_value", "messages[0].role", "robot"},
		{chat, message(`{"role":"tool","content":"a"}`), "unsupported_parameter", "messages[0].role", "tool calling"},
		{chat, message(`{"role":"user","content":"a","name":"bob"}`), "unsupported_parameter", "messages[0].name", "not supported"},
		{chat, message(`{"role":"user","content":"a"},{"role":"assistant","content":"b","tool_calls":[{}]}`), "unsupported_parameter", "messages[1].tool_calls", "not supported"},
		{chat, message(`{"role":"user","content":["a"]}`), "invalid_type", "messages[0].content[0]", "an object"},
		{chat, message(`{"role":"user","content":[{}]}`), "missing_required_parameter", "messages[0].content[0].type", "needed"},
		{chat, message(`{"role":"user","content":[{"type":"text"}]}`), "missing_required_parameter", "messages[0].content[0].text", "needed"},
		{chat, message(`{"role":"user","content":[{"type":"text","text":7}]}`), "invalid_type", "messages[0].content[0].text", "a string"},
		{chat, message(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}`), "unsupported_parameter", "messages[0].content[1].type", "image_url"},
		{chat, message(`{"role":"user","content":[{"type":"input_audio"}]}`), "unsupported_parameter", "messages[0].content[0].type", "input_audio"},

		{text, `{"model":"m"}`, "missing_required_parameter", "prompt", "needed"},
		{text, prompt(`7`), "invalid_type", "prompt", "an array"},
		{text, prompt(`[]`), "invalid_value", "prompt", "empty"},
		{text, prompt(`[[]]`), "invalid_value", "prompt[0]", "empty"},
		{text, prompt(`["a","b"]`), "unsupported_parameter", "prompt", "2 prompts"},
		{text, prompt(`[[1],[2]]`), "unsupported_parameter", "prompt", "2 prompts"},
		{text, prompt(`[1,"a"]`), "invalid_value", "prompt[1]", "token id"},
		{text, prompt(`[1,-2]`), "invalid_value", "prompt[1]", "-2 is not a token id"},
		{text, prompt(`[1,2147483648]`), "invalid_value", "prompt[1]", "token id"},
		{text, prompt(`[1,1.5]`), "invalid_value", "prompt[1]", "token id"},
		{text, prompt(`[[1,null]]`), "invalid_value", "prompt[0][1]", "token id"},
		{text, prompt(`[{}]`), "invalid_type", "prompt[0]", "an object"},
		{text, prompt(`["a\u0000"]`), "invalid_value", "prompt[0]", "NUL"},
		{text, `{"model":"m","prompt":"a","logprobs":true}`, "invalid_type", "logprobs", "integer"},
		{text, `{"model":"m","prompt":"a","logprobs":21}`, "invalid_value", "logprobs", "between 0 and 20"},
		{text, `{"model":"m","prompt":"a","echo":true}`, "unsupported_parameter", "echo", "false"},
		{text, `{"model":"m","prompt":"a","suffix":"b"}`, "unsupported_parameter", "suffix", "not supported"},
		{text, `{"model":"m","prompt":"a","best_of":2}`, "unsupported_parameter", "best_of", "1"},

		{chat, with(`"max_tokens":0`), "invalid_value", "max_tokens", "0 is not between 1"},
		{chat, with(`"max_tokens":-1`), "invalid_value", "max_tokens", "-1"},
		{chat, with(`"max_tokens":1e9`), "invalid_type", "max_tokens", "not an integer"},
		{chat, with(`"max_tokens":99999999999999999999`), "invalid_value", "max_tokens", "not between"},
		{chat, with(`"max_tokens":"9"`), "invalid_type", "max_tokens", "a string"},
		{chat, with(`"max_tokens":1.5`), "invalid_type", "max_tokens", "1.5 is not an integer"},
		{chat, with(`"max_tokens":1,"max_completion_tokens":2`), "invalid_value", "max_completion_tokens", "max_tokens is 1"},
		{chat, with(`"temperature":2.1`), "invalid_value", "temperature", "2.1 is not between 0 and 2"},
		{chat, with(`"temperature":-0.1`), "invalid_value", "temperature", "-0.1"},
		{chat, with(`"temperature":1e999`), "invalid_value", "temperature", "1e999"},
		{chat, with(`"temperature":"hot"`), "invalid_type", "temperature", "a string; it must be a number"},
		{chat, with(`"temperature":true`), "invalid_type", "temperature", "a boolean"},
		{chat, with(`"top_p":0`), "invalid_value", "top_p", "above"},
		{chat, with(`"top_p":1.01`), "invalid_value", "top_p", "1.01"},
		{chat, with(`"min_p":2`), "invalid_value", "min_p", "2"},
		{chat, with(`"top_k":-2`), "invalid_value", "top_k", "-2"},
		{chat, with(`"seed":1.5`), "invalid_type", "seed", "integer"},
		{chat, with(`"frequency_penalty":3`), "invalid_value", "frequency_penalty", "3"},
		{chat, with(`"presence_penalty":-3`), "invalid_value", "presence_penalty", "-3"},
		{chat, with(`"logprobs":1`), "invalid_type", "logprobs", "true or false"},
		{chat, with(`"top_logprobs":2`), "invalid_value", "top_logprobs", "logprobs is not true"},
		{chat, with(`"logprobs":true,"top_logprobs":21`), "invalid_value", "top_logprobs", "21"},
		{chat, with(`"stream":"yes"`), "invalid_type", "stream", "true or false"},
		{chat, with(`"stream_options":{"include_usage":true}`), "invalid_value", "stream_options", "stream is not true"},
		{chat, with(`"stream":true,"stream_options":[]`), "invalid_type", "stream_options", "an object"},
		{chat, with(`"stream":true,"stream_options":{"include_usage":1}`), "invalid_type", "stream_options.include_usage", "true or false"},
		{chat, with(`"stream":true,"stream_options":{"continuous_usage_stats":true}`), "unsupported_parameter", "stream_options.continuous_usage_stats", "not supported"},
		{chat, with(`"stop":7`), "invalid_type", "stop", "a string"},
		{chat, with(`"stop":""`), "invalid_value", "stop", "empty"},
		{chat, with(`"stop":["a",""]`), "invalid_value", "stop[1]", "empty"},
		{chat, with(`"stop":["a",7]`), "invalid_type", "stop[1]", "a string"},
		{chat, with(`"stop":["a","b","c","d","e"]`), "invalid_value", "stop", "5 strings; 4"},
		{chat, with(`"stop":"` + strings.Repeat("x", MaxStopBytes+1) + `"`), "invalid_value", "stop", "1025 bytes; 1024"},
		{chat, with(`"user":7`), "invalid_type", "user", "a string"},
		{chat, with(`"reasoning_effort":"huge"`), "invalid_value", "reasoning_effort", "huge"},
		{chat, with(`"reasoning":{"effort":7}`), "invalid_type", "reasoning.effort", "a string"},
		{chat, with(`"reasoning":{"exclude":true}`), "unsupported_parameter", "reasoning.exclude", "not supported"},
		{chat, with(`"reasoning":{"max_tokens":-1}`), "invalid_value", "reasoning.max_tokens", "-1"},
		{chat, with(`"thinking_token_budget":-1`), "invalid_value", "thinking_token_budget", "-1"},
		{chat, with(`"chat_template_kwargs":7`), "invalid_type", "chat_template_kwargs", "an object"},
		{chat, with(`"chat_template_kwargs":{"a":"` + strings.Repeat("x", maxKwargBytes) + `"}`), "invalid_value", "chat_template_kwargs.a", "16384 bytes"},
		{chat, with(`"chat_template_kwargs":{"thinking":1}`), "invalid_type", "chat_template_kwargs.thinking", "true or false"},
		{chat, with(`"enable_thinking":1`), "invalid_type", "enable_thinking", "true or false"},
		{chat, with(`"thinking":{"type":"maybe"}`), "invalid_value", "thinking.type", "maybe"},
		{chat, with(`"thinking":{"type":"enabled","budget_tokens":-1}`), "invalid_value", "thinking.budget_tokens", "-1"},
		{chat, with(`"service_tier":"batch"`), "invalid_value", "service_tier", `"batch" is none of`},
		{chat, with(`"service_tier":""`), "invalid_value", "service_tier", `"" is none of`},
		{text, `{"model":"m","prompt":"a","service_tier":1}`, "invalid_type", "service_tier", "a number"},
		{chat, with(`"thinking_budget":-2`), "invalid_value", "thinking_budget", "-2"},
		{chat, with(`"thinking_budget":5,"thinking_token_budget":6`), "invalid_value", "thinking_budget", "thinking_token_budget is 6"},
		{chat, with(`"enable_thinking":true,"reasoning_effort":"none"`), "invalid_value", "enable_thinking", "reasoning_effort"},
		{chat, with(`"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low"`), "invalid_value", "chat_template_kwargs.enable_thinking", "reasoning_effort"},
		{chat, with(`"enable_thinking":true,"thinking_token_budget":0`), "invalid_value", "thinking_token_budget", "enable_thinking"},
		{chat, with(`"reasoning":{"effort":"low"},"reasoning_effort":"high"`), "invalid_value", "reasoning.effort", "high"},
		{chat, with(`"include_reasoning":false`), "unsupported_parameter", "include_reasoning", "true"},
		{chat, with(`"separate_reasoning":false`), "unsupported_parameter", "separate_reasoning", "true"},
		{chat, with(`"top_n_sigma":2`), "unsupported_parameter", "top_n_sigma", "-1"},
		{chat, message(`{"role":"assistant","content":"a","prefix":true}`), "unsupported_parameter", "messages[0].prefix", "false"},
		{text, `{"model":"m","prompt":"a","reasoning_effort":"low"}`, "unsupported_parameter", "reasoning_effort", "chats"},
		{text, `{"model":"m","prompt":"a","chat_template_kwargs":{}}`, "unsupported_parameter", "chat_template_kwargs", "chats"},
		{chat, with(`"chat_template_kwargs":{"enable_thinking":"no"}`), "invalid_type", "chat_template_kwargs.enable_thinking", "true or false"},
	} {
		b := saying()
		w := post(t, newFront(t, Config{Backend: b}), c.path, c.body)
		e := errorIn(t, w.Body.Bytes())
		if w.Code != http.StatusBadRequest || e.Code != c.code || e.Param != c.param || e.Type != typeInvalid || !strings.Contains(e.Message, c.words) {
			t.Errorf("%.90s\n got %d %s, parameter %q: %s\nwant %d %s, parameter %q: …%s…", c.body, w.Code, e.Code, e.Param, e.Message, http.StatusBadRequest, c.code, c.param, c.words)
		}
		if b.asked() != nil {
			t.Errorf("%.90s reached the backend", c.body)
		}
	}
}

// asking is a value that no row of refusals takes for "nothing is asked for".
var asking = map[string]string{
	"n": "2", "tools": `[{"type":"function"}]`, "response_format": `{"type":"json_object"}`, "modalities": `["text","audio"]`,
	"repetition_penalty": "1.1", "ignore_eos": "true", "id_slot": "0", "skip_special_tokens": "false",
}

func TestEachUnsupportedParameterIsRefusedOnlyWhenItAsksForSomething(t *testing.T) {
	f := newFront(t, Config{Backend: saying()})
	for _, r := range refusals {
		value := asking[r.name]
		if value == "" {
			value = `"something"`
		}
		w := post(t, f, chatPath, hello+`,"`+r.name+`":`+value+`}`)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %s is taken", r.name, value)
			continue
		}
		if e := errorIn(t, w.Body.Bytes()); e.Param != r.name || e.Code != "unsupported_parameter" {
			t.Errorf("%s: %+v", r.name, e)
		}
		for _, off := range append(r.off, nil) {
			if w := post(t, f, chatPath, hello+`,"`+r.name+`":`+jsonOf(t, off)+`}`); w.Code != http.StatusOK {
				t.Errorf("%s: %v is refused: %s", r.name, off, w.Body)
			}
		}
	}
}

func TestRequestsAreReadWithTheDefaultsOfTheAPI(t *testing.T) {
	seed, yes, no := int64(-3), true, false
	base := Request{Model: "m", Chat: true, Messages: []Message{{Role: "user", Content: "hi"}}, Temperature: 1, TopP: 1, LogProbs: -1}
	with := func(change func(*Request)) Request { r := base; change(&r); return r }
	text := func(change func(*Request)) Request {
		return with(func(r *Request) { r.Chat, r.Messages, r.MaxTokens = false, nil, defaultCompletionTokens; change(r) })
	}
	for body, want := range map[string]Request{
		hello + `}`: base,
		hello + `,"unknown":{"a":[1]},"user":"u","metadata":{"k":"v"},"temperature":null,"n":1,"tools":[],"prompt_cache_key":"k"}`: base,
		hello + `,"service_tier":"auto"}`:                    base,
		hello + `,"service_tier":"default"}`:                 base,
		hello + `,"service_tier":"priority"}`:                base,
		hello + `,"service_tier":"scale"}`:                   base,
		hello + `,"service_tier":null}`:                      base,
		hello + `,"service_tier":"flex"}`:                    with(func(r *Request) { r.Background = true }),
		hello + `,"max_tokens":7}`:                           with(func(r *Request) { r.MaxTokens = 7 }),
		hello + `,"max_completion_tokens":7,"max_tokens":7}`: with(func(r *Request) { r.MaxTokens = 7 }),
		hello + `,"temperature":0,"top_p":0.5,"min_p":0.1,"top_k":40,"seed":-3,"frequency_penalty":-2,"presence_penalty":2}`: with(func(r *Request) {
			r.Temperature, r.TopP, r.MinP, r.TopK, r.Seed, r.FrequencyPenalty, r.PresencePenalty = 0, 0.5, 0.1, 40, &seed, -2, 2
		}),
		hello + `,"top_k":-1}`:                                          base,
		hello + `,"logprobs":true}`:                                     with(func(r *Request) { r.LogProbs = 0 }),
		hello + `,"logprobs":true,"top_logprobs":20}`:                   with(func(r *Request) { r.LogProbs = 20 }),
		hello + `,"logprobs":false,"top_logprobs":0}`:                   base,
		hello + `,"reasoning_effort":"none"}`:                           with(func(r *Request) { r.Think = &no }),
		hello + `,"reasoning_effort":"high"}`:                           with(func(r *Request) { r.Think, r.Effort = &yes, "high" }),
		hello + `,"reasoning":{"effort":"low"},"enable_thinking":true}`: with(func(r *Request) { r.Think, r.Effort = &yes, "low" }),
		hello + `,"enable_thinking":false,"reasoning_effort":"none"}`:   with(func(r *Request) { r.Think = &no }),
		hello + `,"thinking":{"type":"enabled","budget_tokens":9}}`:     with(func(r *Request) { r.Think, r.MaxThink = &yes, 9 }),
		hello + `,"thinking":{"type":"disabled"}}`:                      with(func(r *Request) { r.Think = &no }),
		hello + `,"thinking_budget":-1,"reasoning_budget":5}`:           with(func(r *Request) { r.MaxThink = 5 }),
		hello + `,"chat_template_kwargs":{"thinking":true,"reasoning_effort":"low","date": [1, "x"],"b":null}}`: with(func(r *Request) {
			r.Think, r.Effort, r.Template = &yes, "low", map[string]json.RawMessage{"date": json.RawMessage(`[1,"x"]`)}
		}),
		`{"model":"m","prompt":"a","thinking_token_budget":0}`:         text(func(r *Request) { r.Prompt, r.Think = "a", &no }),
		`{"model":"m","prompt":"a","thinking_token_budget":3}`:         text(func(r *Request) { r.Prompt, r.MaxThink = "a", 3 }),
		hello + `,"chat_template_kwargs":{"enable_thinking":false}}`:   with(func(r *Request) { r.Think = &no }),
		hello + `,"thinking_token_budget":100}`:                        with(func(r *Request) { r.MaxThink = 100 }),
		hello + `,"thinking_token_budget":0}`:                          with(func(r *Request) { r.Think = &no }),
		hello + `,"reasoning":{"max_tokens":100,"enabled":true}}`:      with(func(r *Request) { r.MaxThink, r.Think = 100, &yes }),
		`{"model":"m","messages":[{"role":"developer","content":""}]}`: with(func(r *Request) { r.Messages = []Message{{Role: "system", Content: ""}} }),
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"\ud83d\ude00\\ud800"}]},{"role":"assistant","content":"b","reasoning_content":"c","tool_calls":null}]}`: with(func(r *Request) {
			r.Messages = []Message{{Role: "user", Content: "a\n😀\\ud800"}, {Role: "assistant", Content: "b", Reasoning: "c"}}
		}),
		`{"model":"m","prompt":"a"}`:                           text(func(r *Request) { r.Prompt = "a" }),
		`{"model":"m","prompt":["a"],"max_tokens":3}`:          text(func(r *Request) { r.Prompt, r.MaxTokens = "a", 3 }),
		`{"model":"m","prompt":[1,2]}`:                         text(func(r *Request) { r.PromptTokens = []int32{1, 2} }),
		`{"model":"m","prompt":[[2147483647]],"logprobs":0}`:   text(func(r *Request) { r.PromptTokens, r.LogProbs = []int32{2147483647}, 0 }),
		`{"model":"org/large","prompt":"","stop":["a","b\n"]}`: text(func(r *Request) { r.Model = "org/large" }),
	} {
		path := completionsPath
		if want.Chat {
			path = chatPath
		}
		b := saying()
		w := post(t, newFront(t, Config{Backend: b}), path, body)
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
			continue
		}
		got := *b.asked()
		if !strings.HasPrefix(got.ID, map[bool]string{true: "chatcmpl-", false: "cmpl-"}[want.Chat]) || got.ID != w.Header().Get("X-Request-Id") {
			t.Errorf("id %q, X-Request-Id %q", got.ID, w.Header().Get("X-Request-Id"))
		}
		if got.ID = ""; !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", body, got, want)
		}
	}
}

func TestAForwardedRequestSaysSoAndHasNoDefaultLength(t *testing.T) {
	b := saying()
	post(t, newFront(t, Config{Backend: b}), completionsPath, `{"model":"m","prompt":"a"}`, HopHeader, "1")
	if r := b.asked(); !r.Hop || r.MaxTokens != 0 {
		t.Errorf("%+v", r)
	}
}

func TestFieldsThatNothingKnowsAreNamedInTheAnswer(t *testing.T) {
	many := hello
	for i := range 40 {
		many += fmt.Sprintf(`,"z%02d":1`, i)
	}
	for body, want := range map[string][]string{
		hello + `}`: nil, hello + `,"user":"u","temperature":1,"n":1,"stop":null}`: nil,
		hello + `,"metadata":{},"frobnicate":true}`:      {"frobnicate", "metadata"},
		hello + `,"` + strings.Repeat("x", 500) + `":1}`: {strings.Repeat("x", maxIgnoredName) + "…"},
		many + "}": {"z00", "z01", "z02", "z03", "z04", "z05", "z06", "z07", "z08", "z09", "z10", "z11", "z12", "z13", "z14", "z15"},
	} {
		w := post(t, newFront(t, Config{Backend: saying()}), chatPath, body)
		var got struct{ Meridian struct{ Ignored []string } }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatal(err, w.Body)
		}
		if !slices.Equal(got.Meridian.Ignored, want) {
			t.Errorf("%.80s: ignored %q, want %q", body, got.Meridian.Ignored, want)
		}
	}
}

func TestABodyAboveTheLimitIsRefused(t *testing.T) {
	b := saying()
	f := newFront(t, Config{Backend: b})
	body := func(n int) string {
		const frame = `{"model":"m","prompt":""}`
		return `{"model":"m","prompt":"` + strings.Repeat("x", n-len(frame)) + `"}`
	}
	w := post(t, f, completionsPath, body(MaxBody+1))
	if e := errorIn(t, w.Body.Bytes()); w.Code != http.StatusRequestEntityTooLarge || e.Code != "request_too_large" || !strings.Contains(e.Message, strconv.Itoa(MaxBody)) {
		t.Errorf("%d %+v", w.Code, e)
	}
	if w := post(t, f, completionsPath, body(MaxBody)); w.Code != http.StatusOK {
		t.Errorf("a body of exactly the limit: %d %.200s", w.Code, w.Body)
	}
}

func TestOnlyPlainJSONIsTaken(t *testing.T) {
	f := newFront(t, Config{Backend: saying()})
	for _, c := range []struct {
		name, value string
		status      int
	}{
		{"Content-Type", "application/json; charset=utf-8", 200}, {"Content-Type", "text/plain", 415}, {"Content-Type", "a/b/c", 415},
		{"Content-Type", "multipart/form-data; boundary=x", 415}, {"Content-Encoding", "gzip", 415}, {"Content-Encoding", "identity", 200},
	} {
		if w := post(t, f, chatPath, hello+"}", c.name, c.value); w.Code != c.status {
			t.Errorf("%s: %s: %d %s", c.name, c.value, w.Code, w.Body)
		}
	}
}

// Whatever comes: an answer in the API's form, and what reaches the backend is
// within all bounds.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{hello + "}", hello + `,"stop":["a","b"],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","prompt":[[1,2,3]],"logprobs":5,"max_tokens":9}`, `{"model":"m","prompt":"\ud83d\ude00"}`, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`,
		`{"n":2}`, "{\"\xff\":1}", `[`, `{"model":"m","reasoning":{"effort":"low","max_tokens":3}}`} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		a, bad := parse(body, chat, false)
		if bad != nil {
			if a != nil || bad.Status != http.StatusBadRequest || bad.Message == "" || bad.Code == "" {
				t.Fatalf("%+v, %+v", a, bad)
			}
			errorIn(t, bad.encode())
			return
		}
		if a.Model == "" || a.Temperature < 0 || a.Temperature > 2 || a.TopP <= 0 || a.TopP > 1 || a.LogProbs < -1 || a.LogProbs > MaxTop || len(a.stops) > MaxStops || a.MaxTokens < 0 || a.MaxThink < 0 || a.TopK < 0 {
			t.Fatalf("%+v", a)
		}
		if chat == (len(a.Messages) == 0) || strings.Contains(fmt.Sprint(a.Messages, a.Prompt, a.stops), "\x00") {
			t.Fatalf("%+v", a)
		}
	})
}

// The answer names the tier that was used, where the request names one.
func TestTheAnswerNamesTheTierThatWasUsed(t *testing.T) {
	f := newFront(t, Config{Backend: saying(words("a")...)})
	for tier, want := range map[string]string{"auto": "default", "default": "default", "priority": "default", "scale": "default", "flex": "flex"} {
		for _, more := range []string{"", `,"stream":true`} {
			w := post(t, f, chatPath, hello+`,"service_tier":"`+tier+`"`+more+`}`)
			if said := `"service_tier":"` + want + `"`; w.Code != 200 || !strings.Contains(w.Body.String(), said) || strings.Count(w.Body.String(), "service_tier") != strings.Count(w.Body.String(), said) {
				t.Errorf("%s%s: %d %s", tier, more, w.Code, w.Body)
			}
		}
	}
	if w := post(t, f, chatPath, hello+"}"); strings.Contains(w.Body.String(), "service_tier") {
		t.Errorf("a request that names none: %s", w.Body)
	}
}
