package llama

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"meridian/agent/openai"
)

// PrefillPath is where a node prefills for its partner.
const PrefillPath = "/meridian/v1/prefill"

// maxPrefillBody bounds a prefill request: a million tokens of 7 digits.
const maxPrefillBody = 8 << 20

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

// partner is the other node of a split.
type partner struct {
	url    string
	token  string
	http   *http.Client
	remote *openai.Remote
}

func newPartner(url, token string) *partner {
	url = strings.TrimRight(url, "/")
	t := &http.Transport{MaxIdleConnsPerHost: MaxSlots, MaxConnsPerHost: MaxSlots + waitingPerNode, IdleConnTimeout: time.Minute}
	if path, ok := strings.CutPrefix(url, "unix://"); ok {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		url = "http://localhost"
	}
	c := &http.Client{Transport: t}
	return &partner{url: url, token: token, http: c, remote: openai.NewRemote(openai.ClientConfig{URL: url, Token: token, HTTP: c})}
}

func (p *partner) close() { p.http.CloseIdleConnections() }

// prefill asks the partner and waits until the prompt's blocks can be pulled.
func (p *partner) prefill(ctx context.Context, q PrefillRequest) (PrefillReply, error) {
	ctx, cancel := context.WithTimeout(ctx, prefillTimeout)
	defer cancel()
	var out PrefillReply
	body, err := json.Marshal(q)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+PrefillPath, bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return out, err
	}
	if resp.StatusCode != http.StatusOK {
		return out, openai.ErrorOf(resp.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf("the partner's answer: %w", err)
	}
	return out, nil
}

// servePrefill answers PrefillPath.
func (n *Node) servePrefill(w http.ResponseWriter, r *http.Request) {
	reply, err := n.answerPrefill(w, r)
	if err != nil {
		openai.WriteError(w, n.errorFor(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // the asker has gone
}

func (n *Node) answerPrefill(w http.ResponseWriter, r *http.Request) (PrefillReply, error) {
	if r.Method != http.MethodPost {
		return PrefillReply{}, &openai.Error{Status: http.StatusMethodNotAllowed, Type: "invalid_request_error", Code: "method_not_allowed",
			Message: fmt.Sprintf("%s %s: only POST", r.Method, r.URL.Path)}
	}
	var q PrefillRequest
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPrefillBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return PrefillReply{}, invalid("", fmt.Sprintf("the body is longer than %d bytes", big.Limit))
		}
		return PrefillReply{}, invalid("", fmt.Sprintf("the body is no prefill request: %v", err))
	}
	return n.prefillFor(r.Context(), q)
}

func invalid(param, text string) *openai.Error {
	return &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param, Code: "invalid_value", Message: text}
}
