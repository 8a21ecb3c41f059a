package fakeserver

import (
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
)

// Script is what the fake's model file holds, as JSON.
type Script struct {
	// Template is the chat template: plain knows nothing of thinking; opens opens
	// it whatever it is told; switch opens nothing, and closes thinking where
	// enable_thinking is false; effort has reasoning_effort besides.
	Template string

	// Special makes one token of each marker, without text. Else they are three.
	Special bool

	// What the model says: before it thinks, as its thinking, which goes on for
	// ever with "x", and as its answer. One entry a token; without Opening it
	// thinks only where the prompt has opened it. "hex:" and digits are bytes, which
	// may be part of a character.
	Opening, Thinking, Answer []string

	// PrefillMS is how long a prompt takes, in milliseconds, with ten signs of
	// progress on the way for who asks for them.
	PrefillMS int

	// StepMS is how long a token takes, in milliseconds; each is sent when it is there.
	StepMS int

	// Saves is how many states of slots are saved before that fails; 0: it never does.
	Saves int
}

// Stalls is the alias of a server on which no prompt is ever done, while it answers
// everything else. It is no part of the script, which is the model's content.
const Stalls = "stalls"

// JSON is the model file.
func (s Script) JSON() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings marshal
	}
	return b
}

// read has the words that are written as bytes be those.
func (s *Script) read() error {
	for _, words := range [][]string{s.Opening, s.Thinking, s.Answer} {
		for i, w := range words {
			if digits, ok := strings.CutPrefix(w, "hex:"); ok {
				b, err := hex.DecodeString(digits)
				if err != nil {
					return err
				}
				words[i] = string(b)
			}
		}
	}
	return nil
}

const (
	start, end = "<think>", "</think>"
	turn       = "<|im_end|>\n"
	header     = "<|im_start|>"
	answering  = header + "assistant\n"
	endOfText  = "<|end|>"
)

// templates are what /props tells as the template's source: only the names of the
// variables in it matter.
var templates = map[string]string{
	"plain": "{{ messages }} {{ date }}", "opens": "{{ messages }}<think>", "switch": "{{ messages }} {% if enable_thinking is false %}",
	"effort": "{{ messages }} {% if enable_thinking is false %} {{ reasoning_effort }}",
}

type message struct {
	Role, Content string
	Reasoning     string `json:"reasoning_content"`
}

// render is the chat template.
func (s *Script) render(messages []message, kwargs map[string]any) string {
	var b strings.Builder
	if level, ok := kwargs["reasoning_effort"].(string); ok && s.Template == "effort" {
		b.WriteString(header + "system\nReasoning: " + level + turn)
	}
	if date, ok := kwargs["date"].(string); ok && s.Template == "plain" {
		b.WriteString(header + "system\n" + date + turn)
	}
	for _, m := range messages {
		b.WriteString(header + m.Role + "\n" + m.Content + turn)
	}
	b.WriteString(answering)
	switch think, told := kwargs["enable_thinking"].(bool); {
	case s.Template == "opens":
		b.WriteString(start + "\n")
	case told && !think && (s.Template == "switch" || s.Template == "effort"):
		b.WriteString(start + "\n\n" + end + "\n\n")
	}
	return b.String()
}

var pieces = regexp.MustCompile(`</?think>|<\|[a-z_]+\|>|[a-zA-Z]+|\n+| +|(?s).`)
var smaller = regexp.MustCompile(`</?|think|>`)

// tokenize cuts text into tokens.
func (s *Script) tokenize(text string) []string {
	var out []string
	for _, p := range pieces.FindAllString(text, -1) {
		if (p == start || p == end) && !s.Special {
			out = append(out, smaller.FindAllString(p, -1)...)
			continue
		}
		out = append(out, p)
	}
	return out
}

// next is the token that follows what has been said so far.
func (s *Script) next(said []string) string {
	text, opened, closed, ends := "", -1, -1, 0
	for i, p := range said {
		text += p
		if at := strings.LastIndex(text, answering); at >= 0 && len(text) == at+len(answering) {
			opened, closed, ends = -1, -1, i+1
		}
		after := text[max(0, strings.LastIndex(text, answering)):]
		if opened < 0 && strings.Contains(after, start) {
			opened = i + 1
		}
		if closed < 0 && opened >= 0 && strings.Contains(after, end) {
			closed = i + 1
		}
	}
	at := func(list []string, from int) (string, bool) {
		for from < len(said) && strings.TrimSpace(said[from]) == "" { // the template's own
			from++
		}
		n := len(said) - from
		if n < 0 || n >= len(list) {
			return "", false
		}
		return list[n], true
	}
	switch {
	case closed >= 0:
		if p, ok := at(s.Answer, closed); ok {
			return p
		}
		return endOfText
	case opened >= 0:
		if p, ok := at(s.Thinking, opened); ok {
			return p
		}
		return "x"
	}
	n := len(said) - ends
	if all := append(append([]string(nil), s.Opening...), s.Answer...); n < len(all) {
		return all[n]
	}
	return endOfText
}
