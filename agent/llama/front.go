package llama

import (
	"context"
	"errors"
	"net/http"

	"meridian/adapters/llamacpp"
	"meridian/agent/openai"
	"meridian/internal/httpguard"
)

// Handler serves the OpenAI front, which has a guard of its own, and the
// partner's prefills behind the node's.
func (n *Node) Handler(front http.Handler) http.Handler {
	guard, err := n.cfg.guard()
	mux := http.NewServeMux()
	mux.Handle("/", front)
	mux.HandleFunc(PrefillPath, func(w http.ResponseWriter, r *http.Request) {
		if err != nil { // Start has checked it
			openai.WriteError(w, err)
			return
		}
		preflight, refused := guard.Check(w, r, false)
		switch {
		case refused != nil:
			openai.WriteError(w, &openai.Error{Status: refused.Status, Type: "invalid_request_error", Code: refused.Code, Message: refused.Text})
		case preflight:
			httpguard.AllowPreflight(w)
		default:
			n.servePrefill(w, r)
		}
	})
	return mux
}

// guard decides who may ask for prefills: the same as may use the front.
func (c *Config) guard() (*httpguard.Guard, error) {
	return httpguard.New(httpguard.Config{Hosts: c.Hosts, Origins: c.Origins, Token: c.Token, Table: "llama"})
}

// errorFor is an error as a client of the front sees it. The end of its own
// context stays what it is.
func (n *Node) errorFor(err error) error {
	var said *openai.Error
	var server *llamacpp.Error
	var conflict *conflictError
	switch {
	case errors.As(err, &said):
		return said
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &conflict):
		return &openai.Error{Status: http.StatusConflict, Type: "invalid_request_error", Code: "node_mismatch", Message: conflict.text}
	case errors.Is(err, ErrBusy):
		return &openai.Error{Status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "too_many_requests", Message: err.Error()}
	case errors.As(err, &server) && server.Status < 500:
		return &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: server.Type, Message: "llama-server: " + server.Message}
	case errors.Is(err, ErrDown), errors.Is(err, llamacpp.ErrGone):
		return &openai.Error{Status: http.StatusServiceUnavailable, Type: "server_error", Code: "engine_down", Message: err.Error()}
	}
	return &openai.Error{Status: http.StatusBadGateway, Type: "server_error", Code: "engine_failed", Message: err.Error()}
}
