package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The types of the API's errors that this room makes itself.
const (
	typeInvalid = "invalid_request_error"
	typeRate    = "rate_limit_error"
	typeServer  = "server_error"
)

// errorBody is an error on the wire: {"error": {…}}.
type errorBody struct {
	Error *errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// invalid is status 400 for one parameter.
func invalid(param, code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: typeInvalid, Code: code, Param: param, Message: fmt.Sprintf(format, args...)}
}

func internal() *Error {
	return &Error{Status: http.StatusInternalServerError, Type: typeServer, Code: "internal_error",
		Message: "the node failed; its log says why, on the line with the id of this request"}
}

// visible is err as a client may see it: an *Error, with what it leaves open
// filled in, or status 500 without the text of err.
func visible(err error) *Error {
	var said *Error
	if !errors.As(err, &said) {
		return internal()
	}
	e := *said
	if e.Status < 400 || e.Status > 599 {
		e.Status = http.StatusInternalServerError
	}
	if e.Type == "" {
		switch {
		case e.Status == http.StatusTooManyRequests:
			e.Type = typeRate
		case e.Status >= 500:
			e.Type = typeServer
		default:
			e.Type = typeInvalid
		}
	}
	return &e
}

// encode is the body of an error. The text of a foreign error may hold
// anything; json.Marshal makes valid UTF-8 of it.
func (e *Error) encode() []byte {
	b, err := json.Marshal(errorBody{&errorObject{Message: e.Message, Type: e.Type, Param: orNull(e.Param), Code: orNull(e.Code)}})
	if err != nil {
		panic(err) // strings marshal
	}
	return b
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// ErrorBody is err in the API's form, and its status.
func ErrorBody(err error) (status int, body []byte) {
	e := visible(err)
	return e.Status, e.encode()
}

// WriteError answers with err in the API's form: an *Error as it is, any other
// error as status 500 without its text.
func WriteError(w http.ResponseWriter, err error) {
	e := visible(err)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	body := append(e.encode(), '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // there is nobody to tell of a failure
}

// maxErrorText bounds what is shown of an answer that is not in the API's form.
const maxErrorText = 200

// ErrorOf makes an *Error of an answer with a status that is not 200. A body
// that is not in the API's form becomes the message, shortened.
func ErrorOf(status int, body []byte) *Error {
	var b errorBody
	if json.Unmarshal(body, &b) == nil && b.Error != nil && b.Error.Message != "" {
		return b.Error.as(status)
	}
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(body), "\uFFFD")), " ")
	if len(text) > maxErrorText {
		cut := maxErrorText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	if text == "" {
		text = http.StatusText(status)
	}
	return visible(&Error{Status: status, Message: text})
}

func (o *errorObject) as(status int) *Error {
	e := &Error{Status: status, Type: o.Type, Message: o.Message}
	if o.Param != nil {
		e.Param = *o.Param
	}
	if o.Code != nil {
		e.Code = *o.Code
	}
	return visible(e)
}

// UnmarshalJSON takes codes that are numbers too: llama.cpp and vLLM send those.
func (o *errorObject) UnmarshalJSON(b []byte) error {
	var loose struct {
		Message any `json:"message"`
		Type    any `json:"type"`
		Param   any `json:"param"`
		Code    any `json:"code"`
	}
	if err := json.Unmarshal(b, &loose); err != nil {
		return err
	}
	o.Message, o.Type = loosely(loose.Message), loosely(loose.Type)
	o.Param, o.Code = orNull(loosely(loose.Param)), orNull(loosely(loose.Code))
	return nil
}

func loosely(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
