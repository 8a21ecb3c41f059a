package llama

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"meridian/agent/openai"
)

// PrefillPath is where a node prefills for its partner, by POST. GET says whether
// it could.
const PrefillPath = "/meridian/v1/prefill"

const (
	// linesType is an answer in lines of JSON, for an asker that wants to know that
	// this node lives: one line each beat, and the reply or an error as the last.
	linesType = "application/x-ndjson"

	// alive is how long llama-server may take to say that it is. It and the time
	// between two signs of life are less than silence together.
	alive = time.Second

	maxPrefillTokens = 1 << 20
	maxPrefillBody   = 8 * maxPrefillTokens // of 7 digits
)

// PrefillRequest asks a node to have a prompt's KV in its daemon. Namespace is
// that of the asker's blocks: blocks of another one would be of no use to it.
type PrefillRequest struct {
	Model     string  `json:"model"`
	Namespace string  `json:"namespace"` // 64 hexadecimal digits
	Manifest  string  `json:"manifest"`  // what the namespace is the hash of, for an error that names the difference
	Tokens    []int32 `json:"tokens"`
}

// PrefillReply says what was done.
type PrefillReply struct {
	Agent    string  `json:"agent"`
	Computed int     `json:"computed"` // tokens that went through the model
	Cached   int     `json:"cached"`   // tokens whose KV was there
	Stored   int     `json:"stored"`   // blocks that are new
	Seconds  float64 `json:"seconds"`
}

// prefillLine is a line of an answer in lines: a sign of life, or one of the rest.
type prefillLine struct {
	Alive            bool            `json:"alive,omitempty"`
	*openai.Progress                 // of a sign of life
	Reply            *PrefillReply   `json:"reply,omitempty"`
	Error            json.RawMessage `json:"error,omitempty"`
	Status           int             `json:"status,omitempty"`
}

// Alive says whether llama-server answers, and what this node has done so far: one
// whose server hangs must not let others wait for it.
func (n *Node) Alive(ctx context.Context) (openai.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, alive)
	defer cancel()
	s, err := n.current(ctx)
	if err != nil {
		return openai.Progress{}, fmt.Errorf("%w: %w", ErrDown, errors.Join(n.Down(), err))
	}
	err = s.api.Health(ctx)
	return n.work.progress(), err
}

// boundWrites bounds what is written from now on to an asker that may not read.
func boundWrites(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(openai.DefaultWriteTimeout)) // a recorder in a test has none
}

// servePrefill answers PrefillPath.
func (n *Node) servePrefill(w http.ResponseWriter, r *http.Request) {
	boundWrites(w)
	switch r.Method {
	case http.MethodPost:
	case http.MethodGet:
		if _, err := n.Alive(r.Context()); err != nil {
			openai.WriteError(w, &openai.Error{Status: http.StatusServiceUnavailable, Type: "server_error", Code: "engine_down", Message: err.Error()})
			return
		}
		n.writePrefill(w, PrefillReply{Agent: n.cfg.Agent})
		return
	default:
		w.Header().Set("Allow", "GET, POST")
		openai.WriteError(w, &openai.Error{Status: http.StatusMethodNotAllowed, Type: "invalid_request_error", Code: "method_not_allowed",
			Message: fmt.Sprintf("%s %s: only GET and POST", r.Method, r.URL.Path)})
		return
	}
	q, body, err := n.readPrefill(w, r)
	if err != nil {
		openai.WriteError(w, n.errorFor(err))
		return
	}
	defer body.Free()
	if takesLines(r) {
		n.servePrefillLines(w, r, q)
		return
	}
	reply, err := n.prefillFor(r.Context(), q)
	boundWrites(w)
	if err != nil {
		openai.WriteError(w, n.errorFor(err))
		return
	}
	n.writePrefill(w, reply)
}

func (n *Node) writePrefill(w http.ResponseWriter, reply PrefillReply) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // the asker has gone
}

func takesLines(r *http.Request) bool {
	for _, v := range strings.Split(r.Header.Get("Accept"), ",") {
		if media, _, err := mime.ParseMediaType(v); err == nil && media == linesType {
			return true
		}
	}
	return false
}

// servePrefillLines prefills, and says meanwhile that this node lives. What comes
// before the first beat has a status of its own.
func (n *Node) servePrefillLines(w http.ResponseWriter, r *http.Request, q PrefillRequest) {
	type result struct {
		reply PrefillReply
		err   error
	}
	done := make(chan result, 1)
	ctx, end := context.WithCancel(r.Context())
	defer end()
	go func() {
		reply, err := n.prefillFor(ctx, q)
		done <- result{reply, err}
	}()
	tick := time.NewTicker(openai.BeatEvery)
	defer tick.Stop()
	out := lines{w: w}
	for {
		select {
		case res := <-done:
			switch {
			case res.err == nil:
				_ = out.send(prefillLine{Reply: &res.reply}) // the last one
			case out.begun:
				_ = out.send(errorLine(n.errorFor(res.err)))
			default:
				boundWrites(w)
				openai.WriteError(w, n.errorFor(res.err))
			}
			return
		case <-tick.C:
			if p, err := n.Alive(ctx); err == nil && out.send(prefillLine{Alive: true, Progress: &p}) != nil {
				end() // the asker has gone, or does not read
				<-done
				return
			}
		}
	}
}

// lines is an answer in lines.
type lines struct {
	w     http.ResponseWriter
	begun bool
}

func (o *lines) send(l prefillLine) error {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", linesType)
		o.w.Header().Set("X-Accel-Buffering", "no") // nginx would gather the lines
	}
	boundWrites(o.w)
	if err := json.NewEncoder(o.w).Encode(l); err != nil {
		return err
	}
	if err := http.NewResponseController(o.w).Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// errorLine is an error as the last line.
func errorLine(err error) prefillLine {
	status, body := openai.ErrorBody(err)
	var e struct{ Error json.RawMessage }
	_ = json.Unmarshal(body, &e) // it was marshalled
	return prefillLine{Error: e.Error, Status: status}
}

// readPrefill reads a request's body. The caller owes the body's Free, which holds the
// memory of the tokens.
func (n *Node) readPrefill(w http.ResponseWriter, r *http.Request) (q PrefillRequest, body *openai.Body, err error) {
	body, err = n.bodies.Read(w, r, maxPrefillBody)
	var big *http.MaxBytesError
	var said *openai.Error
	switch {
	case errors.As(err, &said):
		return q, nil, said
	case errors.As(err, &big):
		return q, nil, invalid("", fmt.Sprintf("the body is longer than %d bytes", big.Limit))
	case err != nil:
		return q, nil, invalid("", fmt.Sprintf("the body cannot be read: %v", err))
	}
	body.Parse(func() { q, err = parsePrefill(body.Bytes) })
	if err != nil {
		body.Free()
		return q, nil, err
	}
	body.Keep(4 * cap(q.Tokens))
	body.Bytes = nil
	return q, body, nil
}

// parsePrefill makes a request of a body.
func parsePrefill(body []byte) (q PrefillRequest, err error) {
	// There is a comma between two tokens, so there are no more than that: with memory
	// for as many, no list is copied because it grows.
	most := bytes.Count(body, []byte(",")) + 1
	if most > maxPrefillTokens {
		return q, invalid("", fmt.Sprintf("the body has %d members and tokens; there may be %d", most, maxPrefillTokens))
	}
	q.Tokens = make([]int32, 0, most)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return q, invalid("", fmt.Sprintf("the body is no prefill request: %v", err))
	}
	return q, nil
}

func invalid(param, text string) *openai.Error {
	return &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param, Code: "invalid_value", Message: text}
}
