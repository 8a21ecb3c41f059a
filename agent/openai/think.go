package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Bounds of chat_template_kwargs.
const (
	maxKwargs     = 32
	maxKwargBytes = 16 << 10 // of all values together
)

// thinking reads what a request says of its thinking. Servers have several words
// for the same, and a request may use more than one, as long as they agree.
type thinking struct {
	*ask
	f        *fields
	thinkBy  string // the member that said whether to think
	budgetBy string // the member that said for how many tokens
	budget   int64
}

// readThinking takes three things: whether to think, how hard, and for how many
// tokens at most; and variables of the chat template.
func (a *ask) readThinking(f *fields) {
	t := &thinking{ask: a, f: f}
	if a.Chat {
		t.readSwitches()
	} else {
		t.refuseSwitches()
	}
	for _, name := range []string{"thinking_token_budget", "thinking_budget", "thinking_budget_tokens", "reasoning_budget", "max_thinking_tokens"} {
		low := int64(-1) // llama.cpp's word for no bound
		if name == "thinking_token_budget" {
			low = 0
		}
		t.bound(f, name, low)
	}
	if t.budgetBy == "" {
		return
	}
	if a.MaxThink = int(t.budget); t.budget == 0 { // no token of thinking is no thinking
		t.set(f, t.budgetBy, false)
	}
}

// switches are members of a chat only: a text completion has no template.
var switches = []string{"reasoning_effort", "reasoning", "enable_thinking", "thinking", "chat_template_kwargs"}

func (t *thinking) refuseSwitches() {
	for _, name := range switches {
		if _, ok := t.f.get(name); ok {
			t.f.fail(name, "unsupported_parameter", "it is of chats: the prompt of a text completion goes to the model as it is, without a template")
		}
	}
}

func (t *thinking) readSwitches() {
	f := t.f
	t.effort(f, "reasoning_effort")
	reasoning := f.object("reasoning")
	reasoning.refuse(reasoningRefusals)
	t.effort(reasoning, "effort")
	t.boolean(reasoning, "enabled")
	t.bound(reasoning, "max_tokens", 0)
	t.boolean(f, "enable_thinking")
	t.object()
	t.kwargs()
}

// set notes whether to think. Two members that contradict each other are refused:
// one of them would be ignored.
func (t *thinking) set(f *fields, name string, think bool) {
	if t.Think != nil && *t.Think != think {
		f.fail(name, "invalid_value", "it says %s, and %s says the opposite", map[bool]string{true: "to think", false: "not to think"}[think], t.thinkBy)
		return
	}
	t.Think, t.thinkBy = &think, f.at+name
}

func (t *thinking) boolean(f *fields, name string) {
	if _, ok := f.get(name); ok {
		t.set(f, name, f.boolean(name, true))
	}
}

func (t *thinking) effort(f *fields, name string) {
	switch level := f.text(name); level {
	case "":
	case "none":
		t.set(f, name, false)
	case "minimal", "low", "medium", "high", "xhigh":
		if t.Effort != "" && t.Effort != level {
			f.fail(name, "invalid_value", "it is %q, and another member says %q", level, t.Effort)
		}
		t.Effort = level
		t.set(f, name, true)
	default:
		f.fail(name, "invalid_value", "%q is none of none, minimal, low, medium, high, xhigh", level)
	}
}

// bound reads a number of thinking tokens; below 0 there is none.
func (t *thinking) bound(f *fields, name string, low int64) {
	n := f.integer(name, -1, low, maxTokens)
	if n < 0 {
		return
	}
	if t.budgetBy != "" && t.budget != n {
		f.fail(name, "invalid_value", "it is %d, and %s is %d; give one of them", n, t.budgetBy, t.budget)
	}
	t.budget, t.budgetBy = n, f.at+name
}

// object reads {"type": "enabled", "budget_tokens": n}.
func (t *thinking) object() {
	if _, ok := t.f.get("thinking"); !ok {
		return
	}
	o := t.f.object("thinking")
	switch kind := o.text("type"); kind {
	case "enabled":
		t.set(o, "type", true)
	case "disabled":
		t.set(o, "type", false)
	case "", "auto", "adaptive": // as the node does by itself
	default:
		o.fail("type", "invalid_value", "%q is none of enabled, disabled, auto", kind)
	}
	t.bound(o, "budget_tokens", 0)
}

// kwargs reads variables of the chat template. Those that switch thinking are
// taken for what they mean, as the template at hand may have another name for it.
func (t *thinking) kwargs() {
	o, size := t.f.object("chat_template_kwargs"), 0
	for _, name := range slices.Sorted(maps.Keys(o.m)) {
		raw, ok := o.get(name)
		switch {
		case !ok:
		case name == "enable_thinking" || name == "thinking":
			t.boolean(o, name)
		case name == "reasoning_effort":
			t.effort(o, name)
		default:
			var b bytes.Buffer
			_ = json.Compact(&b, raw) // it was decoded before
			if size += b.Len(); size > maxKwargBytes {
				o.fail(name, "invalid_value", "the values of chat_template_kwargs have more than %d bytes", maxKwargBytes)
			}
			if t.Template == nil {
				t.Template = map[string]json.RawMessage{}
			}
			t.Template[name] = b.Bytes()
		}
	}
	if len(t.Template) > maxKwargs {
		t.f.fail("chat_template_kwargs", "invalid_value", "it has %d members; %d are allowed", len(o.m), maxKwargs)
	}
}
