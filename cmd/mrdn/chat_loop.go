package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"meridian/agent/openai"
)

// converse is a conversation on a terminal, which edits the lines itself.
func (s *chat) converse(c *cobra.Command) error {
	if !c.Flags().Changed("timeout") {
		s.a.timeout = longTimeout
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	// The program's own context ends with the first ctrl-C, which here ends an
	// answer only.
	return s.loop(context.WithoutCancel(c.Context()), linesOf(s.a.in), signals)
}

// linesOf reads ahead by one line, so that a signal at the prompt is heard. The
// goroutine waits for the terminal until the program ends.
func linesOf(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(r)
		in.Buffer(nil, openai.MaxBody)
		for in.Scan() {
			lines <- in.Text()
		}
	}()
	return lines
}

// loop ends without an error: what goes wrong with one answer is said, and the
// next may go well.
func (s *chat) loop(ctx context.Context, lines <-chan string, signals <-chan os.Signal) error {
	for {
		if _, err := io.WriteString(s.a.out, "> "); err != nil {
			return err
		}
		select {
		case <-signals:
			_, err := io.WriteString(s.a.out, "\n")
			return err
		case line, ok := <-lines:
			switch strings.TrimSpace(line) {
			case "":
				if !ok { // ctrl-D leaves the cursor behind the prompt
					_, err := io.WriteString(s.a.out, "\n")
					return err
				}
			case "/quit":
				return nil
			case "/reset":
				s.history = nil
			default:
				if quit, err := s.turn(ctx, line, signals); quit || err != nil {
					return err
				}
			}
		}
	}
}

// turn is one answer, which a signal ends; one that is not ctrl-C ends the
// conversation too.
func (s *chat) turn(ctx context.Context, prompt string, signals <-chan os.Signal) (quit bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, s.a.timeout)
	defer cancel()
	done, heard := make(chan struct{}), make(chan os.Signal, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case sig := <-signals:
			heard <- sig
			cancel()
		case <-done:
		}
	}()
	p := s.printer()
	r, err := s.ask(ctx, prompt, p)
	close(done)
	<-watched
	if e := p.end(); e != nil {
		return true, e
	}
	select {
	case sig := <-heard:
		if err != nil {
			_, _ = fmt.Fprintln(s.a.err, "cancelled; the conversation goes on as before this question")
			return sig != os.Interrupt, nil
		}
	default:
	}
	switch {
	case err == nil:
		_, err = fmt.Fprintln(s.a.err, r.summary())
		return false, err
	case errors.Is(err, context.Canceled): // by nobody here
		return true, err
	}
	s.a.report(asCommandFailure(s.failure(err)))
	return false, nil
}
