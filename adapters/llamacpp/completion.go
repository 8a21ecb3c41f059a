package llamacpp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
)

// Completion is one call of the model on a slot.
type Completion struct {
	Prompt  []int32
	Slot    int
	Predict int // tokens, at least 1; Compute decodes none

	// Sampling: Temperature 0 takes the most likely token, TopK 0 is all.
	Temperature, TopP, MinP           float64
	TopK                              int
	Seed                              uint32 // 2^32-1, the server's word for any, is taken as the one below
	FrequencyPenalty, PresencePenalty float64

	Probs int // most likely tokens to tell at each place; at least 1 is asked for

	IgnoreEOS bool // never draw the end of the sequence; probabilities are told as they are
}

// Token is one decoded token. Bytes are the text since the last complete
// character of the call, none for a marker such as the end of the sequence.
type Token struct {
	ID      int32
	Bytes   []byte
	LogProb float64
	Top     []TokenProb
	// Part: the token ends within a character, or is one that may, and the server
	// tells no more of it than its id. Detokenize tells the text of several such.
	Part bool
}

// TokenProb is a token that might have come instead; Bytes are its own text.
type TokenProb struct {
	ID      int32
	Bytes   []byte
	LogProb float64
}

// Done says how a call ended.
type Done struct {
	Cached    int  // prompt tokens that the slot had
	Computed  int  // prompt tokens that went through the model
	Predicted int  // tokens decoded, the end of the sequence included
	EOS       bool // the model ended the sequence

	// Lost: the server decoded a token without telling its id, since it ends
	// within a character. The call was ended there, and the other fields say nothing.
	// The same call by Whole, seed and all, draws the told tokens again and then what
	// was lost. To draw on from the told ones would make such tokens rarer than they
	// should be: each would have to be drawn twice.
	Lost bool
}

type completionBody struct {
	Prompt      []int32 `json:"prompt"`
	Slot        int     `json:"id_slot"`
	Predict     int     `json:"n_predict"`
	Cache       bool    `json:"cache_prompt"`
	Tokens      bool    `json:"return_tokens"`
	Stream      bool    `json:"stream"`
	Probs       int     `json:"n_probs"`
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	MinP        float64 `json:"min_p"`
	Seed        uint32  `json:"seed"`
	Frequency   float64 `json:"frequency_penalty"`
	Presence    float64 `json:"presence_penalty"`
	Repeat      float64 `json:"repeat_penalty"`
	IgnoreEOS   bool    `json:"ignore_eos,omitempty"`
	Progress    bool    `json:"return_progress,omitempty"`
}

// anySeed is what the server takes for a seed of its own choice.
const anySeed = math.MaxUint32

func (q *Completion) body(stream bool) completionBody {
	b := completionBody{
		Prompt: q.Prompt, Slot: q.Slot, Predict: q.Predict, Cache: true, Tokens: true, Stream: stream,
		Temperature: q.Temperature, TopK: q.TopK, TopP: q.TopP, MinP: q.MinP, Seed: min(q.Seed, anySeed-1),
		Frequency: q.FrequencyPenalty, Presence: q.PresencePenalty, Repeat: 1, // a factor: none
		IgnoreEOS: q.IgnoreEOS,
	}
	if q.Predict > 0 {
		b.Probs = max(1, q.Probs)
	}
	if q.TopP == 0 {
		b.TopP = 1
	}
	return b
}

// check refuses what the server takes for no limit, or for one token.
func (q *Completion) check() error {
	if q.Predict < 1 {
		return fmt.Errorf("llama-server: %d tokens to decode; at least 1", q.Predict)
	}
	return nil
}

// bytesOf is a list of numbers in JSON.
type bytesOf []byte

func (b *bytesOf) UnmarshalJSON(in []byte) error {
	var nums []uint16 // []uint8 would be base64
	if err := json.Unmarshal(in, &nums); err != nil {
		return err
	}
	*b = make([]byte, len(nums))
	for i, n := range nums {
		if n > 255 {
			return fmt.Errorf("%d is no byte", n)
		}
		(*b)[i] = byte(n)
	}
	return nil
}

type probability struct {
	ID      int32
	Bytes   bytesOf
	LogProb *float64      // null stands for minus infinity
	Top     []probability `json:"top_logprobs"`
}

func (p *probability) value() float64 {
	if p.LogProb == nil {
		return minLogProb
	}
	return *p.LogProb
}

// minLogProb stands for a probability of 0, which JSON has no logarithm for.
const minLogProb = -1e30

func (p *probability) token() Token {
	t := Token{ID: p.ID, Bytes: p.Bytes, LogProb: p.value()}
	for i := range p.Top {
		t.Top = append(t.Top, TokenProb{ID: p.Top[i].ID, Bytes: p.Top[i].Bytes, LogProb: p.Top[i].value()})
	}
	return t
}

// answer is a whole answer, or one event of a stream.
type answer struct {
	Slot      int `json:"id_slot"` // -1 in the middle of a stream
	Tokens    []int32
	Stop      bool
	StopType  string        `json:"stop_type"`
	Predicted int           `json:"tokens_predicted"`
	Probs     []probability `json:"completion_probabilities"`
	Timings   struct {
		Cached   int `json:"cache_n"`
		Computed int `json:"prompt_n"`
	}
	Progress *struct {
		Processed int // prompt tokens, those of the cache included
	} `json:"prompt_progress"`
	Error *struct {
		Code          int
		Type, Message string
	}
}

// done is the end of the call q.
func (a *answer) done(q *Completion) (Done, error) {
	if a.Slot != q.Slot {
		return Done{}, fmt.Errorf("llama-server: slot %d answered a call on slot %d", a.Slot, q.Slot)
	}
	return Done{Cached: a.Timings.Cached, Computed: a.Timings.Computed, Predicted: a.Predicted, EOS: a.StopType == "eos"}, nil
}

// Compute runs a prompt through the model.
func (s *Server) Compute(ctx context.Context, q Completion) (Done, error) {
	q.Predict = 0
	_, done, err := s.whole(ctx, &q)
	return done, err
}

// Whole decodes and gives all tokens at the end.
func (s *Server) Whole(ctx context.Context, q Completion) ([]Token, Done, error) {
	if err := q.check(); err != nil {
		return nil, Done{}, err
	}
	a, done, err := s.whole(ctx, &q)
	if err != nil {
		return nil, Done{}, err
	}
	if len(a.Tokens) == 0 || len(a.Tokens) != a.Predicted {
		return nil, Done{}, fmt.Errorf("llama-server: an answer has the ids of %d of %d tokens", len(a.Tokens), a.Predicted)
	}
	tokens, ok := match(a.Tokens, a.Probs)
	if !ok {
		return nil, Done{}, errors.New("llama-server: the probabilities of an answer are not those of its tokens")
	}
	return tokens, done, nil
}

func (s *Server) whole(ctx context.Context, q *Completion) (*answer, Done, error) {
	if err := s.has(ctx, q.Slot); err != nil {
		return nil, Done{}, err
	}
	var a answer
	if err := s.call(ctx, http.MethodPost, "/completion", q.body(false), &a); err != nil {
		return nil, Done{}, err
	}
	if !a.Stop {
		return nil, Done{}, lacks("/completion", "stop")
	}
	done, err := a.done(q)
	return &a, done, err
}

// match gives the tokens of a whole answer their probabilities. The server leaves
// those out of tokens that end within a character, so the ids must tell which is
// whose: a probability is given where the first and the last way to place all of
// them in order agree. There must be a way.
func match(ids []int32, probs []probability) (tokens []Token, ok bool) {
	out := make([]Token, len(ids))
	first := make([]int, len(probs))
	n := 0
	for i, id := range ids {
		out[i] = Token{ID: id, Part: true}
		if n < len(probs) && probs[n].ID == id {
			first[n] = i
			n++
		}
	}
	if n < len(probs) {
		return nil, false
	}
	for i := len(ids) - 1; i >= 0 && n > 0; i-- {
		if probs[n-1].ID != ids[i] {
			continue
		}
		n--
		if first[n] == i {
			out[i] = probs[n].token()
		}
	}
	return out, true
}

// Stream decodes and gives each token to f as it comes. An error of f ends the
// call and is returned.
func (s *Server) Stream(ctx context.Context, q Completion, f func(Token) error) (done Done, err error) {
	if err := q.check(); err != nil {
		return Done{}, err
	}
	told := 0
	err = s.events(ctx, q.Slot, q.body(true), func(data []byte) (last bool, err error) {
		done, last, err = event(data, &q, &told, f)
		return last, err
	})
	return done, err
}

// Prefill is Compute, and tells meanwhile how many of the prompt's tokens the slot
// has: once when the server begins with it, and then after each of its batches,
// which have --batch-size tokens, 2,048 unless it was told otherwise. A build that
// does not know return_progress tells nothing.
func (s *Server) Prefill(ctx context.Context, q Completion, progress func(processed int)) (done Done, err error) {
	q.Predict = 0
	b := q.body(true)
	b.Progress = true
	err = s.events(ctx, q.Slot, b, func(data []byte) (bool, error) {
		a, err := parseEvent(data)
		switch {
		case err != nil:
			return true, err
		case a.Stop:
			done, err = a.done(&q)
			return true, err
		case a.Progress != nil:
			progress(a.Progress.Processed)
		}
		return false, nil
	})
	return done, err
}

// events makes a call whose answer is a stream, and gives each event to f until it
// says that one was the last, or fails.
func (s *Server) events(ctx context.Context, slot int, in completionBody, f func(data []byte) (last bool, err error)) error {
	if err := s.has(ctx, slot); err != nil {
		return err
	}
	resp, err := s.do(ctx, http.MethodPost, "/completion", in)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // closes the connection, and so stops the server
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, min(64<<10, s.limit)), s.limit)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if last, err := f(data); last || err != nil {
			return err
		}
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("llama-server: an event of a stream is longer than %d bytes", s.limit)
	}
	return gone(ctx, errors.Join(err, io.ErrUnexpectedEOF))
}

// parseEvent reads one event of a stream, which may be an error.
func parseEvent(data []byte) (*answer, error) {
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("llama-server: an event of a stream is not what is understood: %w", err)
	}
	if a.Error != nil {
		e := &Error{Status: a.Error.Code, Type: a.Error.Type, Message: a.Error.Message}
		if e.Status == 0 {
			e.Status = http.StatusInternalServerError
		}
		return nil, e
	}
	return &a, nil
}

// event acts on one event of a stream of which told tokens have gone to f.
func event(data []byte, q *Completion, told *int, f func(Token) error) (done Done, last bool, err error) {
	a, err := parseEvent(data)
	if err != nil {
		return Done{}, true, err
	}
	if a.Stop {
		if a.Predicted > *told {
			return Done{Lost: true}, true, nil
		}
		done, err = a.done(q)
		return done, true, err
	}
	if a.Tokens == nil {
		return Done{}, true, errors.New("llama-server: an event of a stream has no tokens and is not the last")
	}
	if len(a.Tokens) != 1 || len(a.Probs) != 1 || a.Probs[0].ID != a.Tokens[0] || a.Predicted != *told+1 {
		return Done{Lost: true}, true, nil
	}
	*told++
	return Done{}, false, f(a.Probs[0].token())
}
