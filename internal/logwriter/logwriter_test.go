package logwriter

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// stuck blocks in its first Write until it is let go.
type stuck struct {
	entered, release chan struct{}
	bytes.Buffer
}

func (s *stuck) Write(b []byte) (int, error) {
	if s.Len() == 0 {
		close(s.entered)
		<-s.release
	}
	return s.Buffer.Write(b)
}

func TestLinesArriveInOrder(t *testing.T) {
	var out bytes.Buffer
	w := New(&out)
	var want strings.Builder
	for i := range 100 {
		fmt.Fprintf(&want, "line %d\n", i)
		fmt.Fprintf(w, "line %d\n", i)
	}
	w.Close(time.Minute)
	if out.String() != want.String() || w.Lost() != 0 {
		t.Errorf("lost %d, got\n%s", w.Lost(), out.String())
	}
}

func TestABrokenOutputCountsLines(t *testing.T) {
	w := New(failing{})
	for range 3 {
		if n, err := w.Write([]byte("x\n")); n != 2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	w.Close(time.Minute)
	_, _ = w.Write([]byte("after\n"))
	if w.Lost() != 4 {
		t.Errorf("lost %d, want 4", w.Lost())
	}
}

func TestAnOutputThatBlocksHoldsUpNobody(t *testing.T) {
	out := &stuck{entered: make(chan struct{}), release: make(chan struct{})}
	w := New(out)
	_, _ = w.Write([]byte("first\n"))
	<-out.entered
	line := bytes.Repeat([]byte("y"), queued/4)
	for range 8 {
		_, _ = w.Write(line)
	}
	if w.Lost() == 0 || w.Lost() > 8 {
		t.Errorf("lost %d of 8 lines that were twice what may wait", w.Lost())
	}
	w.Close(time.Nanosecond) // the daemon's end does not wait for it either
	close(out.release)
	<-w.done
}
