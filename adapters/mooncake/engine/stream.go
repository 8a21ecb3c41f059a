package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"meridian/wire"
)

// part is how much of a body a peer gets the progress time for, so that one that
// sends a byte now and then does not hold memory for long.
const part = 1 << 20

// until is the deadline of the next part: a body that always makes some progress ends
// too.
func until(progress time.Duration, end time.Time) time.Time {
	if t := time.Now().Add(progress); t.Before(end) {
		return t
	}
	return end
}

// progressError is a step that a peer did not finish in its time, or at all.
type progressError struct {
	step      string
	done, all uint64
	cause     error
}

func (e *progressError) Error() string {
	return fmt.Sprintf("mooncake: %s, %d of %d bytes: %v", e.step, e.done, e.all, e.cause)
}

// Unwrap returns NO_PROGRESS for a deadline, else LANE_LOST, and the cause.
func (e *progressError) Unwrap() []error {
	if ne, ok := errors.AsType[net.Error](e.cause); ok && ne.Timeout() {
		return []error{wire.CodeNoProgress, e.cause}
	}
	return []error{wire.CodeLaneLost, e.cause}
}

// readBody fills b, of which done bytes are there already; each part has its time, and
// so has all. done counts what came. What came behind it lies in ahead, extra bytes.
func readBody(in *scatter, b []byte, done uint64, ahead []byte, progress time.Duration) (_ uint64, extra int, err error) {
	all, end := uint64(len(b)), time.Now().Add(BodyTime)
	b = b[done:]
	var vec [2][]byte
	for len(b) > 0 {
		n := min(len(b), part)
		_ = in.c.SetReadDeadline(until(progress, end))
		for n > 0 {
			bufs := append(vec[:0], b[:n])
			if n == len(b) && len(ahead) > 0 {
				bufs = append(bufs, ahead)
			}
			m, err := in.read(bufs)
			got := min(m, n)
			done, b, n, extra = done+uint64(got), b[got:], n-got, m-got
			if err != nil && len(b) > 0 {
				return done, 0, &progressError{"receiving a body", done, all, ended(err)}
			}
		}
	}
	return done, extra, nil
}

// ended is the end of a stream that was to go on.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeBody sends head and b, in one call of the system where they are short; each part
// has its time, and so has all.
func writeBody(out *scatter, head, b []byte, progress time.Duration) error {
	all, done, end := uint64(len(b)), uint64(0), time.Now().Add(BodyTime)
	var vec [2][]byte
	for first := true; first || len(b) > 0; first = false {
		n := min(len(b), part)
		_ = out.c.SetWriteDeadline(until(progress, end))
		bufs := vec[:0]
		if first && len(head) > 0 {
			bufs = append(bufs, head)
		}
		if n > 0 {
			bufs = append(bufs, b[:n])
		}
		if err := out.write(bufs); err != nil {
			return &progressError{"sending a body", done, all, err}
		}
		done += uint64(n)
		b = b[n:]
	}
	return nil
}
