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

// Who waits for a stream is shown that the node lives, before the first token too, and
// only while its engine answers: another node by numbers, a client by a comment. The
// first chunk comes with the first token.
func TestWhoWaitsForAStreamIsShownThatTheNodeLives(t *testing.T) {
	const numbers, comment = ": alive {\"done\":7,\"wait_ms\":90}\n\n", ": waiting\n\n"
	for _, c := range []struct {
		name   string
		header []string
		engine error
		want   string
	}{
		{"another node", []string{HopHeader, "1"}, nil, strings.Repeat(numbers, 6)},
		{"a client", nil, nil, strings.Repeat(comment, 6)},
		{"another node, an engine that hangs", []string{HopHeader, "1"}, errors.New("no answer"), ""},
		{"a client, an engine that hangs", nil, errors.New("no answer"), ""},
	} {
		for _, path := range []string{chatPath, completionsPath} {
			body := map[string]string{chatPath: hello, completionsPath: `{"model":"m","prompt":"a"`}[path]
			synctest.Test(t, func(t *testing.T) {
				f := newFront(t, Config{CommentEvery: BeatEvery, Backend: &thinkingLong{fake: saying(Token{ID: 1, Bytes: []byte("yes")}), engine: c.engine}})
				w := post(t, f, path, body+`,"stream":true}`, c.header...)
				rest, ok := strings.CutPrefix(w.Body.String(), c.want)
				if w.Code != http.StatusOK || !ok || !strings.HasPrefix(rest, "data: ") || strings.Contains(rest, "\n:") || !strings.Contains(rest, "yes") || !strings.HasSuffix(rest, "[DONE]\n\n") {
					t.Errorf("%s, %s: want %q first: %s", path, c.name, c.want, w.Body)
				}
			})
		}
	}
}

// steps is a backend that emits a token after each of some waits.
func steps(waits ...time.Duration) *fake {
	return &fake{generate: func(_ context.Context, _ *Request, emit func(Token) error) (Result, error) {
		for _, d := range waits {
			time.Sleep(d)
			if err := emit(Token{Bytes: []byte("x")}); err != nil {
				return Result{}, err
			}
		}
		return Result{Finish: "stop"}, nil
	}}
}

// An answer that stands still in the middle, as a preempted one does, has signs of life
// as one that has not begun; one that goes on has none.
func TestOnlyASilentStreamHasSignsOfLife(t *testing.T) {
	often := make([]time.Duration, 20)
	for i := range often {
		often[i] = BeatEvery - time.Millisecond
	}
	for name, c := range map[string]struct {
		waits []time.Duration
		want  int
	}{
		"tokens come in time": {often, 0},
		"tokens, then none":   {[]time.Duration{BeatEvery / 5, BeatEvery / 5, 3*BeatEvery + 1, BeatEvery / 5}, 3},
	} {
		for _, header := range [][]string{nil, {HopHeader, "1"}} {
			synctest.Test(t, func(t *testing.T) {
				w := post(t, newFront(t, Config{CommentEvery: BeatEvery, Backend: steps(c.waits...)}), chatPath, streamed+"}", header...)
				if got := strings.Count(w.Body.String(), "\n: "); got != c.want || w.Code != http.StatusOK {
					t.Errorf("%s, %q: %d signs of life, want %d: %s", name, header, got, c.want, w.Body)
				}
			})
		}
	}
}

// A client's stream has a comment each 15 s.
func TestAClientHasACommentNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := post(t, newFront(t, Config{Backend: steps(31 * time.Second)}), chatPath, streamed+"}")
		if got := strings.Count(w.Body.String(), ": waiting\n\n"); got != 2 || w.Code != http.StatusOK {
			t.Errorf("%d comments in 31 s: %s", got, w.Body)
		}
	})
}

// An answer that goes out whole has nothing before it.
func TestAWholeAnswerHasNoSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := post(t, newFront(t, Config{CommentEvery: BeatEvery, Backend: steps(5 * BeatEvery)}), chatPath, hello+"}")
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "{") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

// An error that is known before the first sign of life keeps its status.
func TestAnErrorThatIsKnownAtOnceKeepsItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fake{generate: func(context.Context, *Request, func(Token) error) (Result, error) {
			time.Sleep(DefaultCommentEvery - 1)
			return Result{}, &Error{Status: http.StatusTooManyRequests, Message: "full"}
		}}
		w := post(t, newFront(t, Config{Backend: b}), chatPath, streamed+"}")
		if w.Code != http.StatusTooManyRequests || errorIn(t, w.Body.Bytes()).Message != "full" || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

// A client that does not even read signs of life is ended while it waits.
func TestAClientThatDoesNotReadSignsOfLifeIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fake{generate: func(ctx context.Context, _ *Request, _ func(Token) error) (Result, error) {
			<-ctx.Done()
			return Result{}, ctx.Err()
		}}
		f, m := newFront(t, Config{CommentEvery: BeatEvery, Backend: b}), newMemory()
		_, stop := startServer(f, m)
		c, err := begin(m, streamed+"}")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(BeatEvery + DefaultWriteTimeout - 1)
		synctest.Wait()
		if s := f.Stats(); s.Active != 1 {
			t.Errorf("before its time is over: %+v", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := f.Stats(); s.Active != 0 || s.Slow != 1 {
			t.Errorf("afterwards: %+v", s)
		}
		_ = c.Close()
		stop()
	})
}

// An error that comes after a sign of life is an event, as after a token.
func TestAnErrorAfterASignOfLifeIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &thinkingLong{fake: saying()}
		b.fake.generate = func(context.Context, *Request, func(Token) error) (Result, error) {
			return Result{}, &Error{Status: 503, Code: "engine_down", Message: "gone"}
		}
		for _, header := range [][]string{{HopHeader, "1"}, nil} {
			f := newFront(t, Config{CommentEvery: BeatEvery, Backend: b})
			w := post(t, f, chatPath, streamed+"}", header...)
			_, event, ok := strings.Cut(w.Body.String(), "data: ")
			if w.Code != http.StatusOK || !ok || errorIn(t, []byte(event)).Code != "engine_down" || f.Stats().Broken != 1 {
				t.Errorf("%q: %d %s", header, w.Code, w.Body)
			}
		}
	})
}
