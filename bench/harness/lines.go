package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// maxLine bounds a line in bytes: some numbers for each of millions of calls.
const maxLine = 64 << 20

// Writer writes values as lines, also from several goroutines.
type Writer struct {
	mu  sync.Mutex
	enc *json.Encoder
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{enc: json.NewEncoder(w)} }

// Put writes one value.
func (w *Writer) Put(v any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enc.Encode(v)
}

// Lines calls f with the value of each line of r, until f returns an error or r
// ends.
func Lines[T any](r io.Reader, f func(T) error) error {
	return rawLines(r, func(line []byte) error {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return fmt.Errorf("%.200q: %w", line, err)
		}
		return f(v)
	})
}

func rawLines(r io.Reader, f func([]byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	for s.Scan() {
		if err := f(s.Bytes()); err != nil {
			return err
		}
	}
	return s.Err()
}

// Serve is the other side of Process.Ask: it writes first, and then for each order
// of in the answer of do, in turn.
func Serve[O, A any](in io.Reader, out io.Writer, first A, do func(O) A) error {
	w := NewWriter(out)
	if err := w.Put(first); err != nil {
		return err
	}
	return Lines(in, func(o O) error { return w.Put(do(o)) })
}
