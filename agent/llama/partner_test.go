package llama

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/agent/openai"
)

// memory is a listener whose connections are pipes, so that all waiting is by the
// bubble's clock.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.once.Do(func() { close(m.done) }); return nil }
func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case m.conns <- there:
		return here, nil
	case <-m.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// counts are fallbacks by operation and reason.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(operation, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[operation+" "+reason]++
}

func (c *counts) get(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[what]
}

// other plays the partner of a node by a handler, in a bubble of its own time.
func other(t *testing.T, h http.Handler, link func(string) error, test func(t *testing.T, p *partner, c *counts)) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{conns: make(chan net.Conn), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		srv := &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		var wg sync.WaitGroup
		wg.Go(func() { _ = srv.Serve(m) })
		c := &counts{of: map[string]int{}}
		p := &partner{url: "http://partner", bound: DefaultPartnerTimeout, log: slog.New(slog.DiscardHandler), run: ctx, spawn: wg.Go, blocked: link, count: c.add}
		p.connect(&http.Transport{DialContext: m.dial})
		test(t, p, c)
		cancel()
		p.close()
		_ = srv.Close()
		_ = m.Close()
		wg.Wait()
		synctest.Wait()
	})
}

// prompt does what a job does with its partner, and says how long it took.
func ask(p *partner) (time.Duration, error) {
	began := time.Now()
	if err := p.worth("prefill"); err != nil {
		return time.Since(began), err
	}
	reply, err := p.prefill(context.Background(), PrefillRequest{Model: "m", Tokens: []int32{1}})
	if err != nil {
		p.failed("prefill", err)
	} else {
		p.knows(reply.Agent)
	}
	return time.Since(began), err
}

// hangs answers nothing for as long as it is told to, and then well.
type hangs struct {
	mu    sync.Mutex
	how   func(w http.ResponseWriter, r *http.Request)
	asked int
}

func (h *hangs) set(how func(http.ResponseWriter, *http.Request)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.how = how
}

func (h *hangs) posts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked
}

func (h *hangs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	if r.Method == http.MethodPost {
		h.asked++
	}
	how := h.how
	h.mu.Unlock()
	how(w, r)
}

func never(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func well(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"agent":"other"}`)
}

// trickle sends a byte a second.
func trickle(contentType string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, " "); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			sleep(r.Context(), time.Second, nil)
		}
	}
}

func TestAWedgedPartnerCostsAPromptTwoSecondsOnce(t *testing.T) {
	for name, how := range map[string]func(http.ResponseWriter, *http.Request){
		"it never answers": never, "a byte a second": trickle("application/json"), "a byte a second of a line": trickle(linesType),
	} {
		t.Run(name, func(t *testing.T) {
			h := &hangs{how: how}
			other(t, h, nil, func(t *testing.T, p *partner, c *counts) {
				if took, err := ask(p); !errors.Is(err, errSilent) || took != silence {
					t.Fatalf("the first prompt: %v after %v, want %v after %v", err, took, errSilent, silence)
				}
				for range 100 {
					if took, err := ask(p); err == nil || took != 0 {
						t.Fatalf("a later prompt: %v after %v", err, took)
					}
				}
				time.Sleep(10 * time.Minute)
				if took, err := ask(p); err == nil || took != 0 {
					t.Errorf("after ten minutes of silence: %v after %v", err, took)
				}
				if h.posts() != 1 || c.get("prefill silent") != 1 || c.get("prefill away") != 101 {
					t.Errorf("asked %d times; counted %v", h.posts(), c.of)
				}
				h.set(well)
				time.Sleep(lastProbe + silence)
				if took, err := ask(p); err != nil || took != 0 || p.state() != nil {
					t.Errorf("after it became well: %v after %v", err, took)
				}
			})
		})
	}
}

// One that answers probes and hangs in its work is asked ever more seldom.
func TestAPartnerThatIsLostAgainIsLeftAloneForLonger(t *testing.T) {
	h := &hangs{how: func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			well(w, r)
			return
		}
		never(w, r)
	}}
	other(t, h, nil, func(t *testing.T, p *partner, c *counts) {
		for range 3600 { // an hour of a prompt each second
			_, _ = ask(p)
			time.Sleep(time.Second)
		}
		if n := h.posts(); n > 24 {
			t.Errorf("it cost %d prompts of an hour their time", n)
		}
	})
}

func TestAPartnerThatWorksMayTakeItsTime(t *testing.T) {
	h := &hangs{how: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", linesType)
		for i := range 60 {
			_, _ = fmt.Fprintf(w, "{\"alive\":true,\"done\":%d,\"wait_ms\":0}\n", i)
			_ = http.NewResponseController(w).Flush()
			sleep(r.Context(), time.Second, nil)
		}
		_, _ = io.WriteString(w, "{\"reply\":{\"agent\":\"other\",\"computed\":7}}\n")
	}}
	other(t, h, nil, func(t *testing.T, p *partner, _ *counts) {
		if took, err := ask(p); err != nil || took != time.Minute || p.name != "other" {
			t.Errorf("%v after %v, name %q", err, took, p.name)
		}
	})
}

// lives sends signs of life in a line of its own a second, and never an answer. The
// line tells the second where it has a %d.
func lives(contentType, line string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			well(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		for i := 0; r.Context().Err() == nil; i++ {
			if _, err := io.WriteString(w, strings.ReplaceAll(line, "%d", fmt.Sprint(i))); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			sleep(r.Context(), time.Second, nil)
		}
	}
}

// generate has the partner's front decode, as a job that hands over does.
func generate(p *partner) (time.Duration, error) {
	began := time.Now()
	_, err := p.remote.Generate(context.Background(), &openai.Request{Model: "m", Hop: true, Prompt: "a", TopP: 1, LogProbs: -1}, func(openai.Token) error { return nil })
	p.failed("decode", err)
	return time.Since(began), err
}

// Signs of life are no work: a partner that gives nothing else costs a prompt what
// one without any costs, and what it says that its step may take, within a bound.
func TestAPartnerThatLivesAndMakesNoProgressIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		says string // of its work, in JSON
		want time.Duration
	}{
		{``, silence},
		{`"done":0,"wait_ms":0`, silence},
		{`"done":41,"wait_ms":0`, silence},
		{`"done":41,"wait_ms":700`, silence + 700*time.Millisecond},
		{`"done":41,"wait_ms":4000000000`, silence + openai.MaxWait},
	} {
		prefill, decode := "{\"alive\":true}\n", ": alive\n\n"
		if c.says != "" {
			prefill, decode = fmt.Sprintf("{\"alive\":true,%s}\n", c.says), fmt.Sprintf(": alive {%s}\n\n", c.says)
		}
		other(t, &hangs{how: lives(linesType, prefill)}, nil, func(t *testing.T, p *partner, n *counts) {
			if took, err := ask(p); !errors.Is(err, errIdle) || took != c.want {
				t.Errorf("prefill, %q: %v after %v, want %v", c.says, err, took, c.want)
			}
			if took, err := ask(p); err == nil || took != 0 || n.get("prefill stuck") != 1 {
				t.Errorf("prefill, %q: the next one: %v after %v, counted %v", c.says, err, took, n.of)
			}
		})
		other(t, &hangs{how: lives("text/event-stream", decode)}, nil, func(t *testing.T, p *partner, n *counts) {
			if took, err := generate(p); !errors.Is(err, openai.ErrStalled) || took != c.want || n.get("decode stuck") != 1 || p.state() == nil {
				t.Errorf("decode, %q: %v after %v, want %v; counted %v", c.says, err, took, c.want, n.of)
			}
		})
	}
}

// One that stops in the middle of its work is given up as soon after its last step.
func TestAPartnerThatStopsInTheMiddleIsGivenUp(t *testing.T) {
	works := func(contentType, line string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", contentType)
			for i := 0; r.Context().Err() == nil; i++ {
				if _, err := fmt.Fprintf(w, line, min(i, 20)); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				sleep(r.Context(), time.Second, nil)
			}
		}
	}
	const stopped = 20 * time.Second
	other(t, &hangs{how: works(linesType, "{\"alive\":true,\"done\":%d,\"wait_ms\":500}\n")}, nil, func(t *testing.T, p *partner, _ *counts) {
		if took, err := ask(p); !errors.Is(err, errIdle) || took != stopped+silence+500*time.Millisecond {
			t.Errorf("prefill: %v after %v", err, took)
		}
	})
	other(t, &hangs{how: works("text/event-stream", ": alive {\"done\":%d,\"wait_ms\":500}\n\n")}, nil, func(t *testing.T, p *partner, _ *counts) {
		if took, err := generate(p); !errors.Is(err, openai.ErrStalled) || took != stopped+silence+500*time.Millisecond {
			t.Errorf("decode: %v after %v", err, took)
		}
	})
}

// Work for ever is no answer: a partner that goes on and on costs a prompt the
// bound, and is then left alone for longer than that, though probes find it well.
func TestAPartnerThatLivesAndNeverEndsIsBounded(t *testing.T) {
	h := &hangs{how: lives(linesType, "{\"alive\":true,\"done\":%d,\"wait_ms\":0}\n")}
	other(t, h, nil, func(t *testing.T, p *partner, c *counts) {
		if took, err := ask(p); !errors.Is(err, errStuck) || took != p.bound {
			t.Fatalf("the first prompt: %v after %v", err, took)
		}
		if took, err := ask(p); err == nil || took != 0 || c.get("prefill stuck") != 1 {
			t.Errorf("the next one: %v after %v, counted %v", err, took, c.of)
		}
		lost := time.Duration(0)
		for began := time.Now(); time.Since(began) < 4*time.Hour; time.Sleep(time.Second) {
			took, _ := ask(p)
			lost += took
		}
		if lost > 4*time.Hour/3 {
			t.Errorf("prompts waited %v of four hours", lost)
		}
	})
	h = &hangs{how: lives("text/event-stream", ": alive {\"done\":%d,\"wait_ms\":0}\n\n")}
	other(t, h, nil, func(t *testing.T, p *partner, c *counts) {
		if took, err := generate(p); took != p.bound || !errors.Is(err, openai.ErrStuck) || c.get("decode stuck") != 1 || p.state() == nil {
			t.Errorf("%v after %v, counted %v", err, took, c.of)
		}
	})
}

func TestWhatAPartnerMayNotSayEndsTheCall(t *testing.T) {
	for body, want := range map[string]string{
		"{\"alive\":true}\nnonsense\n": "a line of the partner's answer", "{\"alive\":true}\n": "EOF", "": "EOF",
		"{\"error\":{\"message\":\"no\",\"code\":\"node_mismatch\"},\"status\":409}\n": "node_mismatch",
		strings.Repeat("x", maxReply+1): "too long",
	} {
		h := &hangs{how: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", linesType)
			_, _ = io.WriteString(w, body)
		}}
		other(t, h, nil, func(t *testing.T, p *partner, c *counts) {
			if _, err := ask(p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.40q: %v, want %s", body, err, want)
			}
			refused := want == "node_mismatch"
			if n := c.get("prefill refused"); (n == 1) != refused || (p.state() == nil) != refused {
				t.Errorf("%.40q: counted %v, away %v", body, c.of, p.state())
			}
		})
	}
}

func TestAPartnerWhoseBlocksCannotBeHadIsNotAsked(t *testing.T) {
	h := &hangs{how: well}
	var blocked error
	other(t, h, func(string) error { return blocked }, func(t *testing.T, p *partner, c *counts) {
		blocked = fmt.Errorf("peer other is not ready")
		for range 3 {
			if took, err := ask(p); !errors.Is(err, blocked) || took != 0 {
				t.Errorf("%v after %v", err, took)
			}
		}
		blocked = nil
		if _, err := ask(p); err != nil || h.posts() != 1 || c.get("prefill peer") != 3 {
			t.Errorf("%v; asked %d times, counted %v", err, h.posts(), c.of)
		}
	})
}

// A front that decodes for this node may think as long as it shows that it lives.
func TestAPartnerThatDecodesIsBoundInTheSameWay(t *testing.T) {
	request := &openai.Request{Model: "m", Hop: true, Prompt: "a", TopP: 1, LogProbs: -1}
	none := func(openai.Token) error { return nil }
	h := &hangs{how: never}
	other(t, h, nil, func(t *testing.T, p *partner, c *counts) {
		began := time.Now()
		_, err := p.remote.Generate(t.Context(), request, none)
		p.failed("decode", err)
		if took := time.Since(began); took != silence || c.get("decode silent") != 1 || p.state() == nil {
			t.Errorf("%v after %v, counted %v", err, took, c.of)
		}
	})
	h = &hangs{how: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 30 {
			_, _ = fmt.Fprintf(w, ": alive {\"done\":%d,\"wait_ms\":0}\n\n", i)
			_ = http.NewResponseController(w).Flush()
			sleep(r.Context(), time.Second, nil)
		}
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}}
	other(t, h, nil, func(t *testing.T, p *partner, _ *counts) {
		slow := func(openai.Token) error { time.Sleep(time.Minute); return nil } // a client's time is not the partner's
		if res, err := p.remote.Generate(t.Context(), request, slow); err != nil || res.Finish != "stop" {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

func TestAPartnerWhosePrefillsAreOfNoUseIsLeftAlone(t *testing.T) {
	h := &hangs{how: well}
	other(t, h, nil, func(t *testing.T, p *partner, c *counts) {
		if _, err := ask(p); err != nil {
			t.Fatal(err)
		}
		p.failed("prefill", errLost)
		if _, err := ask(p); !errors.Is(err, errLost) || h.posts() != 1 || c.get("prefill lost") != 1 {
			t.Errorf("%v; asked %d times, counted %v", err, h.posts(), c.of)
		}
	})
}
