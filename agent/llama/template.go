package llama

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"meridian/adapters/llamacpp"
	"meridian/agent/openai"
)

// template is what a server's chat template knows of thinking, found by trying:
// what changes the rendering is known.
type template struct {
	source string // empty: the server does not tell it
	toggle string // the variable that switches thinking; empty: there is none
	effort bool   // it has reasoning_effort
}

// toggles are the names under which templates know the switch of thinking.
var toggles = []string{"enable_thinking", "thinking"}

const effortVariable = "reasoning_effort"

// learnTemplate tries the template on a chat of one message. A template that
// cannot render it knows nothing.
func (s *server) learnTemplate(ctx context.Context, source string) {
	s.template = template{source: source}
	probe := []llamacpp.Message{{Role: "user", Content: "a"}}
	differs := func(name, one, other string) bool {
		a, err1 := s.api.ApplyTemplate(ctx, probe, map[string]json.RawMessage{name: json.RawMessage(one)})
		b, err2 := s.api.ApplyTemplate(ctx, probe, map[string]json.RawMessage{name: json.RawMessage(other)})
		return err1 == nil && err2 == nil && a != b
	}
	for _, name := range toggles {
		if differs(name, "true", "false") {
			s.template.toggle = name
			break
		}
	}
	s.template.effort = differs(effortVariable, `"low"`, `"high"`)
}

// has says whether the template's source names a variable. Where nobody tells the
// source, it may.
func (t *template) has(name string) bool {
	if t.source == "" {
		return true
	}
	letter := func(r rune, size int) bool {
		return size > 0 && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r))
	}
	for rest := t.source; name != ""; {
		before, after, found := strings.Cut(rest, name)
		if !found {
			break
		}
		if !letter(utf8.DecodeLastRuneInString(before)) && !letter(utf8.DecodeRuneInString(after)) {
			return true
		}
		rest = after
	}
	return false
}

// prompt is a request's prompt, and what became of what it says of thinking.
type prompt struct {
	tokens []int32
	open   bool   // thinking goes on with the first decoded token
	budget int    // thinking tokens; below 0: the node's own
	asked  string // on, off, or a level of effort; empty: nothing
	by     string // who does it: the template, this node, or a budget of it
	opener string // who has opened thinking, if it is open
	kwargs []string
}

// effortBudgets are the thinking tokens that a level of effort stands for where
// the template does not know levels: those of Gemini's OpenAI-compatible API, and
// half of the smallest. The highest is the node's own bound.
var effortBudgets = map[string]int{"minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": -1}

// render makes the prompt of a request. What it asks of thinking and cannot have
// here is refused.
func (s *server) render(ctx context.Context, r *openai.Request, cfg *Config) (p *prompt, err error) {
	p = &prompt{budget: -1}
	if r.MaxThink > 0 {
		if !s.thinks() {
			return p, unsupported("thinking_token_budget", "this node knows no thinking markers of its model, so it cannot count thinking tokens")
		}
		p.budget = r.MaxThink
	}
	if r.Think != nil && !*r.Think {
		p.budget, p.asked = 0, "off"
	}
	if r.Chat {
		return p, s.renderChat(ctx, r, cfg, p)
	}
	if r.PromptTokens != nil {
		if err := s.known("prompt", r.PromptTokens); err != nil {
			return p, err
		}
		p.tokens = append(p.tokens, r.PromptTokens...)
		tail, err := s.api.Detokenize(ctx, p.tokens[max(0, len(p.tokens)-tailTokens):])
		if err != nil {
			return p, err
		}
		p.opens(s.models.EndsOpen(cfg.Name, tail), "prompt")
		return p, nil
	}
	p.tokens, err = s.api.Tokenize(ctx, r.Prompt, true, true)
	p.opens(s.models.EndsOpen(cfg.Name, r.Prompt), "prompt")
	return p, err
}

// tailTokens are enough to hold any marker, and white space after it.
const tailTokens = 64

// thinks says whether the node knows how its model's thinking begins and ends.
func (s *server) thinks() bool { return s.marks.StartText != "" && s.marks.EndText != "" }

func (p *prompt) opens(open bool, by string) {
	if open {
		p.open, p.opener = true, by
	}
}

// renderChat renders a chat by the model's template, with what the request says of
// thinking where the template has a word for it. What it has none for, this node
// does: it ends thinking at once, by a budget, or opens it.
func (s *server) renderChat(ctx context.Context, r *openai.Request, cfg *Config, p *prompt) error {
	kwargs, err := s.variables(r, p)
	if err != nil {
		return err
	}
	messages := make([]llamacpp.Message, len(r.Messages))
	for i, m := range r.Messages {
		messages[i] = llamacpp.Message{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning}
	}
	text, err := s.api.ApplyTemplate(ctx, messages, kwargs)
	if err != nil {
		return err
	}
	open, err := s.tailOpens(ctx, cfg.Name, messages, kwargs, text)
	if err != nil {
		return err
	}
	if p.tokens, err = s.api.Tokenize(ctx, text, true, true); err != nil {
		return err
	}
	p.opens(open, "template")
	on, off := r.Think != nil && *r.Think, r.Think != nil && !*r.Think
	switch {
	case off && s.template.toggle != "" && !open:
		p.by = "template"
	case off && s.thinks():
		p.by = "node"
	case off: // nothing is known that could be switched off
	case on && !open && s.template.toggle == "" && !s.thinks() && p.by == "":
		return unsupported("enable_thinking", "this node knows no thinking of its model: its chat template has no switch, and no markers are configured")
	case !open && s.thinks() && (cfg.Thinking.Open || on && s.template.toggle == "" && !s.template.effort):
		p.tokens = append(p.tokens, s.marks.Start...)
		p.opens(true, "node")
	}
	if on && p.by == "" {
		p.by = map[bool]string{true: "template", false: "node"}[p.opener != "node"]
	}
	return nil
}

// variables are those of the template that a request sets: its own, and what it
// says of thinking in the template's words.
func (s *server) variables(r *openai.Request, p *prompt) (map[string]json.RawMessage, error) {
	kwargs := map[string]json.RawMessage{}
	for name, v := range r.Template {
		if !s.template.has(name) {
			return nil, unsupported("chat_template_kwargs."+name, "the chat template of this model has no such variable")
		}
		kwargs[name] = v
		p.kwargs = append(p.kwargs, name)
	}
	if r.Think != nil && s.template.toggle != "" {
		kwargs[s.template.toggle] = json.RawMessage(fmt.Sprint(*r.Think))
	}
	if r.Effort == "" {
		if r.Think != nil && *r.Think {
			p.asked = "on"
		}
		return kwargs, nil
	}
	p.asked = r.Effort
	switch {
	case s.template.effort:
		kwargs[effortVariable] = json.RawMessage(fmt.Sprintf("%q", r.Effort))
		p.by = "template"
	case s.thinks():
		p.by = "budget"
		if n := effortBudgets[r.Effort]; n >= 0 && (p.budget < 0 || n < p.budget) {
			p.budget = n
		}
	default:
		return nil, unsupported(effortVariable, "the chat template of this model has no levels of effort, and this node knows no thinking markers to bound it by")
	}
	return kwargs, nil
}

// tailOpens says whether the template leaves thinking open: by what it adds after
// the last message, never by what a message says. To find that part, the chat is
// rendered once more with another last message.
func (s *server) tailOpens(ctx context.Context, model string, messages []llamacpp.Message, kwargs map[string]json.RawMessage, text string) (bool, error) {
	if len(messages) == 0 || !s.models.OpensAfter(model, text) {
		return false, nil // an open tail would be the last of the text
	}
	last := len(messages) - 1
	unlike := append([]llamacpp.Message(nil), messages...)
	stand := fmt.Sprintf("last%016xmessage", rand.Uint64()) // nobody's words
	unlike[last].Content = stand
	marked, err := s.api.ApplyTemplate(ctx, unlike, kwargs)
	if err != nil {
		return false, err
	}
	at := strings.LastIndex(marked, stand)
	if at < 0 || !strings.HasSuffix(text, marked[at+len(stand):]) {
		return s.models.EndsOpen(model, text), nil // a template that says other things for other words
	}
	tail := marked[at+len(stand):]
	if tail != "" || messages[last].Role != "assistant" {
		return s.models.OpensAfter(model, tail), nil
	}
	// The answer has begun with the last message. It is the model's own: what it
	// says of thinking holds, after what the template has put in front.
	said := messages[last].Content
	if strings.HasPrefix(strings.TrimSpace(said), s.marks.StartText) || strings.Contains(said, s.marks.EndText) {
		return s.models.OpensAfter(model, said), nil
	}
	return s.models.EndsOpen(model, strings.TrimSuffix(marked, stand)), nil
}

// unsupported is the refusal of what this node cannot do for its model.
func unsupported(param, text string) *openai.Error {
	return &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "unsupported_parameter", Param: param, Message: param + ": " + text}
}

// report is what is told of a request's thinking in its answer.
func (p *prompt) report(t *thought) map[string]any {
	m := map[string]any{}
	if p.asked != "" {
		m["asked"] = p.asked
		if p.by != "" {
			m["done_by"] = p.by
		}
	}
	if len(p.kwargs) > 0 {
		m["template_variables"] = p.kwargs
	}
	if p.budget >= 0 {
		m["budget"] = p.budget
	}
	switch {
	case p.opener != "":
		m["opened_by"] = p.opener
	case t != nil && t.Opened():
		m["opened_by"] = "model"
	}
	return m
}
