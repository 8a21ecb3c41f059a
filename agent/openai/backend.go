package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Backend generates. Its methods are called from many goroutines.
type Backend interface {
	// Models are those that Generate takes, at least one once it is ready.
	Models(ctx context.Context) ([]Model, error)

	// Generate runs one request to its end. emit is called for each token, in
	// order, from one goroutine. An error that emit returns ends the
	// generation: Generate stops the engine, gives everything back, and returns
	// that error, with a Result as far as it is known. ErrStop is not an error:
	// it means enough, and Generate returns Finish "stop" and nil. When ctx
	// ends, the client has gone: Generate stops within two tokens and returns
	// ctx's error.
	//
	// An *Error that it returns is what the client sees; any other error is
	// seen as status 500 without its text, which goes to the log.
	Generate(ctx context.Context, r *Request, emit func(Token) error) (Result, error)
}

// Pulse is a Backend that can tell whether its engine answers, and how its work
// goes on. A front asks it before each sign of life in a stream, so that nobody waits
// for an engine that hangs.
type Pulse interface {
	Alive(ctx context.Context) (Progress, error)
}

// ErrStop is returned by emit when the answer is complete.
var ErrStop = errors.New("openai: the answer is complete")

// Model is one entry of GET /v1/models.
type Model struct {
	ID      string
	Created int64 // Unix seconds
	OwnedBy string
	Context int // tokens; 0: not known
}

// Request is one generation, checked and with the API's defaults filled in.
type Request struct {
	ID    string // minted by the front: "chatcmpl-…" or "cmpl-…"
	Model string
	Hop   bool // another node's front has forwarded it: do not forward it again

	Chat         bool
	Messages     []Message // when Chat
	Prompt       string    // a text completion
	PromptTokens []int32   // a text completion given as ids; Prompt is empty then

	MaxTokens int // 0: to the end of the context

	Background bool   // service_tier "flex": nobody waits for its tokens, so others go first
	Tier       string // service_tier that a Remote asks for; empty: flex with Background, else none

	Temperature, TopP, MinP           float64
	TopK                              int // 0: all
	Seed                              *int64
	FrequencyPenalty, PresencePenalty float64

	LogProbs int // -1: none; else how many alternatives a token
	// Of thinking. What a backend cannot do of it, it refuses with status 400.
	Think    *bool                      // nil: the node's default
	Effort   string                     // minimal, low, medium, high or xhigh, and Think is true; empty: not said
	MaxThink int                        // thinking tokens; 0: the node's own budget. A budget of 0 is Think false
	Template map[string]json.RawMessage // further variables of the chat template
}

// Message is one turn of a chat.
type Message struct {
	Role, Content string
	Reasoning     string // what an assistant thought before
}

// Token is one generated token. Bytes may be part of a character, or empty.
type Token struct {
	ID       int32 // -1: not known, as of a server that is no Meridian node
	Bytes    []byte
	Thinking bool // its text is reasoning, not answer
	Forced   bool // the node appended it: the model did not sample it

	HasLogProb bool
	LogProb    float64
	Top        []TokenProb // most likely first
}

// TokenProb is an alternative at a token's place.
type TokenProb struct {
	ID      int32
	Bytes   []byte
	LogProb float64
}

// Result says how a generation ended.
type Result struct {
	Finish string // "stop" or "length"

	// Tokens: of the prompt, of the answer with its thinking, of the prompt
	// that lay in a cache, and of thinking.
	Prompt, Completion, Cached, Thinking int

	Forced string         // "", "hard_cap", "converged" or "overthinking": why thinking was ended
	Node   map[string]any // goes out as "meridian" in the final chunk: ttft_ms, the prefill node, bytes pulled, …
}

// Error is what a client sees. Type and Code are those of the API where it has
// one that fits.
type Error struct {
	Status  int // of HTTP; 0: 500
	Type    string
	Code    string
	Param   string // the field that is wrong, if one is
	Message string

	cause error // for the log of this side
}

// Unwrap is what the error came from, which no client sees.
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) Error() string {
	if e.Param != "" {
		return fmt.Sprintf("%s (%s, parameter %s, status %d)", e.Message, e.label(), e.Param, e.Status)
	}
	return fmt.Sprintf("%s (%s, status %d)", e.Message, e.label(), e.Status)
}

func (e *Error) label() string {
	if e.Code != "" {
		return e.Code
	}
	return e.Type
}
