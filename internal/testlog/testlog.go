// Package testlog keeps what a test's daemons and parts log, from all of their
// goroutines.
package testlog

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer is a log's writer. Its zero value is empty.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is everything that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Lines are the lines that were written.
func (b *Buffer) Lines() []string {
	return strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\n' })
}
