package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress shows a run while it goes on: one line that changes on a terminal,
// a line now and then in a pipe, nothing when W is nil.
type Progress struct {
	W        io.Writer
	Terminal bool

	state *progressState
}

type progressState struct {
	mu    sync.Mutex
	last  time.Time
	width int
}

// Columns is the width that all output of the demo fits.
const Columns = 80

// pipeEvery is how often progress is written where lines stay.
const (
	pipeEvery     = 2 * time.Second
	terminalEvery = 100 * time.Millisecond
)

// say writes a line that stays.
func (p Progress) say(format string, args ...any) {
	if p.W == nil {
		return
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	p.clear()
	_, _ = fmt.Fprintf(p.W, format+"\n", args...)
}

// step shows how far the run is.
func (p Progress) step(now time.Time, format string, args ...any) {
	if p.W == nil {
		return
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	every := pipeEvery
	if p.Terminal {
		every = terminalEvery
	}
	if now.Sub(p.state.last) < every {
		return
	}
	p.state.last = now
	line := fmt.Sprintf(format, args...)
	// A line that wraps cannot be cleared; 79, as a full line wraps on some.
	line = line[:min(len(line), Columns-1)]
	if !p.Terminal {
		_, _ = fmt.Fprintln(p.W, line)
		return
	}
	p.clear()
	_, _ = fmt.Fprint(p.W, line)
	p.state.width = len(line)
}

// clear removes the line that changes.
func (p Progress) clear() {
	if p.Terminal && p.state.width > 0 {
		_, _ = fmt.Fprint(p.W, "\r"+strings.Repeat(" ", p.state.width)+"\r")
		p.state.width = 0
	}
}

// done removes the line that changes for good.
func (p Progress) done() {
	if p.W == nil {
		return
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	p.clear()
}
