package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Bounds of a request, beside those that the API states.
const (
	MaxStops     = 4
	MaxStopBytes = 1024
	MaxTop       = 20      // alternatives a token
	maxTokens    = 1 << 24 // of an answer, or of thinking
)

// defaultCompletionTokens is the API's default length of a text completion.
const defaultCompletionTokens = 16

// ask is a Request with what concerns the front only.
type ask struct {
	Request
	stream, usage bool
	tier          string // that the answer names; empty: the request named none
	stops         []string
	ignored       []string // members that nothing here knows, at most maxIgnored
}

// parse makes an ask of a body. What it refuses carries the name of the
// parameter.
func parse(body []byte, chat, hop bool) (*ask, *Error) {
	f, bad := decodeBody(body)
	if bad != nil {
		return nil, bad
	}
	a := &ask{Request: Request{Chat: chat, Hop: hop, LogProbs: -1}}
	a.Model = f.text("model")
	if a.Model == "" {
		f.fail("model", "missing_required_parameter", "it is needed; GET /v1/models lists those of this node")
	}
	f.refuse(refusals)
	if chat {
		a.readMessages(f)
	} else {
		a.readPrompt(f)
	}
	a.readLength(f)
	a.readTier(f)
	a.readSampling(f)
	a.readLogProbs(f)
	a.readThinking(f)
	a.readStream(f)
	a.readStops(f)
	f.text("user")
	if bad := f.failed(); bad != nil {
		return nil, bad
	}
	a.ignored = f.unread()
	return a, nil
}

func (a *ask) readMessages(f *fields) {
	list := f.list("messages")
	if len(list) == 0 {
		f.fail("messages", "missing_required_parameter", "at least one message is needed")
	}
	for i, raw := range list {
		m := f.objectOf(fmt.Sprintf("messages[%d]", i), raw)
		m.refuse(messageRefusals)
		a.Messages = append(a.Messages, Message{Role: m.role(), Content: m.content(), Reasoning: m.reasoning()})
		if f.failed() != nil {
			return
		}
	}
}

func (f *fields) role() string {
	switch role := f.text("role"); role {
	case "system", "user", "assistant":
		return role
	case "developer": // the API's newer name of system, which no chat template knows
		return "system"
	case "":
		f.fail("role", "missing_required_parameter", "it is needed: system, user or assistant")
	case "tool", "function":
		f.fail("role", "unsupported_parameter", "%q messages are not supported: there is no tool calling", role)
	default:
		f.fail("role", "invalid_value", "%q is none of system, developer, user, assistant", role)
	}
	return ""
}

// reasoning is what an assistant thought in an earlier turn, by either of its two
// names. The chat template keeps it or leaves it out.
func (f *fields) reasoning() string {
	text := f.text("reasoning_content")
	if other := f.text("reasoning"); text == "" {
		text = other
	}
	return text
}

// content is a string, or parts of which each is text. Parts become lines, as
// in vLLM.
func (f *fields) content() string {
	raw, ok := f.get("content")
	switch {
	case !ok:
		f.fail("content", "missing_required_parameter", "it is needed")
		return ""
	case kindOf(raw) == "a string":
		return f.textOf("content", raw)
	case kindOf(raw) != "an array":
		f.wrongType("content", raw, "a string or an array of text parts")
		return ""
	}
	var lines []string
	for i, raw := range f.list("content") {
		part := f.objectOf(fmt.Sprintf("content[%d]", i), raw)
		switch kind := part.text("type"); kind {
		case "text":
			if _, ok := part.get("text"); !ok {
				part.fail("text", "missing_required_parameter", "it is needed")
			}
			lines = append(lines, part.text("text"))
		case "":
			part.fail("type", "missing_required_parameter", "it is needed")
		default:
			part.fail("type", "unsupported_parameter", "%q parts are not supported; only text is", kind)
		}
	}
	return strings.Join(lines, "\n")
}

// readPrompt takes a string, ids, or an array of one of these.
func (a *ask) readPrompt(f *fields) {
	raw, ok := f.get("prompt")
	if !ok {
		f.fail("prompt", "missing_required_parameter", "it is needed")
		return
	}
	if kindOf(raw) == "a string" {
		a.Prompt = f.textOf("prompt", raw)
		return
	}
	list := f.list("prompt")
	switch {
	case f.failed() != nil:
	case len(list) == 0:
		f.fail("prompt", "invalid_value", "it is empty")
	case kindOf(list[0]) == "a number":
		a.PromptTokens = f.ids("prompt", list)
	case len(list) > 1:
		f.fail("prompt", "unsupported_parameter", "it has %d prompts; a request takes one", len(list))
	case kindOf(list[0]) == "a string":
		a.Prompt = f.textOf("prompt[0]", list[0])
	case kindOf(list[0]) == "an array":
		var inner []json.RawMessage
		if json.Unmarshal(list[0], &inner) != nil || len(inner) == 0 {
			f.fail("prompt[0]", "invalid_value", "it is empty")
			return
		}
		a.PromptTokens = f.ids("prompt[0]", inner)
	default:
		f.wrongType("prompt[0]", list[0], "a string, a token id or an array of token ids")
	}
}

func (f *fields) ids(name string, list []json.RawMessage) []int32 {
	ids := make([]int32, len(list))
	for i, raw := range list {
		if json.Unmarshal(raw, &ids[i]) != nil || ids[i] < 0 || string(raw) == "null" {
			f.fail(fmt.Sprintf("%s[%d]", name, i), "invalid_value", "%s is not a token id", clip(raw))
			return nil
		}
	}
	return ids
}

func (a *ask) readLength(f *fields) {
	old := f.integer("max_tokens", 0, 1, maxTokens)
	n := f.integer("max_completion_tokens", old, 1, maxTokens)
	if old != 0 && old != n {
		f.fail("max_completion_tokens", "invalid_value", "it is %d and max_tokens is %d; give one of them", n, old)
	}
	if n == 0 && !a.Chat && !a.Hop { // a node that forwards always means what it says
		n = defaultCompletionTokens
	}
	a.MaxTokens = int(n)
}

// Service tiers of the API. There are two here: flex, which may wait, and the others.
const tierFlex, tierDefault = "flex", "default"

// ServiceTiers are the values of service_tier.
var ServiceTiers = []string{"auto", tierDefault, tierFlex, "priority"}

func (a *ask) readTier(f *fields) {
	if _, ok := f.get("service_tier"); !ok {
		return
	}
	switch tier := f.text("service_tier"); tier {
	case tierFlex:
		a.Background, a.tier = true, tierFlex
	case "auto", tierDefault, "priority", "scale":
		a.tier = tierDefault
	default:
		f.fail("service_tier", "invalid_value", "%q is none of auto, default, priority, scale (interactive) and flex (in the background)", tier)
	}
}

func (a *ask) readSampling(f *fields) {
	a.Temperature = f.number("temperature", 1, 0, 2, false)
	a.TopP = f.number("top_p", 1, 0, 1, true)
	a.MinP = f.number("min_p", 0, 0, 1, false)
	a.TopK = int(max(0, f.integer("top_k", 0, -1, math.MaxInt32))) // −1 is vLLM's word for all
	a.FrequencyPenalty = f.number("frequency_penalty", 0, -2, 2, false)
	a.PresencePenalty = f.number("presence_penalty", 0, -2, 2, false)
	if _, ok := f.get("seed"); ok {
		seed := f.integer("seed", 0, math.MinInt64, math.MaxInt64)
		a.Seed = &seed
	}
}

func (a *ask) readLogProbs(f *fields) {
	if !a.Chat {
		a.LogProbs = int(f.integer("logprobs", -1, 0, MaxTop))
		return
	}
	top := f.integer("top_logprobs", -1, 0, MaxTop)
	switch asked := f.boolean("logprobs", false); {
	case asked:
		a.LogProbs = int(max(top, 0))
	case top > 0:
		f.fail("top_logprobs", "invalid_value", "it is %d, and logprobs is not true", top)
	}
}

func (a *ask) readStream(f *fields) {
	a.stream = f.boolean("stream", false)
	if _, ok := f.get("stream_options"); !ok {
		return
	}
	if !a.stream {
		f.fail("stream_options", "invalid_value", "it is given, and stream is not true")
	}
	o := f.object("stream_options")
	o.refuse(streamRefusals)
	a.usage = o.boolean("include_usage", false)
}

func (a *ask) readStops(f *fields) {
	raw, ok := f.get("stop")
	if !ok {
		return
	}
	list := []json.RawMessage{raw}
	if kindOf(raw) == "an array" {
		list = f.list("stop")
	}
	if len(list) > MaxStops {
		f.fail("stop", "invalid_value", "it has %d strings; %d are allowed", len(list), MaxStops)
		return
	}
	for i, raw := range list {
		name := "stop"
		if len(list) > 1 {
			name = fmt.Sprintf("stop[%d]", i)
		}
		s := f.textOf(name, raw)
		switch {
		case s == "":
			f.fail(name, "invalid_value", "it is empty")
		case len(s) > MaxStopBytes:
			f.fail(name, "invalid_value", "it has %d bytes; %d are allowed", len(s), MaxStopBytes)
		}
		a.stops = append(a.stops, s)
	}
}
