package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxEvent bounds a line of a stream, and the data of one event.
const MaxEvent = 1 << 20

// ErrEventTooLong is of a server that sends more than MaxEvent bytes as one event.
var ErrEventTooLong = fmt.Errorf("openai: an event of the stream is longer than %d bytes", MaxEvent)

// events reads server-sent events: the data of each, without its name and id,
// which this API does not use. Source: HTML Living Standard, 9.2.6; a lone
// carriage return ends no line here.
type events struct {
	r     *bufio.Reader
	data  bytes.Buffer
	line  []byte
	heard func(line []byte) // called for each line, comments too
}

func newEvents(r io.Reader) *events {
	return &events{r: bufio.NewReaderSize(r, 4096), heard: func([]byte) {}}
}

// next is the data of the next event, valid until the next call. io.EOF: the
// stream has ended; an event that it broke off is dropped.
func (e *events) next() ([]byte, error) {
	e.data.Reset()
	some := false
	for {
		line, err := e.readLine()
		if err != nil {
			return nil, err
		}
		e.heard(line)
		if len(line) == 0 {
			if some {
				return e.data.Bytes(), nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" { // event, id, retry, a comment, or a field of the future
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if e.data.Len()+len(value)+1 > MaxEvent {
			return nil, ErrEventTooLong
		}
		if some {
			e.data.WriteByte('\n')
		}
		e.data.Write(value)
		some = true
	}
}

// readLine is a line without its end. A last line without an end is dropped.
func (e *events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		part, err := e.r.ReadSlice('\n')
		if len(e.line)+len(part) > MaxEvent {
			return nil, ErrEventTooLong
		}
		e.line = append(e.line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(e.line, []byte("\n")), []byte("\r")), nil
	}
}
