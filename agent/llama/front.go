package llama

import (
	"context"
	"errors"
	"net/http"

	"meridian/adapters/llamacpp"
	"meridian/agent/openai"
)

// Handler serves the OpenAI front and the partner's prefills.
func (n *Node) Handler(front http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", front)
	mux.HandleFunc(PrefillPath, n.servePrefill)
	return mux
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
