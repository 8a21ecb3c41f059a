package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"meridian/wire"
)

// The protocol: one Event a line in JSON, answered by one Answer a line, in
// order. A line that is no event is answered with its Error, and the stream goes
// on; a longer one than maxLine ends it.
const (
	maxLine  = 64 << 10
	maxPeers = 256 // connections of one Serve at a time
)

// Attend answers the events of one stream until it ends.
func Attend(r io.Reader, w io.Writer, j Judge) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 4096), maxLine)
	out := json.NewEncoder(w)
	for in.Scan() {
		var e Event
		var a Answer
		err := json.Unmarshal(in.Bytes(), &e)
		if err != nil {
			err = fmt.Errorf("%w: %w", wire.CodeInvalid, err)
		} else {
			a, err = j.Tell(e)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return in.Err()
}

// Serve attends to every connection of l until ctx ends, and then closes l and
// all of them. It returns when the last one is done; the error is why accepting
// ended, nil for ctx.
func Serve(ctx context.Context, l net.Listener, j Judge) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	room := make(chan struct{}, maxPeers)
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		select {
		case room <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-room }()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			defer func() { _ = c.Close() }()
			_ = Attend(c, c, j) // a reporter that breaks off is its own business
		})
	}
}

// Remote is a judge in another process. It is safe for concurrent use; events
// are answered one after the other.
type Remote struct {
	mu  sync.Mutex
	c   io.ReadWriteCloser
	in  *bufio.Reader
	out *json.Encoder
}

// NewRemote speaks to the judge at the other end of c.
func NewRemote(c io.ReadWriteCloser) *Remote {
	return &Remote{c: c, in: bufio.NewReader(c), out: json.NewEncoder(c)}
}

// Dial connects to a judge, "unix" and a path for example.
func Dial(ctx context.Context, network, addr string) (*Remote, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return NewRemote(c), nil
}

// Tell sends one event and waits for the answer.
func (r *Remote) Tell(e Event) (Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var a Answer
	if err := r.out.Encode(e); err != nil {
		return a, fmt.Errorf("tell the judge: %w", err)
	}
	line, err := r.in.ReadBytes('\n')
	if err != nil {
		return a, fmt.Errorf("the judge's answer: %w", err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("the judge's answer: %w", err)
	}
	if a.Error != "" {
		return a, errors.New("the judge refused: " + a.Error)
	}
	return a, nil
}

// Report asks for the report.
func (r *Remote) Report() (Report, error) {
	a, err := r.Tell(Event{Op: OpReport})
	if err != nil {
		return Report{}, err
	}
	if a.Report == nil {
		return Report{}, errors.New("the judge sent no report")
	}
	return *a.Report, nil
}

// Close ends the connection.
func (r *Remote) Close() error { return r.c.Close() }
