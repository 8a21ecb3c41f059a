package llamacpp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Completion is one call of the model on a slot.
type Completion struct {
	Prompt  []int32
	Slot    int
	Predict int // tokens; 0 computes the prompt only

	// Sampling: Temperature 0 takes the most likely token, TopK 0 is all.
	Temperature, TopP, MinP           float64
	TopK                              int
	Seed                              uint32
	FrequencyPenalty, PresencePenalty float64

	Probs int // most likely tokens to tell at each place; at least 1 is asked for
}

// Token is one decoded token. Bytes are the text since the last complete
// character: none for a token that ends within one.
type Token struct {
	ID      int32
	Bytes   []byte
	LogProb float64
	Top     []TokenProb
}

// TokenProb is a token that might have come instead; Bytes are its own text.
type TokenProb struct {
	ID      int32
	Bytes   []byte
	LogProb float64
}

// Done says how a call ended.
type Done struct {
	Cached   int  // prompt tokens that the slot had
	Computed int  // prompt tokens that went through the model
	EOS      bool // the model ended the sequence
	// Lost: the server decoded a token without telling its id, since it ends
	// within a character. The call was ended there: what follows the tokens that were told
	// must be asked for again, with Whole.
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
}

func (q *Completion) body(stream bool) completionBody {
	b := completionBody{
		Prompt: q.Prompt, Slot: q.Slot, Predict: q.Predict, Cache: true, Tokens: true, Stream: stream,
		Temperature: q.Temperature, TopK: q.TopK, TopP: q.TopP, MinP: q.MinP, Seed: q.Seed,
		Frequency: q.FrequencyPenalty, Presence: q.PresencePenalty,
	}
	if q.Predict > 0 {
		b.Probs = max(1, q.Probs)
	}
	if q.TopP == 0 {
		b.TopP = 1
	}
	return b
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
	Tokens    []int32
	Stop      bool
	StopType  string        `json:"stop_type"`
	Predicted int           `json:"tokens_predicted"`
	Probs     []probability `json:"completion_probabilities"`
	Timings   struct {
		Cached   int `json:"cache_n"`
		Computed int `json:"prompt_n"`
	}
	Error *struct{ Type, Message string }
}

func (a *answer) done() Done {
	return Done{Cached: a.Timings.Cached, Computed: a.Timings.Computed, EOS: a.StopType == "eos"}
}

// Compute runs a prompt through the model.
func (s *Server) Compute(ctx context.Context, q Completion) (Done, error) {
	q.Predict = 0
	var a answer
	if err := s.call(ctx, http.MethodPost, "/completion", q.body(false), &a); err != nil {
		return Done{}, err
	}
	return a.done(), nil
}

// Whole decodes and gives all tokens at the end. The tokens at the end of it may lie
// within a character; theirs and the next tokens' bytes can be had by Detokenize.
func (s *Server) Whole(ctx context.Context, q Completion) ([]Token, Done, error) {
	var a answer
	if err := s.call(ctx, http.MethodPost, "/completion", q.body(false), &a); err != nil {
		return nil, Done{}, err
	}
	out := make([]Token, 0, len(a.Tokens))
	probs := a.Probs
	for _, id := range a.Tokens {
		t := Token{ID: id}
		if len(probs) > 0 && probs[0].ID == id {
			t, probs = probs[0].token(), probs[1:]
		}
		out = append(out, t)
	}
	return out, a.done(), nil
}

// Stream decodes and gives each token to f as it comes. An error of f ends the
// call and is returned.
func (s *Server) Stream(ctx context.Context, q Completion, f func(Token) error) (Done, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection, and so stops the server
	resp, err := s.do(ctx, http.MethodPost, "/completion", q.body(true))
	if err != nil {
		return Done{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	told := 0
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var a answer
		if err := json.Unmarshal(data, &a); err != nil {
			return Done{}, fmt.Errorf("llama-server: an event of a stream is not what is understood: %w", err)
		}
		if a.Error != nil {
			return Done{}, &Error{Status: http.StatusInternalServerError, Type: a.Error.Type, Message: a.Error.Message}
		}
		if a.Stop {
			d := a.done()
			d.Lost = a.Predicted > told && !d.EOS || a.Predicted > told+1
			return d, nil
		}
		if len(a.Tokens) != 1 || len(a.Probs) != 1 || a.Probs[0].ID != a.Tokens[0] || a.Predicted != told+1 {
			return Done{Lost: true}, nil
		}
		t := a.Probs[0].token()
		told++
		if err := f(t); err != nil {
			return Done{}, err
		}
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		return Done{}, ctx.Err()
	case errors.Is(err, bufio.ErrTooLong):
		return Done{}, fmt.Errorf("llama-server: an event of a stream is longer than %d bytes", maxLine)
	}
	return Done{}, gone(ctx, errors.Join(err, io.ErrUnexpectedEOF))
}
