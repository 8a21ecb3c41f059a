package peers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"meridian/bench/harness"
)

// answerWait bounds how long a process may take for an order, over the time
// that the order asks for: a prepare fills up to a GiB.
const answerWait = 90 * time.Second

// process is one process of a pair, and its conversation.
type process struct{ *harness.Process }

// ProcessError is what went wrong with a process of a pair: Err is its own
// answer, or what its conversation ended with; Log the end of its stderr.
type ProcessError struct {
	Process, Do string
	Err         error
	Log         string
}

// Error names process and order.
func (e *ProcessError) Error() string {
	s := e.Process + ", " + e.Do + ": " + e.Err.Error()
	if e.Log != "" {
		s += "\n  its log ends: " + e.Log
	}
	return s
}

// Unwrap returns Err.
func (e *ProcessError) Unwrap() error { return e.Err }

// errAnswer is matched by failures that a process itself told; it goes on
// answering after one.
var errAnswer = errors.New("it says")

// start runs cmd in dir. With talk it is one that answers orders, until its input
// ends.
func start(dir, name string, cmd *exec.Cmd, talk bool) (*process, error) {
	cmd.Dir = dir
	p, err := harness.Start(name, cmd, harness.Options{Log: harness.LogIn(dir, name), Talk: talk, Term: !talk})
	if err != nil {
		return nil, err
	}
	return &process{p}, nil
}

// ask gives an order and returns its answer.
func (p *process) ask(ctx context.Context, c command) (answer, error) {
	if err := p.Put(c); err != nil {
		return answer{}, p.failed(c.Do, err)
	}
	return p.answer(ctx, c.Do, answerWait+time.Duration(c.MS)*time.Millisecond)
}

// answer waits for the next line.
func (p *process) answer(ctx context.Context, do string, wait time.Duration) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := p.Next(ctx, &a); err != nil {
		return a, p.failed(do, err)
	}
	if a.Error != "" {
		return a, p.failed(do, fmt.Errorf("%w: %s", errAnswer, a.Error))
	}
	return a, nil
}

func (p *process) failed(do string, err error) error {
	return &ProcessError{Process: p.Name, Do: do, Err: err, Log: p.Log()}
}
