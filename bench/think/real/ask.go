package real

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"strings"
	"time"

	"meridian/agent/openai"
)

// sample is what a client saw of one request. Times are since it was sent.
type sample struct {
	request
	thoughts []time.Duration // thinking tokens as they came
	visible  []time.Duration // tokens of the answer, likewise
	done     time.Duration   // 0: it was not answered
	ended    bool            // the node said why it ends
	bytes    int             // of thinking and answer
	text     hash.Hash64     // of both

	prompt, completion, thinking int    // tokens, by the node's count
	forced                       string // why its thinking was ended
	pulled                       uint64 // bytes of blocks
	err                          error
}

// first is when the first token of any kind came.
func (s *sample) first() time.Duration {
	if len(s.thoughts) > 0 {
		return s.thoughts[0]
	}
	return s.visible[0]
}

// most bounds the pieces of an answer; a token may come in more than one.
func (s *sample) most() int { return 64 + 4*s.maxTokens() }

// Bounds of what a node says, for each sample is kept to the end of the run.
const (
	tokenBytes = 256 // of a token: the longest of large vocabularies are runs of spaces of half of that
	maxSaid    = 512 // bytes of a reason or an error

	templateRoom = 1 << 16 // tokens that a template may add to a prompt, of which each has a byte at least
	maxPulled    = 1 << 40 // bytes of blocks, of a request
)

// errEmpty is of a stream that ended in order and had no answer: a model that ends at once
// has a reason to finish.
var errEmpty = errors.New("the stream ended without a token and without a reason to finish")

// maxTokens is how many tokens of thinking and answer a request asks for.
func (q *request) maxTokens() int {
	if q.think > 0 {
		return q.think + markerRoom + q.answer
	}
	return q.answer
}

// silence bounds how long a node may say nothing of a request.
const silence = 5 * time.Minute

// ask sends a request, and returns when it is answered, ctx ends, or the node says nothing.
func (n *node) ask(ctx context.Context, q request) *sample {
	s := &sample{request: q, text: fnv.New64a()}
	body := map[string]any{
		"model": n.model, "messages": []map[string]string{{"role": "user", "content": q.prompt}},
		"temperature": 0, "max_tokens": q.maxTokens(), "stream": true, "stream_options": map[string]bool{"include_usage": true},
	}
	if q.think > 0 {
		body["thinking_token_budget"] = q.think
	} else {
		body["reasoning_effort"] = "none"
	}
	if q.flex && n.flex {
		body["service_tier"] = "flex"
	}
	began := time.Now()
	c := openai.NewClient(openai.ClientConfig{URL: n.url, Token: n.token, HTTP: n.http, Silence: silence})
	s.err = c.Stream(ctx, openai.Call{Path: "/v1/chat/completions", Body: body}, func(c *openai.Chunk) error {
		return s.chunk(c, time.Since(began))
	})
	if s.err == nil && !s.ended && len(s.thoughts)+len(s.visible) == 0 {
		s.err = errEmpty
	}
	if s.err == nil {
		s.done = time.Since(began)
	}
	var said *openai.Error
	if errors.As(s.err, &said) {
		for _, text := range []*string{&said.Message, &said.Type, &said.Code, &said.Param} {
			*text = shortened(*text)
		}
	}
	return s
}

// shortened is the beginning of a text that is longer than maxSaid.
func shortened(text string) string {
	if len(text) <= maxSaid {
		return text
	}
	return strings.ToValidUTF8(text[:maxSaid], "") + "…"
}

// chunk takes a piece of the answer.
func (s *sample) chunk(c *openai.Chunk, at time.Duration) error {
	for i := range c.Choices {
		s.ended = s.ended || c.Choices[i].FinishReason != nil
		d := c.Choices[i].Delta
		if d == nil {
			continue
		}
		if err := errors.Join(s.piece(&s.thoughts, d.ReasoningContent, at), s.piece(&s.visible, d.Content, at)); err != nil {
			return err
		}
	}
	if s.begun != nil && len(s.visible) > 0 {
		s.begun()
	}
	if u := c.Usage; u != nil {
		if err := s.count(u); err != nil {
			return err
		}
	}
	if len(c.Meridian) == 0 {
		return nil
	}
	var m struct {
		Forced string `json:"forced"`
		Pulled uint64 `json:"pulled_bytes"`
	}
	if err := json.Unmarshal(c.Meridian, &m); err != nil {
		return err
	}
	if len(m.Forced) > maxSaid {
		return fmt.Errorf("forced has %d bytes: at most %d", len(m.Forced), maxSaid)
	}
	if m.Pulled > maxPulled {
		return fmt.Errorf("pulled_bytes is %d: at most %d for a request", m.Pulled, uint64(maxPulled))
	}
	s.forced, s.pulled = m.Forced, m.Pulled
	return nil
}

// count takes over how many tokens a node says that there were, if they can be as many.
func (s *sample) count(u *openai.Usage) error {
	for _, c := range []struct {
		name    string
		n, most int
		to      *int
	}{
		{"prompt_tokens", u.PromptTokens, len(s.request.prompt) + templateRoom, &s.prompt},
		{"completion_tokens", u.CompletionTokens, s.maxTokens(), &s.completion},
		{"reasoning_tokens", u.CompletionDetails.ReasoningTokens, s.maxTokens(), &s.thinking},
	} {
		if c.n < 0 || c.n > c.most {
			return fmt.Errorf("its usage cannot be: %s is %d, from 0 to %d of what was asked", c.name, c.n, c.most)
		}
		*c.to = c.n
	}
	return nil
}

// piece takes a piece of text that is part of a chunk; nil and "" are none.
func (s *sample) piece(to *[]time.Duration, text *string, at time.Duration) error {
	if text == nil || *text == "" {
		return nil
	}
	*to = append(*to, at)
	if n := len(s.thoughts) + len(s.visible); n > s.most() {
		return fmt.Errorf("it sends more than it was asked for: %d pieces of at most %d tokens", n, s.maxTokens())
	}
	if s.bytes += len(*text); s.bytes > tokenBytes*s.maxTokens() {
		return fmt.Errorf("it sends more than it was asked for: %d bytes of at most %d tokens", s.bytes, s.maxTokens())
	}
	_, _ = s.text.Write([]byte(*text)) // a hash takes all
	return nil
}
