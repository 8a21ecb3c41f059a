package openai

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// thinkingLong is a backend that says nothing for some seconds.
type thinkingLong struct {
	*fake
	engine error // of Alive
}

func (b *thinkingLong) Alive(context.Context) (Progress, error) {
	return Progress{Done: 7, WaitMS: 90}, b.engine
}

func (b *thinkingLong) Generate(ctx context.Context, r *Request, emit func(Token) error) (Result, error) {
	time.Sleep(3*time.Second + time.Millisecond)
	return b.fake.Generate(ctx, r, emit)
}

// A node that waits for another one is shown that it lives, before the first
// token too, and only while its engine answers. A client is not.
func TestAnotherNodeIsShownThatThisOneLives(t *testing.T) {
	for _, c := range []struct {
		name   string
		header []string
		engine error
		beats  int
	}{
		{"another node", []string{HopHeader, "1"}, nil, 6}, {"a client", nil, nil, 0}, {"an engine that hangs", []string{HopHeader, "1"}, errors.New("no answer"), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFront(t, Config{Backend: &thinkingLong{fake: saying(Token{ID: 1, Bytes: []byte("yes")}), engine: c.engine}})
			w := post(t, f, chatPath, hello+`,"stream":true}`, c.header...)
			if got := strings.Count(w.Body.String(), ": alive {\"done\":7,\"wait_ms\":90}\n\n"); w.Code != http.StatusOK || got != c.beats || !strings.Contains(w.Body.String(), "yes") || !strings.HasSuffix(w.Body.String(), "[DONE]\n\n") {
				t.Errorf("%s: %d signs of life, want %d: %s", c.name, got, c.beats, w.Body)
			}
		})
	}
}

// An error that comes after a sign of life is an event, as after a token.
func TestAnErrorAfterASignOfLifeIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &thinkingLong{fake: saying()}
		b.fake.generate = func(context.Context, *Request, func(Token) error) (Result, error) {
			return Result{}, &Error{Status: 503, Code: "engine_down", Message: "gone"}
		}
		w := post(t, newFront(t, Config{Backend: b}), chatPath, hello+`,"stream":true}`, HopHeader, "1")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "engine_down") || strings.Contains(w.Body.String(), "[DONE]") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
