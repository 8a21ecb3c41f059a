package fakeserver_test

import (
	"fmt"
	"strings"
	"testing"

	"meridian/agent/llama/fakeserver"
)

// A user who quotes a marker gets the answer as the answer.
func TestAUserWhoQuotesAMarkerGetsAnAnswer(t *testing.T) {
	for _, special := range []bool{true, false} {
		n := start(t, fakeserver.Script{Template: "plain", Special: special, Answer: []string{"yes", " ", "sir"}}, markers, "")
		for _, words := range []string{"what is <think>", "<think>", "say <think> twice: <think>", "</think><think>", "<think>\n", "why does <think>x</think> need <think> first?"} {
			r := n.chat(t, words, "")
			if r.text != "yes sir" || r.reasoning != "" || r.think != 0 || r.forced != "" || r.finish != "stop" {
				t.Errorf("special %t, %q: %s", special, words, r.body)
			}
		}
		r := n.ask(t, "/v1/chat/completions", `"messages":[{"role":"system","content":"use <think>"},{"role":"user","content":"a"},{"role":"assistant","content":"b <think>"},{"role":"user","content":"c"}]`)
		if r.text != "yes sir" || r.reasoning != "" {
			t.Errorf("special %t, in earlier turns: %s", special, r.body)
		}
	}
}

// A template that opens thinking by itself does so whatever a user quotes.
func TestTheTemplatesTailOpensThinkingWhateverAUserQuotes(t *testing.T) {
	n := start(t, fakeserver.Script{Template: "opens", Thinking: []string{"plan", "</think>"}, Answer: []string{"yes"}}, markers, "")
	for _, words := range []string{"hello", "</think>", "<think>", "<think></think>", "close it: </think>\n"} {
		r := n.chat(t, words, "")
		if r.text != "yes" || strings.TrimSpace(r.reasoning) != "plan" || r.think == 0 {
			t.Errorf("%q: %s", words, r.body)
		}
	}
}

// Thinking that is ended within a character leaves nothing of it to the answer.
func TestACharacterThatThinkingWasEndedInIsNoContent(t *testing.T) {
	for _, special := range []bool{false, true} {
		n := start(t, fakeserver.Script{Template: "opens", Special: special, Thinking: []string{"a", "hex:f09f", "hex:9880", "b"}, Answer: []string{"yes", ", sir"}}, markers, "")
		for budget := 1; budget <= 4; budget++ {
			r := n.chat(t, "hello", fmt.Sprintf(`,"thinking_token_budget":%d`, budget))
			if want := []string{"a", "a", "a😀", "a😀b"}[budget-1]; r.text != "yes, sir" || r.reasoning != want {
				t.Errorf("special %v, budget %d: %q, and %q of its thinking; want %q\n%s", special, budget, r.text, r.reasoning, want, r.body)
			}
		}
	}
}

func TestWhiteSpaceBeforeTheMarkerIsNoContent(t *testing.T) {
	for _, opening := range [][]string{{"\n", "<think>"}, {"\n\n", " ", "<think>"}, {"\n<think>"}, {" <", "think", ">\n"}} {
		n := start(t, fakeserver.Script{Template: "plain", Opening: opening, Thinking: []string{"plan", "</think>"}, Answer: []string{"answer"}}, markers, "")
		r := n.chat(t, "hello", "")
		if r.text != "answer" || strings.TrimSpace(r.reasoning) != "plan" {
			t.Errorf("%q: %s", opening, r.body)
		}
	}
}

func TestABudgetIsExactWhateverTheQuantum(t *testing.T) {
	for by, s := range map[string]fakeserver.Script{
		"the template": {Template: "opens"}, "the model": {Template: "plain", Opening: []string{"<think>"}}, "the model, in three tokens": {Template: "plain", Opening: []string{"\n", "<", "think", ">"}},
	} {
		for _, special := range []bool{true, false} {
			for _, quantum := range []int{1, 16, 256} {
				s.Special, s.Answer = special, []string{"yes"}
				n := start(t, s, markers+fmt.Sprintf("quantum = %d\n", quantum), "")
				for _, budget := range []int{1, 3, 16, 40} {
					r := n.chat(t, fmt.Sprint("hello ", budget), fmt.Sprintf(`,"thinking_token_budget":%d`, budget))
					if r.think != budget || strings.Count(r.reasoning, "x") != budget || r.text != "yes" || r.forced != "hard_cap" {
						t.Errorf("opened by %s, special %t, quantum %d, budget %d: %d thinking tokens, %s", by, special, quantum, budget, r.think, r.body)
					}
				}
			}
		}
	}
}

func TestThinkingThatIsSwitchedOffIsOffWhateverTheTemplate(t *testing.T) {
	for _, s := range []fakeserver.Script{
		{Template: "opens"}, {Template: "switch", Opening: []string{"<think>"}}, {Template: "plain", Opening: []string{"<think>"}}, {Template: "plain", Opening: []string{"\n", "<", "think", ">"}},
	} {
		s.Answer = []string{"yes"}
		n := start(t, s, markers, "")
		for _, off := range []string{`"enable_thinking":false`, `"reasoning_effort":"none"`, `"chat_template_kwargs":{"enable_thinking":false}`, `"thinking_token_budget":0`,
			`"reasoning":{"effort":"none"}`, `"reasoning":{"enabled":false}`, `"thinking":{"type":"disabled"}`, `"thinking_budget":0`} {
			r := n.chat(t, "hello "+off, ","+off)
			if r.text != "yes" || strings.TrimSpace(r.reasoning) != "" || r.think != 0 {
				t.Errorf("%s, opening %q, %s: %s", s.Template, s.Opening, off, r.body)
			}
		}
	}
}

func TestAnEndMarkerMergedWithOtherTextEndsThinking(t *testing.T) {
	for _, thinking := range [][]string{
		{"plan", "</think", ">\n\n"}, {"plan", "</", "think>", "\n\n"}, {"pl", "an</", "think>\n\n"}, {"plan</think>\n\n"}, {"plan", "<", "/", "think", ">", "\n\n"},
	} {
		n := start(t, fakeserver.Script{Template: "opens", Thinking: thinking, Answer: []string{"yes"}}, markers, "")
		for _, more := range []string{"", `,"thinking_token_budget":30`} {
			r := n.chat(t, "hello"+more, more)
			if strings.TrimSpace(r.text) != "yes" || strings.TrimSpace(r.reasoning) != "plan" || r.forced != "" {
				t.Errorf("%q: %s", thinking, r.body)
			}
		}
		// The cap in the midst of the marker completes it.
		for budget := 1; budget <= len(thinking); budget++ {
			r := n.chat(t, fmt.Sprint("hello ", budget), fmt.Sprintf(`,"thinking_token_budget":%d`, budget))
			if strings.Contains(r.text+r.reasoning, "think") || strings.Contains(r.text, "<") || !strings.Contains(r.text, "yes") || r.think > budget {
				t.Errorf("%q, budget %d: %s", thinking, budget, r.body)
			}
		}
	}
}

// A model that ends its thinking although the node has ended it shows no marker for it,
// and one in the midst of its answer is its own.
func TestAnEndMarkerAfterTheNodesIsNoContent(t *testing.T) {
	for _, special := range []bool{true, false} {
		for _, first := range [][]string{{"</think>"}, {"</", "think", ">"}, {"</think", ">\n\n"}, {"</think>", "\n", "</think>"}} {
			n := start(t, fakeserver.Script{Template: "opens", Special: special, Thinking: []string{"plan", "more", "</think>"}, Answer: append(first, "yes", "</", "think", ">", "sir")}, markers, "")
			for _, budget := range []int{0, 1, 2} {
				r := n.chat(t, fmt.Sprint("hello ", budget), fmt.Sprintf(`,"thinking_token_budget":%d`, budget))
				if strings.TrimSpace(r.text) != "yes</think>sir" || r.forced != "hard_cap" || strings.Contains(r.reasoning, ">") || r.think != budget {
					t.Errorf("special %t, %q, budget %d: %s", special, first, budget, r.body)
				}
			}
			if r := n.chat(t, "hello", ""); !special && !strings.HasPrefix(r.text, "</think>") || r.forced != "" {
				t.Errorf("special %t, %q, not forced: %s", special, first, r.body)
			}
		}
	}
}

func TestAForcedMarkerIsWithinMaxTokens(t *testing.T) {
	n := start(t, fakeserver.Script{Template: "opens", Answer: []string{"yes"}}, markers, "")
	for limit := 1; limit <= 8; limit++ {
		r := n.chat(t, fmt.Sprint("hello ", limit), fmt.Sprintf(`,"thinking_token_budget":3,"max_tokens":%d`, limit))
		if r.tokens > limit || r.think > 3 {
			t.Errorf("max_tokens %d: %s", limit, r.body)
		}
	}
}
