package openai

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"unicode/utf8"
)

// MaxBody bounds the body of a request, in bytes.
const MaxBody = 4 << 20

// readBody reads a request's body within limits of bytes. The caller owes its Free.
func readBody(b *Bodies, w http.ResponseWriter, r *http.Request) (*Body, *Error) {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
			return nil, &Error{Status: http.StatusUnsupportedMediaType, Type: typeInvalid, Code: "unsupported_media_type",
				Message: "Content-Type is " + strconv.Quote(ct) + "; it must be application/json"}
		}
	}
	if ce := r.Header.Get("Content-Encoding"); ce != "" && ce != "identity" {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Type: typeInvalid, Code: "unsupported_media_type",
			Message: "Content-Encoding is " + strconv.Quote(ce) + "; compressed bodies are not supported"}
	}
	body, err := b.Read(w, r, MaxBody)
	var big *http.MaxBytesError
	var said *Error
	switch {
	case errors.As(err, &said):
		return nil, said
	case errors.As(err, &big):
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "request_too_large",
			Message: "the body is longer than " + strconv.Itoa(MaxBody) + " bytes"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Error{Status: http.StatusRequestTimeout, Type: typeInvalid, Code: "request_timeout",
			Message: "the body was not complete in time"}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		return nil, errGone
	case err != nil:
		return nil, invalid("", "invalid_body", "the body cannot be read: %v", err)
	}
	return body, nil
}

// errGone: the client has closed its connection; nobody sees it.
var errGone = &Error{Message: "the client has gone"}

// decodeBody makes fields of a body, which must be one JSON object in UTF-8.
func decodeBody(body []byte) (*fields, *Error) {
	if len(body) == 0 {
		return nil, invalid("", "invalid_json", "the body is empty; it must be a JSON object")
	}
	if at := invalidUTF8(body); at >= 0 {
		return nil, invalid("", "invalid_utf8", "the body is not UTF-8: byte %d is 0x%02x", at, body[at])
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, invalid("", "invalid_json", "the body is not JSON: %v, at byte %d", syntax, syntax.Offset)
		}
		return nil, invalid("", "invalid_json", "the body is %s; it must be an object", kindOf(body))
	}
	if m == nil {
		return nil, invalid("", "invalid_json", "the body is null; it must be an object")
	}
	if at := loneSurrogate(body); at >= 0 {
		return nil, invalid("", "invalid_utf8", "byte %d begins an escaped surrogate without its other half: %s", at, body[at:at+6])
	}
	return &fields{m: m, bad: new(*Error), read: map[string]bool{}}, nil
}

// invalidUTF8 is the offset of the first byte that is not UTF-8, or −1.
func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// loneSurrogate is the offset of an escape \ud800–\udfff of valid JSON that has
// no other half, or −1. The decoder would put U+FFFD there, and so another text
// into the prompt than the one that was sent.
func loneSurrogate(b []byte) int {
	for i := 0; i+1 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		u := escaped(b[i:])
		switch {
		case u < 0xd800 || u > 0xdfff:
			i++ // the escaped character, which may be a backslash
		case u < 0xdc00 && i+12 <= len(b) && escaped(b[i+6:]) >= 0xdc00 && escaped(b[i+6:]) <= 0xdfff:
			i += 11
		default:
			return i
		}
	}
	return -1
}

// escaped is the number of an escape \uXXXX at the beginning of b, or −1.
func escaped(b []byte) int {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return int(v)
}
