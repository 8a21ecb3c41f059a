package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// The codes of errors that Remote makes itself, with status 502 or, of silence, 504.
const (
	CodeUnreachable = "upstream_unreachable" // no connection, or it broke
	CodeBroken      = "upstream_broken"      // what came is not what it should be
	CodeSilent      = "upstream_silent"      // no sign of life
	CodeStuck       = "upstream_stuck"       // signs of life, and nothing of the answer
)

// Remote is a Backend that another server of the API stands behind: the front of
// another node, which then sends tokens as they are, or any other, which sends
// text.
type Remote struct{ client *Client }

// NewRemote makes a Remote.
func NewRemote(c ClientConfig) *Remote { return &Remote{client: NewClient(c)} }

// Models implements Backend.
func (m *Remote) Models(ctx context.Context) ([]Model, error) {
	l, err := m.client.Models(ctx)
	return l, upstream(ctx, err)
}

// Generate implements Backend. With Request.Hop it marks the call as forwarded,
// and a Meridian node behind it gives ids, bytes and marks of each token.
// Otherwise a Token is what one chunk brings, with ID −1.
func (m *Remote) Generate(ctx context.Context, r *Request, emit func(Token) error) (Result, error) {
	s := &remoteStream{emit: func(t Token) error {
		if err := emit(t); err != nil {
			return &emitError{err}
		}
		return nil
	}}
	err := m.client.Stream(ctx, Call{Path: pathOf(r), Body: bodyOf(r), Hop: r.Hop}, s.chunk)
	var own *emitError
	switch {
	case errors.As(err, &own) && errors.Is(own.err, ErrStop):
		s.res.Finish = "stop"
		return s.result(), nil
	case errors.As(err, &own):
		return s.result(), own.err
	}
	return s.result(), upstream(ctx, err)
}

// emitError keeps what emit said apart from what the connection says.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

// upstream is err as a Backend returns it.
func upstream(ctx context.Context, err error) error {
	var said *Error
	switch {
	case err == nil || errors.As(err, &said):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	e := &Error{Status: http.StatusBadGateway, Type: typeServer, Code: CodeUnreachable, Message: "the node behind this one cannot be reached", cause: err}
	if errors.Is(err, ErrSilent) {
		e.Status, e.Code, e.Message = http.StatusGatewayTimeout, CodeSilent, "the node behind this one gives no sign of life"
		return e
	}
	if errors.Is(err, ErrStuck) || errors.Is(err, ErrStalled) {
		e.Status, e.Code, e.Message = http.StatusGatewayTimeout, CodeStuck, "the node behind this one lives and sends nothing of the answer"
		return e
	}
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	if errors.Is(err, ErrCut) || errors.Is(err, ErrEventTooLong) || errors.As(err, &syntax) || errors.As(err, &mistyped) {
		e.Code, e.Message = CodeBroken, "the node behind this one broke off its answer"
	}
	return e
}

func pathOf(r *Request) string {
	if r.Chat {
		return chatPath
	}
	return completionsPath
}

// bodyOf writes what a Request says and nothing that it leaves open, so that a
// server that knows only the API understands it.
func bodyOf(r *Request) map[string]any {
	b := map[string]any{
		"model": r.Model, "stream": true, "stream_options": map[string]bool{"include_usage": true},
		"temperature": r.Temperature, "top_p": r.TopP,
	}
	switch {
	case r.Chat:
		type message struct {
			Role      string `json:"role"`
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content,omitempty"`
		}
		l := make([]message, len(r.Messages))
		for i, m := range r.Messages {
			l[i] = message(m)
		}
		b["messages"] = l
	case r.PromptTokens != nil:
		b["prompt"] = r.PromptTokens
	default:
		b["prompt"] = r.Prompt
	}
	set(b, "max_tokens", r.MaxTokens)
	set(b, "min_p", r.MinP)
	set(b, "top_k", r.TopK)
	set(b, "frequency_penalty", r.FrequencyPenalty)
	set(b, "presence_penalty", r.PresencePenalty)
	set(b, "thinking_token_budget", r.MaxThink)
	if r.Seed != nil {
		b["seed"] = *r.Seed
	}
	if r.Background {
		b["service_tier"] = tierFlex
	}
	set(b, "service_tier", r.Tier)
	set(b, "reasoning_effort", r.Effort)
	switch {
	case r.Chat && (r.Think != nil || r.Template != nil):
		kwargs := map[string]any{}
		for name, v := range r.Template {
			kwargs[name] = v
		}
		if r.Think != nil {
			kwargs["enable_thinking"] = *r.Think
		}
		b["chat_template_kwargs"] = kwargs
	case r.Think != nil && !*r.Think: // a text completion has a budget only
		b["thinking_token_budget"] = 0
	}
	switch {
	case r.LogProbs < 0:
	case r.Chat:
		b["logprobs"], b["top_logprobs"] = true, r.LogProbs
	default:
		b["logprobs"] = r.LogProbs
	}
	return b
}

func set[T comparable](b map[string]any, name string, v T) {
	var zero T
	if v != zero {
		b[name] = v
	}
}

// remoteStream gathers what the chunks of one answer say.
type remoteStream struct {
	emit  func(Token) error
	res   Result
	seen  int  // tokens
	think int  // of these
	whole bool // the other side sends tokens as they are, so text says it twice
	usage bool // the other side has counted
}

func (s *remoteStream) result() Result {
	if !s.usage {
		s.res.Completion, s.res.Thinking = s.seen, s.think
	}
	return s.res
}

func (s *remoteStream) chunk(c *Chunk) error {
	if u := c.Usage; u != nil {
		s.usage = true
		s.res.Prompt, s.res.Completion = u.PromptTokens, u.CompletionTokens
		s.res.Cached, s.res.Thinking = u.PromptDetails.CachedTokens, u.CompletionDetails.ReasoningTokens
	}
	if len(c.Meridian) > 0 {
		var h hopToken
		if json.Unmarshal(c.Meridian, &h) == nil && h.ID != nil {
			s.whole = true
			if err := s.give(h.token()); err != nil {
				return err
			}
		} else {
			s.report(c.Meridian)
		}
	}
	if len(c.Choices) == 0 {
		return nil
	}
	o := &c.Choices[0]
	if o.FinishReason != nil {
		s.res.Finish = *o.FinishReason
	}
	if s.whole {
		return nil
	}
	return s.texts(o)
}

func (s *remoteStream) give(t Token) error {
	s.seen++
	if t.Thinking {
		s.think++
	}
	return s.emit(t)
}

// report takes a node's own report over, the reason of an end of thinking apart.
func (s *remoteStream) report(raw json.RawMessage) {
	m := map[string]any{}
	if json.Unmarshal(raw, &m) != nil {
		return
	}
	if forced, ok := m["forced"].(string); ok {
		s.res.Forced = forced
		delete(m, "forced")
	}
	s.res.Node = m
}

// texts makes tokens of a chunk of a server that sends text.
func (s *remoteStream) texts(o *Choice) error {
	text := ""
	switch {
	case o.Delta != nil:
		if r := o.Delta.ReasoningContent; r != nil && *r != "" {
			if err := s.give(Token{ID: -1, Bytes: []byte(*r), Thinking: true}); err != nil {
				return err
			}
		}
		if o.Delta.Content != nil {
			text = *o.Delta.Content
		}
	case o.Text != nil:
		text = *o.Text
	}
	tokens := textTokens(o.LogProbs)
	if tokens == nil && text != "" {
		tokens = []Token{{ID: -1, Bytes: []byte(text)}}
	}
	for _, t := range tokens {
		if err := s.give(t); err != nil {
			return err
		}
	}
	return nil
}

// textTokens makes tokens of a chunk's log-probabilities, which say where one
// token ends; nil without them.
func textTokens(l *LogProbs) (out []Token) {
	if l == nil {
		return nil
	}
	for _, e := range l.Content {
		t := Token{ID: -1, Bytes: e.bytes(), HasLogProb: true, LogProb: e.LogProb}
		for _, p := range e.Top {
			t.Top = append(t.Top, TokenProb{ID: -1, Bytes: p.bytes(), LogProb: p.LogProb})
		}
		out = append(out, t)
	}
	for i, text := range l.Tokens {
		t := Token{ID: -1, Bytes: tokenBytes(text)}
		if i < len(l.TokenLogProbs) && l.TokenLogProbs[i] != nil {
			t.HasLogProb, t.LogProb = true, *l.TokenLogProbs[i]
		}
		if i < len(l.TopLogProbs) {
			for text, p := range l.TopLogProbs[i] {
				t.Top = append(t.Top, TokenProb{ID: -1, Bytes: tokenBytes(text), LogProb: p})
			}
			slices.SortFunc(t.Top, func(a, b TokenProb) int {
				return cmp.Or(cmp.Compare(b.LogProb, a.LogProb), bytes.Compare(a.Bytes, b.Bytes))
			})
		}
		out = append(out, t)
	}
	return out
}

func (e *ChatLogProb) bytes() []byte {
	if e.Bytes == nil {
		return tokenBytes(e.Token)
	}
	b := make([]byte, len(e.Bytes))
	for i, c := range e.Bytes {
		b[i] = byte(c)
	}
	return b
}

// tokenBytes undoes tokenText.
func tokenBytes(text string) []byte {
	rest, ok := strings.CutPrefix(text, "bytes:")
	if !ok || len(rest)%4 != 0 || rest == "" {
		return []byte(text)
	}
	var b []byte
	for ; rest != ""; rest = rest[4:] {
		var c byte
		for _, d := range []byte(rest[2:4]) {
			n := strings.IndexByte("0123456789abcdef", d)
			if n < 0 || rest[:2] != `\x` {
				return []byte(text)
			}
			c = c<<4 | byte(n)
		}
		b = append(b, c)
	}
	return b
}
