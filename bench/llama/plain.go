package llama

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"meridian/adapters/llamacpp"
	"meridian/agent/llama"
	"meridian/agent/llama/pair"
)

// Plain is a llama-server as it is, with the arguments that the nodes give theirs
// and no Meridian: the other side of every comparison.
type Plain struct {
	API *llamacpp.Server

	cmd  *exec.Cmd
	dir  string
	done chan struct{}
}

// StartPlain starts the server of o and waits until it has loaded its model. The
// caller closes it.
func StartPlain(ctx context.Context, o *pair.Options) (*Plain, error) {
	dir, err := os.MkdirTemp("", "meridian-plain-")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "llama.sock")
	c := llama.Config{Server: o.Server, Model: o.Model, Args: o.Args, Context: o.Context, Slots: o.Slots, Threads: o.Threads}
	p := &Plain{cmd: c.Command(socket, dir), API: llamacpp.NewServer(socket), dir: dir, done: make(chan struct{})}
	if err := p.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // it is killed
		close(p.done)
	}()
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		if err = p.API.Health(ctx); err == nil {
			return p, nil
		}
		select {
		case <-p.done:
			p.Close()
			return nil, fmt.Errorf("the plain llama-server ended: %s", p.cmd.ProcessState)
		case <-ctx.Done():
			p.Close()
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}

// Close ends the server and waits for its end.
func (p *Plain) Close() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = os.RemoveAll(p.dir)
}

// ask sends a prompt as tokens, and lets the server use what its slot has.
func (p *Plain) ask(ctx context.Context, tokens []int32, max int) (*Answer, []int32, error) {
	a := &Answer{Prompt: len(tokens), Node: "llama-server"}
	var ids []int32
	began := time.Now()
	done, err := p.API.Stream(ctx, llamacpp.Completion{Prompt: tokens, Predict: max}, func(t llamacpp.Token) error {
		if a.TTFT == 0 {
			a.TTFT = time.Since(began)
		}
		a.Tokens, a.Logs, a.Text = append(a.Tokens, string(t.Bytes)), append(a.Logs, t.LogProb), a.Text+string(t.Bytes)
		ids = append(ids, t.ID)
		return nil
	})
	a.Total = time.Since(began)
	a.Cached, a.Computed = done.Cached, done.Computed
	if err == nil && done.Lost {
		err = fmt.Errorf("the answer has a token that ends within a character: it cannot be compared")
	}
	return a, ids, err
}
