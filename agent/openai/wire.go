package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Chunk is one event of a stream, or a whole answer: both calls and both forms
// share it, as they share most of their members.
type Chunk struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
	Tier    string   `json:"service_tier,omitempty"` // of a request that names one

	// Meridian is ours: what the node says of the request, beside the finish
	// reason; on the way between nodes also each token as it is.
	Meridian json.RawMessage `json:"meridian,omitempty"`
}

// Choice is an answer or a part of it. There is one a chunk, or none in the
// chunk that has the usage.
type Choice struct {
	Index        int       `json:"index"`
	Text         *string   `json:"text,omitempty"`    // a text completion
	Delta        *ChatPart `json:"delta,omitempty"`   // a chat, streamed
	Message      *ChatPart `json:"message,omitempty"` // a chat, whole
	LogProbs     *LogProbs `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

// ChatPart is a message or the next piece of one.
type ChatPart struct {
	Role             string  `json:"role,omitempty"`
	Content          *string `json:"content,omitempty"`
	ReasoningContent *string `json:"reasoning_content,omitempty"`
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func usageOf(r Result) *Usage {
	u := &Usage{PromptTokens: r.Prompt, CompletionTokens: r.Completion, TotalTokens: r.Prompt + r.Completion}
	u.PromptDetails.CachedTokens, u.CompletionDetails.ReasoningTokens = r.Cached, r.Thinking
	return u
}

// LogProbs has the form of chats (Content) or of text completions (the rest).
type LogProbs struct {
	Content []ChatLogProb

	Tokens        []string
	TokenLogProbs []*float64
	TopLogProbs   []map[string]float64
	TextOffset    []int // in characters of the answer

	legacy bool
}

// ChatLogProb is one token of a chat.
type ChatLogProb struct {
	Token   string        `json:"token"`
	LogProb float64       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []ChatLogProb `json:"top_logprobs,omitempty"`
}

type legacyLogProbs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogProbs []*float64           `json:"token_logprobs"`
	TopLogProbs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

type chatLogProbs struct {
	Content []ChatLogProb `json:"content"`
}

// MarshalJSON writes the form of the call.
func (l *LogProbs) MarshalJSON() ([]byte, error) {
	if l.legacy {
		return json.Marshal(legacyLogProbs{l.Tokens, l.TokenLogProbs, l.TopLogProbs, l.TextOffset})
	}
	return json.Marshal(chatLogProbs{l.Content})
}

// UnmarshalJSON reads either form.
func (l *LogProbs) UnmarshalJSON(b []byte) error {
	var old legacyLogProbs
	var chat chatLogProbs
	if err := json.Unmarshal(b, &old); err != nil {
		return err
	}
	if err := json.Unmarshal(b, &chat); err != nil {
		return err
	}
	*l = LogProbs{Content: chat.Content, Tokens: old.Tokens, TokenLogProbs: old.TokenLogProbs,
		TopLogProbs: old.TopLogProbs, TextOffset: old.TextOffset, legacy: old.Tokens != nil}
	return nil
}

// leastLogProb stands for minus infinity, which JSON cannot say; the API has it too.
const leastLogProb = -9999

func finite(x float64) float64 {
	if math.IsNaN(x) || x < leastLogProb {
		return leastLogProb
	}
	return min(x, 0)
}

// tokenText shows a token's bytes. Part of a character is written as the API
// does, so that two such tokens differ.
func tokenText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	s.WriteString("bytes:")
	for _, c := range b {
		fmt.Fprintf(&s, `\x%02x`, c)
	}
	return s.String()
}

func chatLogProb(b []byte, p float64) ChatLogProb {
	l := ChatLogProb{Token: tokenText(b), LogProb: finite(p), Bytes: make([]int, len(b))}
	for i, c := range b {
		l.Bytes[i] = int(c)
	}
	return l
}

// add appends a token. A token that was not sampled has no probability; chats
// have no way to say that and leave it out.
func (l *LogProbs) add(e logged, top int) {
	alternatives := e.t.Top[:min(top, len(e.t.Top))]
	if !l.legacy {
		if !e.t.HasLogProb {
			return
		}
		c := chatLogProb(e.t.Bytes, e.t.LogProb)
		c.Top = []ChatLogProb{}
		for _, p := range alternatives {
			c.Top = append(c.Top, chatLogProb(p.Bytes, p.LogProb))
		}
		l.Content = append(l.Content, c)
		return
	}
	l.Tokens = append(l.Tokens, tokenText(e.t.Bytes))
	l.TextOffset = append(l.TextOffset, e.offset)
	var own *float64
	if e.t.HasLogProb {
		p := finite(e.t.LogProb)
		own = &p
	}
	l.TokenLogProbs = append(l.TokenLogProbs, own)
	if top == 0 {
		return
	}
	m := map[string]float64{}
	for _, p := range alternatives {
		m[tokenText(p.Bytes)] = finite(p.LogProb)
	}
	if own != nil { // the API adds the sampled token, were it unlikely
		m[tokenText(e.t.Bytes)] = *own
	}
	l.TopLogProbs = append(l.TopLogProbs, m)
}

// hopToken is a token on the way between nodes, in Chunk.Meridian.
type hopToken struct {
	ID       *int32    `json:"token_id"` // absent in a node's report
	Bytes    []byte    `json:"bytes,omitempty"`
	Thinking bool      `json:"thinking,omitempty"`
	Forced   bool      `json:"forced_token,omitempty"`
	LogProb  *float64  `json:"logprob,omitempty"`
	Top      []hopProb `json:"top,omitempty"`
}

type hopProb struct {
	ID      int32   `json:"id"`
	Bytes   []byte  `json:"bytes"`
	LogProb float64 `json:"logprob"`
}

func hopTokenOf(t *Token) hopToken {
	h := hopToken{ID: &t.ID, Bytes: t.Bytes, Thinking: t.Thinking, Forced: t.Forced}
	if t.HasLogProb {
		p := finite(t.LogProb)
		h.LogProb = &p
	}
	for _, p := range t.Top {
		h.Top = append(h.Top, hopProb{p.ID, p.Bytes, finite(p.LogProb)})
	}
	return h
}

func (h *hopToken) token() Token {
	t := Token{ID: *h.ID, Bytes: h.Bytes, Thinking: h.Thinking, Forced: h.Forced}
	if h.LogProb != nil {
		t.HasLogProb, t.LogProb = true, *h.LogProb
	}
	for _, p := range h.Top {
		t.Top = append(t.Top, TokenProb(p))
	}
	return t
}

// modelObject is an entry of GET /v1/models.
type modelObject struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len,omitempty"` // vLLM's name for it
}

type modelList struct {
	Object string        `json:"object"`
	Data   []modelObject `json:"data"`
}

func modelObjectOf(m Model) modelObject {
	return modelObject{ID: m.ID, Object: "model", Created: m.Created, OwnedBy: m.OwnedBy, MaxModelLen: m.Context}
}

// encodeJSON is json.Marshal that leaves <, > and & as they are: there is no
// HTML here, and code is full of them. It ends in a newline.
func encodeJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
