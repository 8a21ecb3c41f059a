package fakeserver_test

import (
	"fmt"
	"strings"
	"testing"

	"meridian/agent/llama/fakeserver"
)

// What was done of what a request asks of thinking stands in the answer.
func TestAnAnswerSaysWhatWasDoneOfThinking(t *testing.T) {
	yes := []string{"yes"}
	for _, c := range []struct {
		script fakeserver.Script
		keys   string
		more   string
		want   string // of meridian.thinking, as fmt prints a map
		think  bool
	}{
		{fakeserver.Script{Template: "opens", Answer: yes}, markers, `,"thinking_token_budget":3`, "map[budget:3 opened_by:template]", true},
		{fakeserver.Script{Template: "opens", Answer: yes}, markers, `,"enable_thinking":false`, "map[asked:off budget:0 done_by:node opened_by:template]", false},
		{fakeserver.Script{Template: "switch", Opening: []string{"<think>"}, Answer: yes}, markers, `,"enable_thinking":false`, "map[asked:off budget:0 done_by:template]", false},
		{fakeserver.Script{Template: "switch", Opening: []string{"<think>"}, Answer: yes}, markers, `,"enable_thinking":true,"thinking_budget":2`, "map[asked:on budget:2 done_by:template opened_by:model]", true},
		{fakeserver.Script{Template: "plain", Answer: yes}, markers, `,"enable_thinking":true,"thinking_budget":2`, "map[asked:on budget:2 done_by:node opened_by:node]", true},
		{fakeserver.Script{Template: "plain", Answer: yes}, markers, `,"reasoning_effort":"none"`, "map[asked:off budget:0 done_by:node]", false},
		{fakeserver.Script{Template: "opens", Answer: yes}, markers, `,"reasoning_effort":"low","max_tokens":5`, "map[asked:low budget:1024 done_by:budget opened_by:template]", true},
		{fakeserver.Script{Template: "opens", Answer: yes}, markers, `,"reasoning_effort":"high","thinking_token_budget":7`, "map[asked:high budget:7 done_by:budget opened_by:template]", true},
		{fakeserver.Script{Template: "effort", Answer: yes}, "", `,"reasoning_effort":"low"`, "map[asked:low done_by:template]", false},
		{fakeserver.Script{Template: "plain", Answer: yes}, "", `,"chat_template_kwargs":{"date":"today"}`, "map[template_variables:[date]]", false},
		{fakeserver.Script{Template: "plain", Answer: yes}, "", ``, "map[]", false},
	} {
		r := start(t, c.script, c.keys, "").chat(t, "hello", c.more)
		if got := fmt.Sprint(r.thinking); got != c.want || (r.think > 0) != c.think || r.status != 200 {
			t.Errorf("%s%s: %s, %d thinking tokens; want %s\n%s", c.script.Template, c.more, got, r.think, c.want, r.body)
		}
	}
}

// What this node cannot do for its model is refused by the name of the field.
func TestWhatCannotBeDoneOfThinkingIsRefused(t *testing.T) {
	plain := start(t, fakeserver.Script{Template: "plain", Answer: []string{"yes"}}, "", "")
	for _, c := range []struct{ more, param, words string }{
		{`,"enable_thinking":true`, "enable_thinking", "no switch"},
		{`,"reasoning_effort":"low"`, "reasoning_effort", "no levels"},
		{`,"thinking_token_budget":5`, "thinking_token_budget", "no thinking markers"},
		{`,"chat_template_kwargs":{"documents_mode":1}`, "chat_template_kwargs.documents_mode", "no such variable"},
		{`,"chat_template_kwargs":{"dat":1}`, "chat_template_kwargs.dat", "no such variable"},
	} {
		r := plain.chat(t, "hello", c.more)
		if r.status != 400 || r.param != c.param || !strings.Contains(r.message, c.words) {
			t.Errorf("%s: %d %s", c.more, r.status, r.body)
		}
	}
	if r := plain.chat(t, "hello", `,"enable_thinking":false`); r.status != 200 || r.text != "yes" {
		t.Errorf("off, of a model that is not known to think: %s", r.body)
	}
}

// An answer that the client has begun is the model's own.
func TestAnAnswerThatTheClientHasBegunGoesOn(t *testing.T) {
	n := start(t, fakeserver.Script{Template: "opens", Thinking: []string{"plan", "</think>"}, Answer: []string{"yes"}}, markers, "")
	r := n.ask(t, "/v1/chat/completions", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`)
	if r.text != "yes" || strings.TrimSpace(r.reasoning) != "plan" {
		t.Errorf("%s", r.body)
	}
}

// A text completion has no template; its prompt is the client's own, and so is a
// marker at its end.
func TestATextCompletionIsThinkingOnlyWhereItsPromptEndsSo(t *testing.T) {
	n := start(t, fakeserver.Script{Template: "plain", Answer: []string{"yes"}}, markers, "")
	for prompt, think := range map[string]bool{`what is <think> for`: false, "<|im_start|>assistant\\n<think>\\n": true} {
		r := n.ask(t, "/v1/completions", fmt.Sprintf(`"prompt":"%s","thinking_token_budget":2,"max_tokens":12`, prompt))
		if r.status != 200 || (r.think == 2) != think || (r.forced != "") != think {
			t.Errorf("%q: %s", prompt, r.body)
		}
	}
}
