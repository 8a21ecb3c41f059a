package rpc

import (
	"errors"
	"fmt"
)

// Code is what coro_rpc itself says of a call; what the function says is in the
// answer.
type Code uint8

// The codes that a server sends.
const (
	CodeBadArguments Code = 4
	CodeThrown       Code = 10
	CodeUnknown      Code = 11
	CodeProtocol     Code = 12
	CodeTooLong      Code = 14
	CodeCustom       Code = 255
)

var codeNames = map[Code]string{
	1: "io error", 2: "timeout", 3: "not connected", CodeBadArguments: "invalid arguments", 5: "the operation was cancelled",
	CodeThrown: "the function threw", CodeUnknown: "the function is not known", CodeProtocol: "protocol error",
	13: "unknown protocol", CodeTooLong: "the message is too long", CodeCustom: "an error of the function's own",
}

func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return "not a known code"
}

// Error is a call that the server refused. The connection stays.
type Error struct {
	Function string
	Code     Code
	Text     string // the server's words
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: the server answers %d, %v", e.Function, uint8(e.Code), e.Code)
	if e.Text != "" {
		s += fmt.Sprintf(" (%.200q)", e.Text)
	}
	return s
}

// ErrClosed is returned after Close.
var ErrClosed = errors.New("rpc: the client is closed")

// ErrSilent is why a connection is given up on which nothing arrived until a call's
// deadline.
var ErrSilent = errors.New("nothing arrived before the deadline of a call")

// ConnError is a call without an answer, because of the connection.
type ConnError struct {
	Function string
	Address  string // "" where none was reached
	Sent     bool   // the call may have been carried out
	Err      error
}

func (e *ConnError) Error() string {
	s := e.Function
	if e.Address != "" {
		s += ": " + e.Address
	}
	if e.Sent {
		s += ": no answer, and it may have been carried out"
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *ConnError) Unwrap() error { return e.Err }

// AnswerError is an answer that is not what the function answers in the version
// that is known here.
type AnswerError struct {
	Function string
	Err      error // a structpack.CodeError or structpack.SyntaxError
}

func (e *AnswerError) Error() string { return e.Function + ": its answer: " + e.Err.Error() }

// Unwrap returns Err.
func (e *AnswerError) Unwrap() error { return e.Err }
