package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// bar shows on a terminal how far a long command is, in one line that changes.
type bar struct {
	w     io.Writer
	began time.Time // of the first part that was counted
	shown time.Time
	width int // of the line
}

const (
	barWidth = 24
	barEvery = 100 * time.Millisecond
)

// show draws that done parts of total are done.
func (b *bar) show(done, total int, what string) { b.draw(time.Now(), done, total, what) }

func (b *bar) draw(now time.Time, done, total int, what string) {
	if b.began.IsZero() {
		b.began = now
	}
	if now.Sub(b.shown) < barEvery && done < total {
		return
	}
	b.shown = now
	total = max(total, 1)
	full := min(max(done, 0), total) * barWidth / total
	line := fmt.Sprintf("[%s%s] %3d %%  %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), min(max(done, 0), total)*100/total, what)
	if done > 0 && done < total {
		left := time.Duration(float64(now.Sub(b.began)) / float64(done) * float64(total-done))
		line += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	if len(line) > columns-1 { // a line that wraps cannot be drawn over
		line = line[:columns-1]
	}
	_, _ = fmt.Fprintf(b.w, "\r%s%s", line, strings.Repeat(" ", max(b.width-len(line), 0)))
	b.width = len(line)
}

// end removes the line.
func (b *bar) end() {
	if b.width > 0 {
		_, _ = fmt.Fprintf(b.w, "\r%s\r", strings.Repeat(" ", b.width))
		b.width = 0
	}
}
