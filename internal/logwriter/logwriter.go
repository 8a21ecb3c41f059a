package logwriter

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// queued bounds the bytes that wait for a slow reader of the log: some thousand
// lines.
const queued = 1 << 20

// Writer takes whole lines and hands them to one goroutine that writes them.
// Write never blocks and never fails.
type Writer struct {
	lost atomic.Uint64

	mu     sync.Mutex
	closed bool
	size   int // bytes in lines
	lines  [][]byte
	more   chan struct{} // holds one while there may be lines
	done   chan struct{} // closed when the goroutine has ended
}

// New starts a writer to out.
func New(out io.Writer) *Writer {
	w := &Writer{more: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run(out)
	return w
}

// Lost is how many lines were dropped: the output was closed, or its reader was
// too slow.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// Write takes one line, or several with the same fate.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.size+len(line) > queued {
		w.lost.Add(1)
		return len(line), nil
	}
	w.size += len(line)
	w.lines = append(w.lines, bytes.Clone(line))
	w.wake()
	return len(line), nil
}

// wake is called with mu held.
func (w *Writer) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Close writes what waits, for at most the given time, and takes no more lines.
func (w *Writer) Close(within time.Duration) {
	w.mu.Lock()
	w.closed = true
	w.wake()
	w.mu.Unlock()
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-w.done:
	case <-t.C:
	}
}

func (w *Writer) run(out io.Writer) {
	defer close(w.done)
	for range w.more {
		w.mu.Lock()
		lines, closed := w.lines, w.closed
		w.lines = nil
		w.mu.Unlock()
		for _, line := range lines {
			if _, err := out.Write(line); err != nil {
				w.lost.Add(1)
			}
			w.mu.Lock()
			w.size -= len(line)
			w.mu.Unlock()
		}
		if closed {
			return
		}
	}
}
