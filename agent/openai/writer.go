package openai

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"
)

// writer writes to a client that may not read. Each write has so much time, and
// the first error stays.
type writer struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	within time.Duration
	code   int // status that was sent; 0: none yet
	err    error
}

// newWriter bounds from now on what net/http itself writes too.
func newWriter(w http.ResponseWriter, within time.Duration) *writer {
	out := &writer{w: w, rc: http.NewResponseController(w), within: within}
	out.extend()
	return out
}

func (o *writer) extend() {
	_ = o.rc.SetWriteDeadline(time.Now().Add(o.within)) // a recorder in a test has none
}

func (o *writer) status(code int) {
	o.code = code
	o.w.WriteHeader(code)
}

// write sends b at once.
func (o *writer) write(b []byte) error {
	if o.err != nil {
		return o.err
	}
	o.extend()
	if _, err := o.w.Write(b); err != nil {
		o.err = err
		return err
	}
	if err := o.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		o.err = err
	}
	return o.err
}

func (o *writer) json(code int, v any) error {
	var b bytes.Buffer
	if err := encodeJSON(&b, v); err != nil {
		return err
	}
	o.w.Header().Set("Content-Type", "application/json")
	o.w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	o.status(code)
	return o.write(b.Bytes())
}

func (o *writer) error(e *Error) error {
	o.code = e.Status
	o.extend()
	WriteError(o.w, e)
	if err := o.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		o.err = err
	}
	return o.err
}

// slow says whether the client did not read in time.
func (o *writer) slow() bool { return errors.Is(o.err, os.ErrDeadlineExceeded) }
