package openai

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"
)

// readRate is how fast a client must read, in bytes a second, once the time that all
// writes may wait is used up.
const readRate = 1 << 10

// patience is how many times the bound of one write all of them together may wait.
const patience = 2

// writer writes to a client that may not read. Each write has so much time, and all of
// them together patience times as much, which grows again as bytes are taken at readRate:
// one that reads a little of each write just in time does not hold what answers it for
// each write anew. The first error stays.
type writer struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	within time.Duration
	left   time.Duration // of patience*within
	last   time.Time     // when the last write ended
	code   int           // status that was sent; 0: none yet
	err    error
}

// newWriter bounds from now on what net/http itself writes too.
func newWriter(w http.ResponseWriter, within time.Duration) *writer {
	out := &writer{w: w, rc: http.NewResponseController(w), within: within, left: patience * within, last: time.Now()}
	out.extend()
	return out
}

func (o *writer) extend() {
	_ = o.rc.SetWriteDeadline(time.Now().Add(min(o.left, o.within))) // a recorder in a test has none
}

// waited takes note of a write that has ended.
func (o *writer) waited(began time.Time, bytes int) {
	o.last = time.Now()
	o.left = min(patience*o.within, o.left-o.last.Sub(began)+time.Duration(bytes)*time.Second/readRate)
}

func (o *writer) status(code int) {
	o.code = code
	o.w.WriteHeader(code)
}

// write sends b at once. Where no time is left, its deadline is over when it begins.
func (o *writer) write(b []byte) error {
	if o.err != nil {
		return o.err
	}
	o.extend()
	began := time.Now()
	defer func() { o.waited(began, len(b)) }()
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
