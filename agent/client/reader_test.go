package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// pings starts n concurrent calls; each one's error comes.
func pings(c context.Context, e *client.Engine, n int) <-chan error {
	errs := make(chan error, n)
	for range n {
		go func() { errs <- e.Ping(c) }()
	}
	return errs
}

// gather reads n requests.
func (d *daemon) gather(n int) (reqs []uint64) {
	for range n {
		f, _, ok := d.next()
		if !ok {
			break
		}
		reqs = append(reqs, f.Req)
	}
	return reqs
}

func (d *daemon) finish(reqs ...uint64) {
	for _, r := range reqs {
		d.write(message(link.TypeEnd, r, link.End{}))
	}
}

// answerAll answers what comes until the engine has gone.
func (d *daemon) answerAll() {
	for {
		f, _, ok := d.next()
		if !ok {
			return
		}
		d.finish(f.Req)
	}
}

func dial(t *testing.T, o client.Options, script func(*daemon)) *client.Engine {
	t.Helper()
	e, err := client.DialEngine(ctx, serve(t, func(d *daemon) {
		d.greet()
		script(d)
	}), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// One caller reads for all; the caller that is answered last is not forgotten, whether the
// answers come one by one or together, and in any order.
func TestNoCallerIsStranded(t *testing.T) {
	const callers, rounds = 32, 20
	for name, answer := range map[string]func(*daemon, []uint64){
		"in order": func(d *daemon, r []uint64) { d.finish(r...) },
		"newest first": func(d *daemon, r []uint64) {
			slices.Reverse(r)
			d.finish(r...)
		},
		"together": func(d *daemon, r []uint64) {
			var all []byte
			for _, req := range r {
				all = append(all, message(link.TypeEnd, req, link.End{})...)
			}
			d.write(all)
		},
		"cut in two": func(d *daemon, r []uint64) {
			var all []byte
			for _, req := range r {
				all = append(all, message(link.TypeEnd, req, link.End{})...)
			}
			d.write(all[:len(all)/2+3], all[len(all)/2+3:])
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := dial(t, client.Options{}, func(d *daemon) {
				for range rounds {
					answer(d, d.gather(callers))
				}
				d.untilGone()
			})
			for range rounds {
				errs := pings(ctx, e, callers)
				for range callers {
					if err := <-errs; err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// Callers that come and go at their own pace, each with a context of its own.
func TestCallersFollowOneAnother(t *testing.T) {
	const callers, calls = 8, 300
	e := dial(t, client.Options{}, (*daemon).answerAll)
	errs := make(chan error, callers)
	for range callers {
		go func() {
			c, cancel := context.WithCancel(ctx)
			defer cancel()
			var err error
			for i := 0; i < calls && err == nil; i++ {
				err = e.Ping(c)
			}
			errs <- err
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Advice, and the daemon's end, come also while nobody calls, right after a call as
// well as much later.
func TestPhaseWhileNobodyCalls(t *testing.T) {
	const rounds = 50
	send := make(chan uint32)
	defer close(send)
	got := make(chan uint32, rounds)
	e := dial(t, client.Options{OnPhase: func(p client.Phase) { got <- p.Req }}, func(d *daemon) {
		for range rounds {
			d.finish(d.gather(1)...)
			d.write(message(link.TypePhase, 0, link.Phase{Req: <-send}))
			d.write(message(link.TypePhase, 0, link.Phase{Req: <-send}))
		}
	})
	for i := range uint32(rounds) {
		if err := e.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		for j := range uint32(2) {
			send <- 2*i + j
			if p := <-got; p != 2*i+j {
				t.Fatalf("advice about %d, want %d", p, 2*i+j)
			}
		}
	}
	<-e.Gone()
	if err := e.Err(); !errors.Is(err, wire.CodeLaneLost) {
		t.Errorf("error %v", err)
	}
}

// Advice does not wait for the answer that a caller waits for.
func TestPhaseWhileACallerReads(t *testing.T) {
	heard := make(chan struct{})
	e := dial(t, client.Options{OnPhase: func(client.Phase) { heard <- struct{}{} }}, func(d *daemon) {
		for range 50 {
			r := d.gather(1)
			d.write(message(link.TypePhase, 0, link.Phase{Req: 1}))
			<-heard
			d.finish(r...)
		}
		d.untilGone()
	})
	for range 50 {
		if err := e.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A caller that reads notices its context though nothing comes, tells the daemon,
// and leaves the connection usable: for the next call, and for its own late END.
func TestCancelOfACallerThatReads(t *testing.T) {
	const rounds = 10
	asked := make(chan struct{})
	e := dial(t, client.Options{}, func(d *daemon) {
		for range rounds {
			first, _, _ := d.next()
			asked <- struct{}{}
			f, _, _ := d.next()
			if f.Type != link.TypeCancel || f.Req != first.Req {
				t.Errorf("%s of %d, want CANCEL of %d", f.Type, f.Req, first.Req)
			}
			next, _, _ := d.next()
			d.finish(next.Req, first.Req)
		}
		d.untilGone()
	})
	for range rounds {
		c, cancel := context.WithCancel(ctx)
		errs := pings(c, e, 1)
		<-asked
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want that of the context", err)
		}
		if err := e.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A call that takes long gives up reading, but not its answer. The second call's
// deadline is far more reads away.
func TestAnswerComesAfterItsCallerStoppedReading(t *testing.T) {
	has := make(chan struct{}) // the daemon has the first call
	e := dial(t, client.Options{}, func(d *daemon) {
		r := d.gather(1)
		close(has)
		r = append(r, d.gather(1)...)
		if f, _, _ := d.next(); f.Type != link.TypeCancel {
			t.Errorf("%s, want CANCEL", f.Type)
		}
		d.finish(r...)
		d.untilGone()
	})
	first := pings(ctx, e, 1)
	<-has
	c, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := e.Ping(c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the context", err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestCloseWhileACallerReads(t *testing.T) {
	for _, callers := range []int{1, 2, 8} {
		waiting := make(chan struct{}) // the daemon has every call
		e := dial(t, client.Options{}, func(d *daemon) {
			d.gather(callers)
			close(waiting)
			d.untilGone()
		})
		errs := pings(ctx, e, callers)
		<-waiting
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		for range callers {
			var closed *client.ClosedError
			if err := <-errs; !errors.As(err, &closed) || closed.Cause != nil {
				t.Errorf("error %v, want closed by this side", err)
			}
		}
		if err := e.Ping(ctx); !errors.Is(err, wire.CodeLaneLost) {
			t.Errorf("call after Close: %v", err)
		}
	}
}

// The reader finds the end, and all others learn of it; what the daemon said
// last is kept.
func TestDaemonGoesWhileACallerReads(t *testing.T) {
	for name, c := range map[string]struct {
		last []byte
		code wire.Code
	}{
		"silently":     {nil, wire.CodeLaneLost},
		"with ERROR":   {message(link.TypeError, 0, link.Error{Code: wire.CodeTooMany}), wire.CodeTooMany},
		"in a frame":   {message(link.TypeEnd, 1, link.End{})[:9], wire.CodeLaneLost},
		"with garbage": {make([]byte, 100), wire.CodeCRC},
	} {
		t.Run(name, func(t *testing.T) {
			const callers = 8
			e := dial(t, client.Options{}, func(d *daemon) {
				d.gather(callers)
				d.write(c.last)
			})
			errs := pings(ctx, e, callers)
			for range callers {
				var closed *client.ClosedError
				if err := <-errs; !errors.As(err, &closed) || !errors.Is(err, c.code) {
					t.Errorf("error %v, want a closed connection with %s", err, c.code)
				}
			}
			<-e.Gone()
		})
	}
}
