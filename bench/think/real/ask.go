package real

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"meridian/agent/openai"
)

// sample is what a client saw of one request. Times are since it was sent.
type sample struct {
	request
	thoughts []time.Duration // thinking tokens as they came
	visible  []time.Duration // tokens of the answer, likewise
	done     time.Duration   // 0: it was not answered
	text     string          // thinking and answer

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
func (s *sample) most() int { return 64 + 4*(s.think+s.answer+markerRoom) }

// silence bounds how long a node may say nothing of a request.
const silence = 5 * time.Minute

// ask sends a request, and returns when it is answered, ctx ends, or the node says nothing.
func (n *node) ask(ctx context.Context, q request) *sample {
	s := &sample{request: q}
	body := map[string]any{
		"model": n.model, "messages": []map[string]string{{"role": "user", "content": q.prompt}},
		"temperature": 0, "max_tokens": q.answer, "stream": true, "stream_options": map[string]bool{"include_usage": true},
	}
	if q.think > 0 {
		body["max_tokens"], body["thinking_token_budget"] = q.think+markerRoom+q.answer, q.think
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
	if s.err == nil {
		s.done = time.Since(began)
	}
	return s
}

// chunk takes a piece of the answer.
func (s *sample) chunk(c *openai.Chunk, at time.Duration) error {
	for i := range c.Choices {
		d := c.Choices[i].Delta
		if d == nil {
			continue
		}
		if t := d.ReasoningContent; t != nil && *t != "" {
			s.thoughts, s.text = append(s.thoughts, at), s.text+*t
		}
		if t := d.Content; t != nil && *t != "" {
			s.visible, s.text = append(s.visible, at), s.text+*t
		}
	}
	if n := len(s.thoughts) + len(s.visible); n > s.most() {
		return fmt.Errorf("it sends more than it was asked for: %d pieces of at most %d tokens", n, s.think+s.answer)
	}
	if s.begun != nil && len(s.visible) > 0 {
		s.begun()
	}
	if u := c.Usage; u != nil {
		s.prompt, s.completion, s.thinking = u.PromptTokens, u.CompletionTokens, u.CompletionDetails.ReasoningTokens
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
	s.forced, s.pulled = m.Forced, m.Pulled
	return nil
}
