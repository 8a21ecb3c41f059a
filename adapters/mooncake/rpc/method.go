package rpc

import (
	"context"

	"meridian/adapters/mooncake/structpack"
)

// Method is a function of a server: Q is its arguments, A its answer.
type Method[Q, A any] struct {
	Name   string
	id     uint32
	ask    *structpack.Codec[Q] // nil: no arguments
	answer *structpack.Codec[A]
}

// NoArguments is the Q of a function that has none.
type NoArguments struct{}

// Plain is a function without arguments.
func Plain[A any](scope, name string) *Method[NoArguments, A] {
	return &Method[NoArguments, A]{Name: name, id: ID(scope + name), answer: structpack.Of[A]()}
}

// One is a function of one argument.
func One[Q, A any](scope, name string) *Method[Q, A] {
	return &Method[Q, A]{Name: name, id: ID(scope + name), ask: structpack.Of[Q](), answer: structpack.Of[A]()}
}

// Many is a function of several arguments, which are the fields of Q.
func Many[Q, A any](scope, name string) *Method[Q, A] {
	return &Method[Q, A]{Name: name, id: ID(scope + name), ask: structpack.Tuple[Q](), answer: structpack.Of[A]()}
}

// ID is the id that names the function on the wire.
func (m *Method[Q, A]) ID() uint32 { return m.id }

// Codes are the type codes of arguments and answer; the first is 0 without arguments.
func (m *Method[Q, A]) Codes() (ask, answer uint32) {
	if m.ask != nil {
		ask = m.ask.Code()
	}
	return ask, m.answer.Code()
}

// Call calls the function. The error is an *Error, *ConnError or *AnswerError, or
// says what is wrong with q.
func (m *Method[Q, A]) Call(ctx context.Context, c *Client, q Q) (a A, err error) {
	var body []byte
	if m.ask != nil {
		if body, err = m.ask.Append(nil, &q); err != nil {
			return a, err
		}
	}
	b, err := c.call(ctx, m.Name, m.id, body)
	if err != nil {
		return a, err
	}
	if a, err = m.answer.Decode(b); err != nil {
		return a, &AnswerError{Function: m.Name, Err: err}
	}
	return a, nil
}
